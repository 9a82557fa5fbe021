# SPDX-License-Identifier: Apache-2.0
"""How far drawing has come: a line on standard error."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from forebay.closing import Closing

__all__ = ["Progress", "ProgressOption"]

_INTERVAL_S = 1.0

ProgressOption = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Tell on stderr which step is drawn. Default: on a terminal."),
]


class Progress(Closing):
    """Tells of drawn steps: a line that changes on a terminal, else a line each second at most.

    Parameters
    ----------
    console : Console
        Standard error.
    wanted : bool, optional
        None: on a terminal only.
    """

    def __init__(self, console: Console, wanted: bool | None = None) -> None:
        self._console = console
        self._status: Status | None = None
        self._lines = bool(wanted) and not console.is_terminal
        if console.is_terminal and wanted is not False:
            self._status = console.status("waiting for the first step")
            self._status.start()
        self._printed_at: float | None = None
        self._count = 0

    def drawn(self, number: int, newest: int | None = None) -> None:
        """A step was drawn; ``newest`` is the newest one that the stream is known to have."""
        self._count += 1
        text = Text(f"{self._count} drawn, the last one is step {number}")
        if newest is not None and newest > number:
            text.append(f" of {newest}")
        if self._status is not None:
            self._status.update(text)
        elif self._lines and (self._printed_at is None or time.monotonic() - self._printed_at >= _INTERVAL_S):
            self._console.print(text, soft_wrap=True)
            self._printed_at = time.monotonic()

    def close(self) -> None:
        """Takes the line away. Idempotent."""
        if self._status is not None:
            self._status.stop()
