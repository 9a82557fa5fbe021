# SPDX-License-Identifier: Apache-2.0
"""The live view of a stream as a Rich renderable: watermarks, space, and each consumer's lag."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forebay.cli.streams import step_text
from forebay.records import ConsumerInfo, StreamInfo, StreamStatus
from forebay.sizes import format_size

__all__ = ["stream_view"]

_STATUS_STYLES = {
    StreamStatus.WAITING: "yellow",
    StreamStatus.LIVE: "green",
    StreamStatus.ENDED: "default",
    StreamStatus.INTERRUPTED: "bold yellow",
    StreamStatus.FAILED: "bold red",
}


def stream_view(info: StreamInfo, title: str = "") -> RenderableType:
    """What `forebay watch` shows.

    Parameters
    ----------
    info : StreamInfo
        From ``Admin.stream`` or ``Stream.info``.
    title : str
        First line; empty: the stream's name.
    """
    status = Text(info.status.value, style=_STATUS_STYLES[info.status])
    if info.status_text:
        status.append(f": {info.status_text}")
    head = Text.assemble((title or info.name, "bold"), "  ", status)
    marks = Table(box=None, pad_edge=False)
    for name in ("COMMITTED", "DURABLE", "STAGED", "OLDEST", "KEPT", "SIZE"):
        marks.add_column(name, justify="right")
    marks.add_row(
        step_text(info.committed),
        step_text(info.durable),
        step_text(info.staged),
        step_text(info.oldest),
        f"{info.steps} steps",
        format_size(info.size_bytes),
    )
    parts: list[RenderableType] = [head, marks]
    if info.consumers:
        consumers = Table(box=None, pad_edge=False)
        consumers.add_column("CONSUMER")
        consumers.add_column("NEXT", justify="right")
        consumers.add_column("LAG", justify="right")
        consumers.add_column("")
        for consumer in info.consumers:
            consumers.add_row(consumer.name, str(consumer.position), _lag(consumer), _connection(consumer))
        parts.append(consumers)
    return Group(*parts)


def _lag(consumer: ConsumerInfo) -> str:
    return "1 step" if consumer.lag_steps == 1 else f"{consumer.lag_steps} steps"


def _connection(consumer: ConsumerInfo) -> Text:
    if consumer.connected:
        return Text(f"pid {consumer.holder_pid}")
    return Text("away", style="yellow")
