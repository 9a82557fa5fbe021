# SPDX-License-Identifier: Apache-2.0
"""`umount`, bounded."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from forebay.workflows.files.daemons import program_path

__all__ = ["unmount"]


def unmount(place: Path, lazy: bool, deadline: float) -> str:
    """By a process, which may be killed if the server does not answer. What it says, "" if it succeeds. Lazily nothing
    is asked of the server.
    """
    command = [program_path("umount", "mount"), "-n", "-i", "-c", *(["-l"] if lazy else []), str(place)]
    left = max(0.5, deadline - time.monotonic())
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=left, check=False
        )
    except subprocess.TimeoutExpired:
        return "the server does not answer"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][-200:]
