# SPDX-License-Identifier: Apache-2.0
"""Opening a stream that may not exist yet: a long wait says what it waits for, and which near names there are."""

from __future__ import annotations

import logging
import time
from typing import Any

from forebay import _core
from forebay.errors import DeadlineExceededError, ForebayError, RefusedError, StreamNotFoundError
from forebay.near_names import near_names
from forebay.records import Address

__all__ = ["open_reader", "stream_not_found"]

_log = logging.getLogger("forebay.waiting")

_QUIET_MS = 1000


def open_reader(address: Address, server: _core.ServerPlace, options: dict[str, Any]) -> _core.Reader:
    """The native reader. A wait of more than a second is told once, by the logger ``forebay.waiting``."""
    timeout_ms: int = options["open_timeout_ms"]
    # The ranks of a group wait in one Open: it is all of them that come or do not.
    if 0 <= timeout_ms <= _QUIET_MS or "ranks" in options:
        return _core.Reader.open(address.path, server=server, **options)
    started = time.monotonic()
    try:
        return _core.Reader.open(address.path, server=server, **options | {"open_timeout_ms": _QUIET_MS})
    except DeadlineExceededError:
        left_ms = -1 if timeout_ms < 0 else timeout_ms - round(1000 * (time.monotonic() - started))
        if timeout_ms >= 0 and left_ms <= 0:
            raise
    except RefusedError:
        # Who waits for ever waits for the next writer.
        if timeout_ms >= 0:
            raise
        left_ms = -1
    limit = "" if left_ms < 0 else f", for another {left_ms / 1000:.0f} s"
    _log.warning(
        "stream %s does not exist; waiting for a writer to make it%s%s", address.path, limit, _near(address, server)
    )
    return _core.Reader.open(address.path, server=server, **options | {"open_timeout_ms": left_ms})


def stream_not_found(error: ForebayError, address: Address, server: _core.ServerPlace) -> StreamNotFoundError:
    """What says so for a program, with the names that may have been meant."""
    return StreamNotFoundError(error.what + _near(address, server), error.where)


def _near(address: Address, server: _core.ServerPlace) -> str:
    """``"; did you mean run1/flow?"``, of the reservation's streams, or of the reservations if there is no such one."""
    try:
        admin = _core.Admin.connect(server, 0)
    except (ForebayError, OSError):
        return ""
    try:
        names = [info["name"] for info in admin.streams(address.reservation)]
        near = [f"{address.reservation}/{name}" for name in near_names(address.stream, names)]
    except ForebayError:
        try:
            names = [info["name"] for info in admin.reservations(count_files=False)]
        except ForebayError:
            return ""
        near = [f"{name}/{address.stream}" for name in near_names(address.reservation, names)]
    finally:
        admin.close()
    return f"; did you mean {' or '.join(near)}?" if near else ""
