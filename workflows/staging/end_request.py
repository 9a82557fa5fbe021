# SPDX-License-Identifier: Apache-2.0
"""How the manager asks a stage that follows to end: it takes what is complete, and succeeds."""

from __future__ import annotations

import os

__all__ = ["EndRequest"]


class EndRequest:
    """Set once, by any thread; who waits watches its descriptor."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_made = False

    @property
    def is_made(self) -> bool:
        """The stage is to end."""
        return self._is_made

    def make(self) -> None:
        """Asks; idempotent."""
        self._is_made = True
        os.eventfd_write(self._descriptor, 1)

    def fileno(self) -> int:
        """Readable from when it was made."""
        return self._descriptor
