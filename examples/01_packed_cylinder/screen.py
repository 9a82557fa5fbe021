# SPDX-License-Identifier: Apache-2.0
"""The live table of the demo on a terminal; plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from forebay.cli.live import stream_view
from forebay.cli.streams import step_text
from forebay.records import StreamInfo

_REFRESH_SECONDS = 0.2
_PLAIN_REFRESH_SECONDS = 3.0


class Screen:
    """Where the demo shows what goes on. A context manager.

    Parameters
    ----------
    title : str
        First line of the table.
    steps : int
        Of the whole run.
    """

    def __init__(self, title: str, steps: int) -> None:
        self._title, self._steps = title, steps
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._started = time.monotonic()
        self._shown_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """True when what is shown is old enough to be replaced."""
        interval = _REFRESH_SECONDS if self._live is not None else _PLAIN_REFRESH_SECONDS
        return time.monotonic() - self._shown_at >= interval

    def tell(self, text: str) -> None:
        """Says what has happened; stays on the screen."""
        self._console.print(Text.assemble((f"{time.monotonic() - self._started:6.1f} s  ", "dim"), text))
        sys.stdout.flush()

    def show(self, info: StreamInfo, others: Mapping[str, str]) -> None:
        """The stream now, and further lines of a name and a text."""
        self._shown_at = time.monotonic()
        if self._live is not None:
            lines = [Text.assemble((f"{name}  ", "bold"), text) for name, text in others.items()]
            self._live.update(Group(stream_view(info, self._title), *lines), refresh=True)
            return
        lags = "".join(f", {consumer.name} -{consumer.lag_steps}" for consumer in info.consumers)
        rest = "".join(f", {name} {text}" for name, text in others.items())
        self.tell(
            f"{info.status.value}: committed {step_text(info.committed)} of {self._steps - 1}, durable "
            f"{step_text(info.durable)}, staged {step_text(info.staged)}, {info.steps} kept{lags}{rest}"
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
