# SPDX-License-Identifier: Apache-2.0
"""How streams, steps and variables are displayed: in one line, and as a table in notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from forebay.errors import ForebayError
from forebay.records import StreamInfo
from forebay.sizes import format_size
from forebay.visible_text import visible

if TYPE_CHECKING:
    from forebay.records import Address
    from forebay.step import Step
    from forebay.variable import Variable

__all__ = ["names_shown", "step_html", "stream_html", "stream_summary", "value_shown", "variable_html"]

#: So many variables stand in a table, and so many names in a line.
_ROWS_MAX = 100
_NAMES_MAX = 8
_TEXT_MAX = 60


def value_shown(value: Any) -> str:
    """A value in few characters: numbers with six digits, texts cut."""
    if value is None:
        return "-"
    if isinstance(value, (str, bytes)):
        shown = repr(value)
    else:
        try:
            shown = format(value, ".6g")
        except (TypeError, ValueError):
            shown = str(value)
    return shown if len(shown) <= _TEXT_MAX else f"{shown[:_TEXT_MAX]}…"


def names_shown(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    if not names:
        return "none"
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(map(visible, names[:_NAMES_MAX])) + more


def stream_summary(info: StreamInfo) -> str:
    """State, kept steps and their size."""
    if not info.steps:
        return f"{info.status}, no steps"
    kept = (
        f"1 step kept, {info.oldest}"
        if info.steps == 1
        else f"{info.steps} steps kept, {info.oldest} to {info.committed}"
    )
    return f"{info.status}, {kept}, {format_size(info.size_bytes)}"


def stream_html(address: Address, mode: str, state: StreamInfo | ForebayError, newest: Step | None) -> str:
    """A stream: its state, or why that is not known, and the variables of its newest step."""
    head = f"<b>Stream</b> <code>{_html(str(address))}</code>, mode {_html(mode)}"
    if isinstance(state, ForebayError):
        return f"<div>{head}<br>{_html(str(state))}</div>"
    watermarks = ", ".join(
        f"{name} {'-' if number is None else number}"
        for name, number in (("committed", state.committed), ("durable", state.durable), ("staged", state.staged))
    )
    rows = [
        ("status", f"{state.status}{': ' + state.status_text if state.status_text else ''}"),
        ("steps", stream_summary(state).removeprefix(f"{state.status}, ")),
        ("watermarks", watermarks),
        ("retention", str(state.retention)),
        *(
            ("consumer", f"{consumer.name}: next step {consumer.position}, {consumer.lag_steps} behind")
            for consumer in state.consumers
        ),
    ]
    html = f"<div>{head}{_facts(rows)}"
    if newest is not None:
        html += f"newest step {newest.number}:{_variables(newest)}"
    return f"{html}</div>"


def step_html(step: Step) -> str:
    """A step: when it committed, its variables and attributes."""
    html = (
        f"<div><b>Step</b> <code>{_html(str(step.address))}</code>, epoch {step.epoch}, committed "
        f"{time_shown(step.time)}, {format_size(step.size_bytes)}{'' if step.pinned else ', not pinned'}"
        f"{_variables(step)}"
    )
    attributes = step.attributes
    if attributes:
        shown = [(name, value_shown(value)) for name, value in list(attributes.items())[:_ROWS_MAX]]
        html += f"<details><summary>attributes: {len(attributes)}</summary>{_facts(shown)}</details>"
    return f"{html}</div>"


def variable_html(variable: Variable) -> str:
    """A variable: what it is, and its blocks."""
    html = f"<div><b>Variable</b> {_table(_VARIABLE_HEADS, [_row_of(variable)])}"
    blocks = variable.blocks
    if len(blocks) > 1:
        rows = [
            (str(block.rank), str(block.start), str(block.count), value_shown(block.min), value_shown(block.max))
            for block in blocks[:_ROWS_MAX]
        ]
        table = _table(("rank", "start", "count", "min", "max"), rows, len(blocks))
        html += f"<details><summary>blocks: {len(blocks)}</summary>{table}</details>"
    return f"{html}</div>"


def time_shown(seconds: float) -> str:
    """A time of commit on this machine's clock, to the second."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


_VARIABLE_HEADS = ("name", "type", "shape", "dims", "kind", "blocks", "min", "max")


def _row_of(variable: Variable) -> tuple[str, ...]:
    dims = variable.dims
    return (
        variable.name,
        str(variable.dtype),
        str(variable.shape),
        "-" if dims is None else ", ".join(dims),
        variable.kind.value,
        str(len(variable.blocks)),
        value_shown(variable.min),
        value_shown(variable.max),
    )


def _variables(step: Step) -> str:
    names = step.variables
    return _table(_VARIABLE_HEADS, [_row_of(step[name]) for name in names[:_ROWS_MAX]], len(names))


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{_html(name)}</th><td>{_html(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def _table(heads: Iterable[str], rows: Sequence[Iterable[str]], total: int | None = None) -> str:
    head = "".join(f"<th>{_html(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>" for row in rows)
    more = f"and {total - len(rows)} more" if total is not None and total > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _html(text: str) -> str:
    return escape(visible(text))
