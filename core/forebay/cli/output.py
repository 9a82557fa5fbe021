# SPDX-License-Identifier: Apache-2.0
"""How commands print: tables for people, one JSON document for programs, plain text when not on a terminal."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from forebay.visible_text import visible, visible_json

__all__ = [
    "JsonOption",
    "console",
    "error_console",
    "format_time",
    "make_table",
    "print_fields",
    "print_json",
    "print_line",
    "print_table",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text for people.")]

# Wide enough that text for a file or a pipe is never folded.
_PLAIN_WIDTH = 100_000


class _VisibleConsole(Console):
    """Escapes what names and texts of others have of control characters, so that they do not steer the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text, keep="\n"))


def console() -> Console:
    """Standard output; plain and unfolded when it is not a terminal."""
    return _VisibleConsole(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def error_console() -> Console:
    """Standard error, for progress and messages, so that standard output stays clean."""
    return _VisibleConsole(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _PLAIN_WIDTH)


def print_json(value: Any) -> None:
    """Prints one JSON document."""
    sys.stdout.write(visible_json(value, indent=2) + "\n")
    sys.stdout.flush()


def print_line(text: str) -> None:
    """Prints one line to standard output, at once."""
    sys.stdout.write(visible(text) + "\n")
    sys.stdout.flush()


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, plain: bool) -> Table:
    """A table; columns whose name starts with ``>`` are aligned to the right. ``plain``: no rules, no colours."""
    table = Table(box=None, pad_edge=False, header_style="" if plain else "bold", show_edge=False)
    for column in columns:
        table.add_column(
            column.removeprefix(">"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=plain,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Prints a table, or the sentence ``empty`` where there are no rows."""
    out = console()
    cells = list(rows)
    if not cells:
        out.print(Text(visible(empty)))
        return
    _print_rows(out, make_table(columns, cells, plain=not out.is_terminal))


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Prints names and values in two columns."""
    out = console()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold" if out.is_terminal else "")
    grid.add_column(overflow="fold")
    for name, value in fields:
        grid.add_row(visible(name), Text(visible(value)))
    _print_rows(out, grid)


def _print_rows(out: Console, table: Table) -> None:
    if out.is_terminal:
        out.print(table)
        return
    # Rich fills the last column with blanks, which a file or a pipe should not get.
    with out.capture() as capture:
        out.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def format_time(time_ns: int) -> str:
    """A point in time, local, to the millisecond."""
    moment = datetime.datetime.fromtimestamp(time_ns / 1e9, tz=datetime.UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ns // 1_000_000 % 1000:03d}"
