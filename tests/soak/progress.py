# SPDX-License-Identifier: Apache-2.0
"""How far a soak is, for whoever watches it in a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress_line"]


@contextlib.contextmanager
def progress_line(seconds: float) -> Iterator[Callable[[float, str], None]]:
    """Gives a function that shows (seconds done, what is done); it shows nothing where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _text: None
        return
    columns = (TextColumn("soak"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=seconds)
        yield lambda done, text: bar.update(task, completed=min(done, seconds), description=text)
