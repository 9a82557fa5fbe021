# SPDX-License-Identifier: Apache-2.0
"""`forebay streams` and `forebay steps`: what lies in a reservation and in a stream."""

from __future__ import annotations

import typer

import forebay
from forebay.cli.arguments import ReservationArgument, StreamArgument
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, console, format_time, print_json, print_table
from forebay.errors import InvalidArgumentError, StepNotFoundError
from forebay.records import Address, StepSummary, StreamInfo
from forebay.sizes import format_size

__all__ = ["STREAM_COLUMNS", "check_reservation", "register", "step_text", "stream_row", "stream_text"]

_LOST_SHOWN_MAX = 3  # ranges

STREAM_COLUMNS = (
    "STREAM", "STATUS", ">RANKS", ">STEPS", ">OLDEST", ">COMMITTED", ">DURABLE", ">STAGED", ">SIZE", "RETENTION"
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("streams", epilog="Example: forebay streams run1")(list_streams)
    app.command("steps", epilog="Example: forebay steps run1/flow")(list_steps)


def list_streams(
    reservation: ReservationArgument,
    as_json: JsonOption = False,
) -> None:
    """List the streams of a reservation: status, kept steps, watermarks."""
    check_reservation(reservation)
    with forebay.Admin(chosen()) as admin:
        streams = admin.streams(reservation)
    if as_json:
        print_json({"streams": [info.as_dict() for info in streams]})
        return
    print_table(STREAM_COLUMNS, map(stream_row, streams), empty=f"Reservation {reservation} has no streams.")


def list_steps(
    stream: StreamArgument,
    as_json: JsonOption = False,
) -> None:
    """List the kept steps of a stream: time, watermarks, size."""
    address = Address.parse(stream)
    with forebay.Admin(chosen()) as admin:
        info = admin.stream(address.path)
        steps = [step for step in admin.steps(address.path) if address.step is None or step.number == address.step]
    if address.step is not None and not steps:
        raise StepNotFoundError(
            f"there is no such step now; `forebay steps {address.path}` lists those that are kept", str(address)
        )
    if as_json:
        print_json({"stream": info.as_dict(), "steps": [step.as_dict() for step in steps]})
        return
    print_table(
        (">STEP", "TIME", "WATERMARK", ">SIZE", ">EPOCH", ">PINS", "PRECIOUS"),
        (
            (
                str(step.number),
                format_time(step.time_ns),
                _watermark(step),
                format_size(step.size_bytes),
                str(step.epoch),
                str(step.pins),
                "yes" if step.precious else "",
            )
            for step in steps
        ),
        empty=f"Stream {address} has no steps.",
    )
    if info.lost and address.step is None:
        console().print(lost_text(info).capitalize(), markup=False, soft_wrap=True)


def check_reservation(name: str) -> None:
    """InvalidArgumentError if this is nothing, or a stream's address, where a reservation is to be named."""
    if not name or "/" in name:
        raise InvalidArgumentError(
            f"{name!r} is not a reservation; `forebay show RES/STREAM` and `forebay steps RES/STREAM` show a stream"
        )


def stream_row(info: StreamInfo) -> tuple[str, ...]:
    """The cells of `STREAM_COLUMNS`."""
    return (
        info.name,
        info.status.value,  # `forebay why` and `forebay show` have the reason, which is a sentence or two
        str(info.ranks),
        str(info.steps),
        step_text(info.oldest),
        step_text(info.committed),
        step_text(info.durable),
        step_text(info.staged),
        format_size(info.size_bytes),
        str(info.retention),
    )


def stream_text(path: str, info: StreamInfo) -> str:
    """A stream in one line."""
    kept = "1 step" if info.steps == 1 else f"{info.steps} steps"
    why = f" ({info.status_text})" if info.status_text else ""
    lost = f", {lost_text(info)}" if info.lost else ""
    return (
        f"{path}, {info.status.value}{why}, {kept} kept in {format_size(info.size_bytes)}, retention "
        f"{info.retention}{lost}"
    )


def lost_text(info: StreamInfo) -> str:
    """Which steps a stream has lost, of one that has."""
    more = len(info.lost) - _LOST_SHOWN_MAX
    shown = ", ".join(map(str, info.lost[:_LOST_SHOWN_MAX])) + (f" and {more} more ranges" if more > 0 else "")
    return f"lost with a server of the reservation: {shown}"


def step_text(number: int | None) -> str:
    """A watermark as text; a dash while there is none."""
    return "-" if number is None else str(number)


def _watermark(step: StepSummary) -> str:
    if step.staged:
        return "staged"
    return "durable" if step.durable else "committed"
