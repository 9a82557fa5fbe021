# SPDX-License-Identifier: Apache-2.0
"""Which process a pid means: the kernel gives the same number to another process later."""

from __future__ import annotations

from pathlib import Path

__all__ = ["process_identity", "start_time"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GONE_STATES = ("Z", "X")


def start_time(pid: int) -> int | None:
    """When the process was started, in the kernel's ticks since boot; None if it is gone."""
    fields = _status_fields(pid)
    return None if fields is None else int(fields[19])


def process_identity(pid: int) -> str | None:
    """A text that no other process ever gets, also after a boot; None if the process has ended."""
    fields = _status_fields(pid)
    if fields is None or fields[0] in _GONE_STATES:
        return None
    return f"{_BOOT_ID.read_text(encoding='ascii').strip()}/{pid}/{fields[19]}"


def _status_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in brackets, may hold anything; what follows the last bracket is the state, then numbers.
    return text.rpartition(")")[2].split()
