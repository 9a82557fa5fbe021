# SPDX-License-Identifier: Apache-2.0
"""The pipe through which a user's program speaks to the manager: whatever it does, the manager neither waits for it nor
keeps more of it than a limit. Belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import os

from forebay.errors import RefusedError
from forebay.workflows.manager.core.stages.reading_budget import ReadingBudget

__all__ = ["MessagePipe"]

_READ_BYTES = 64 << 10
#: Read after the program has ended: somebody else may hold the pipe, and may go on writing.
_LEFT_BYTES_MAX = 1 << 20


class MessagePipe:
    """Lines from a descriptor, which it closes. At most one line, and one read, is kept here; the rest stays in the
    kernel's pipe, and who writes more than it holds waits.

    Parameters
    ----------
    message_bytes_max : int
        Of a line with its line feed.
    budget : ReadingBudget
        What is read of this user in a second.
    """

    def __init__(self, descriptor: int, message_bytes_max: int, budget: ReadingBudget) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._message_bytes_max = message_bytes_max
        self._budget = budget
        self._buffer = bytearray()
        self._scanned = 0  # so many bytes of the buffer hold no line feed
        self._left_bytes: int | None = None  # once the program has ended
        self._wake = asyncio.Event()

    async def read(self) -> bytes | None:
        """The next line without its line feed; None at the end. What follows the last line feed counts for nothing.

        Raises
        ------
        RefusedError
            A line is longer than the limit.
        """
        while (end := self._buffer.find(b"\n", self._scanned)) < 0 and len(self._buffer) < self._message_bytes_max:
            self._scanned = len(self._buffer)
            if not await self._fill():
                return None
        if not 0 <= end < self._message_bytes_max:
            raise RefusedError(
                f"the stage's process sent a message of more than {self._message_bytes_max >> 10} KiB and was ended; "
                "no Forebay sends such a message"
            )
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        await self._budget.take(len(line))
        return line

    async def read_rest(self, kept_bytes_max: int) -> bytes:
        """Reads to the end; returns the last bytes."""
        kept = bytearray()
        while await self._fill():
            kept += self._buffer
            del kept[:-kept_bytes_max]
            await self._budget.take(len(self._buffer))
            self._buffer.clear()
        return bytes(kept)

    def program_ended(self) -> None:
        """What it wrote is in the pipe: only that is read, whoever else holds the pipe open."""
        self._left_bytes = _LEFT_BYTES_MAX
        self._wake.set()

    def close(self) -> None:
        """Closes the descriptor; nobody may be reading."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _fill(self) -> bool:
        """Reads once; False at the end."""
        while True:
            if self._left_bytes is not None and self._left_bytes <= 0:
                return False
            try:
                piece = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                if self._left_bytes is not None:
                    return False
                await self._wait()
                continue
            if self._left_bytes is not None:
                self._left_bytes -= len(piece)
            self._buffer += piece
            return bool(piece)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._wake.clear()
        loop.add_reader(self._descriptor, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            loop.remove_reader(self._descriptor)
