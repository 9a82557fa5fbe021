# SPDX-License-Identifier: Apache-2.0
"""Live views as Rich renderables: a stream with watermarks, space, each consumer's lag and who waits; and all streams
of a reservation with their rates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forebay.cli.rates import StreamRate
from forebay.cli.streams import step_text
from forebay.durations import format_duration
from forebay.records import AwaitedStream, ConsumerInfo, StreamInfo, StreamStatus, StreamWait
from forebay.sizes import format_size

__all__ = ["reservation_view", "stream_view", "wait_text"]

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
    status = Text(info.status.value, style=_STATUS_STYLES.get(info.status, "default"))
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
    if info.waits:
        parts.append(_waits_table([("", wait) for wait in info.waits]))
    return Group(*parts)


def reservation_view(title: str, rates: Sequence[StreamRate], awaited: Sequence[AwaitedStream]) -> RenderableType:
    """What `forebay watch` shows of a reservation: a line for each stream, then who waits, also for other streams."""
    table = Table(box=None, pad_edge=False)
    for name in ("STREAM", "STATUS"):
        table.add_column(name, overflow="fold")
    for name in ("COMMITTED", "STEPS/S", "RATE", "KEPT", "SIZE"):
        table.add_column(name, justify="right")
    table.add_column("LAG", overflow="fold")
    for rate in rates:
        info = rate.info
        table.add_row(
            info.name,
            Text(info.status.value, style=_STATUS_STYLES.get(info.status, "default")),
            step_text(info.committed),
            "-" if rate.steps_per_second is None else f"{rate.steps_per_second:.1f}",
            "-" if rate.bytes_per_second is None else f"{format_size(int(rate.bytes_per_second))}/s",
            str(info.steps),
            format_size(info.size_bytes),
            _lag_text(info) or "-",
        )
    parts: list[RenderableType] = [Text(title, "bold"), table if rates else Text("It has no streams.")]
    waits = [(rate.info.name, wait) for rate in rates for wait in rate.info.waits]
    waits += [(stream.name, wait) for stream in awaited for wait in stream.waits]
    if waits:
        parts.append(_waits_table(waits))
    return Group(*parts)


def _lag_text(info: StreamInfo) -> str:
    return ", ".join(f"{consumer.name} {consumer.lag_steps}" for consumer in info.consumers)


def wait_text(wait: StreamWait) -> str:
    """A wait in a line, with how long it has lasted."""
    return f"{wait.who} waits for {wait.waits_for}, since {_age(wait)}"


def _waits_table(waits: Sequence[tuple[str, StreamWait]]) -> Table:
    table = Table(box=None, pad_edge=False)
    with_streams = any(stream for stream, _ in waits)
    if with_streams:
        table.add_column("STREAM", overflow="fold")
    table.add_column("WHO WAITS", overflow="fold")
    table.add_column("SINCE", justify="right")
    table.add_column("FOR WHAT", overflow="fold")
    for stream, wait in waits:
        table.add_row(*([stream] if with_streams else []), wait.who, _age(wait), Text(wait.waits_for))
    return table


def _age(wait: StreamWait) -> str:
    return format_duration(max(0.0, (time.time_ns() - wait.since_ns) / 1e9))


def _lag(consumer: ConsumerInfo) -> str:
    return "1 step" if consumer.lag_steps == 1 else f"{consumer.lag_steps} steps"


def _connection(consumer: ConsumerInfo) -> Text:
    if consumer.connected:
        return Text(f"pid {consumer.holder_pid}")
    return Text("away", style="yellow")
