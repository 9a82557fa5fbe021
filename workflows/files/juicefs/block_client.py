# SPDX-License-Identifier: Apache-2.0
"""Asks a part's server of blocks how much room it has, as the home and the keeper do."""

from __future__ import annotations

import base64
import http.client
import re
import socket
import time
from pathlib import Path

from forebay.workflows.files.juicefs.block_server import USER

__all__ = ["free_bytes_at"]

_FREE = re.compile(rb"<d:quota-available-bytes>([0-9]{1,20})</d:quota-available-bytes>")
_ANSWER_BYTES_MAX = 1 << 16


class _SocketConnection(http.client.HTTPConnection):
    """To a socket in the file system."""

    def __init__(self, path: Path, seconds_max: float) -> None:
        super().__init__("blocks", timeout=seconds_max)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def free_bytes_at(place: Path | tuple[str, int], password: str, deadline: float) -> int | None:
    """What blocks may still take, asked at a socket or through a forwarder; None if nobody says it in time."""
    left = max(0.1, deadline - time.monotonic())
    if isinstance(place, Path):
        connection: http.client.HTTPConnection = _SocketConnection(place, left)
    else:
        connection = http.client.HTTPConnection(*place, timeout=left)
    right = base64.b64encode(f"{USER}:{password}".encode()).decode()
    try:
        connection.request("PROPFIND", "/", headers={"Authorization": f"Basic {right}", "Depth": "0"})
        match = _FREE.search(connection.getresponse().read(_ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return None if match is None else int(match[1])
