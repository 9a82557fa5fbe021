# SPDX-License-Identifier: Apache-2.0
"""`forebay stream` and `forebay consumer`: remove a stream, change what it keeps, and move or remove its consumers."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

import forebay
from forebay.cli.arguments import ConsumerArgument, StreamArgument
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, console, print_json
from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.near_names import near_names, near_text
from forebay.records import Address, ConsumerInfo, Retention, StreamInfo
from forebay.step_selection import StepSelection

__all__ = ["register"]

_stream_app = typer.Typer(add_completion=False, no_args_is_help=True)
_consumer_app = typer.Typer(add_completion=False, no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(_stream_app, name="stream", epilog="Example: forebay stream retention run1/flow last:10")
    app.add_typer(_consumer_app, name="consumer", epilog="Example: forebay consumer seek run1/flow render 100")


@_stream_app.callback()
def stream_commands() -> None:
    """Remove a stream, or change which steps it keeps."""


@_consumer_app.callback()
def consumer_commands() -> None:
    """Move the cursor of a named consumer, or remove it. `forebay watch` shows the consumers."""


@_stream_app.command("remove", epilog="Example: forebay stream remove run1/flow")
def remove_stream(
    stream: StreamArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Despite active writers or precious steps that are not staged out.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a stream with all its steps; idempotent."""
    address = _stream_address(stream)
    with forebay.Admin(chosen()) as admin:
        names = [info.name for info in admin.streams(address.reservation)]
        existed = address.stream in names
        # Also where it is not listed: one that cannot be opened has no state to show.
        admin.remove_stream(address, force=force)
    near = [] if existed else near_names(address.stream, names)
    if as_json:
        print_json({"removed": address.path, "existed": existed, "near": near})
    elif existed:
        _say(f"{address.path}: removed")
    else:
        _say(f"{address.path}: there was no such stream{near_text(address.stream, names)}")


@_stream_app.command("retention", epilog="Example: forebay stream retention run1/flow last:10,precious:100")
def set_retention(
    stream: StreamArgument,
    retention: Annotated[
        str,
        typer.Argument(
            metavar="TERMS",
            help="all, or terms separated by commas: last:N, first:N, consumers:NAME+NAME, precious:N.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Change which steps a stream keeps. Steps that the new rule does not keep are dropped at once."""
    address = _stream_address(stream)
    wanted = Retention.parse(retention)
    with forebay.Admin(chosen()) as admin:
        before = admin.stream(address).retention
        admin.set_retention(address, wanted)
    if as_json:
        print_json({"stream": address.path, "retention": str(wanted), "before": str(before)})
    else:
        _say(f"{address.path}: retention {wanted}, was {before}")


@_stream_app.command("precious", epilog="Example: forebay stream precious run1/flow 0,100:200:10")
def set_precious(
    stream: StreamArgument,
    steps: Annotated[
        str, typer.Argument(metavar="STEPS", help="Kept steps, for example 0,5,10:20 (10 to 19) or 100:200:10.")
    ],
    precious: Annotated[
        bool, typer.Option("--precious/--not-precious", help="Keep them until they are staged out, or no longer.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Mark kept steps as precious, so that they stay until they are staged out; or take the mark away."""
    address = _stream_address(stream)
    selection = StepSelection.parse(None, steps)
    if not selection.ranges:
        raise InvalidArgumentError("no steps are named: write for example 0,5,10:20 (10 to 19)")
    with forebay.Admin(chosen()) as admin:
        kept = {step.number for step in admin.steps(address)}
        missing = sorted(selection.named - kept)
        if missing and precious:
            raise NotFoundError(
                f"step {missing[0]} is not kept; `forebay steps {address.path}` lists those that are", str(address)
            )
        chosen_steps = sorted(number for number in kept if number in selection)
        admin.set_precious(address, chosen_steps, precious)
    if as_json:
        print_json({"stream": address.path, "steps": chosen_steps, "precious": precious})
    else:
        count = "1 step is" if len(chosen_steps) == 1 else f"{len(chosen_steps)} steps are"
        _say(f"{address.path}: {count} {'precious' if precious else 'not precious'} now")


@_consumer_app.command("remove", epilog="Example: forebay consumer remove run1/flow render")
def remove_consumer(stream: StreamArgument, consumer: ConsumerArgument, as_json: JsonOption = False) -> None:
    """Forget a consumer, so that retention no longer waits for it; idempotent. Fails while somebody reads as it."""
    address = _stream_address(stream)
    with forebay.Admin(chosen()) as admin:
        info = admin.stream(address)
        names = [known.name for known in info.consumers]
        existed = consumer in names
        admin.remove_consumer(address, consumer)
    near = [] if existed else near_names(consumer, names)
    if as_json:
        print_json({"stream": address.path, "removed": consumer, "existed": existed, "near": near})
    elif existed:
        waits = consumer in info.retention.consumers
        note = "; the retention still names it, so steps wait until it is back" if waits else ""
        _say(f"{address.path}: consumer {consumer} removed{note}")
    else:
        _say(f"{address.path}: there was no consumer {consumer}{near_text(consumer, names)}")


@_consumer_app.command("reset", epilog="Example: forebay consumer reset run1/flow render")
def reset_consumer(stream: StreamArgument, consumer: ConsumerArgument, as_json: JsonOption = False) -> None:
    """Move a consumer back to the oldest kept step. Fails while somebody reads as it."""
    _move(stream, consumer, None, as_json=as_json)


@_consumer_app.command("seek", epilog="Example: forebay consumer seek run1/flow render 100")
def seek_consumer(
    stream: StreamArgument,
    consumer: ConsumerArgument,
    step: Annotated[int, typer.Argument(metavar="STEP", min=0, help="The step that it gets next, or the first after.")],
    as_json: JsonOption = False,
) -> None:
    """Move a consumer to a step, back or forth. Fails while somebody reads as it."""
    _move(stream, consumer, step, as_json=as_json)


def _move(stream: str, consumer: str, step: int | None, *, as_json: bool) -> None:
    address = _stream_address(stream)
    with forebay.Admin(chosen()) as admin:
        before = _consumer(admin.stream(address), address, consumer)
        with forebay.open(address, instance=chosen(), timeout=0) as source:
            if step is None:
                kept = source.steps()
                step = kept[0].number if kept else before.position
            source.seek(step, consumer=consumer)
        after = _consumer(admin.stream(address), address, consumer)
    if as_json:
        print_json({"stream": address.path, "consumer": after.as_dict(), "position_before": before.position})
    else:
        _say(
            f"{address.path}: consumer {consumer} continues at step {after.position}, was {before.position}; "
            f"lag {after.lag_steps}"
        )


def _consumer(info: StreamInfo, address: Address, name: str) -> ConsumerInfo:
    for known in info.consumers:
        if known.name == name:
            return known
    names = [known.name for known in info.consumers]
    known_text = ", ".join(names) or "none"
    raise NotFoundError(f"there is no consumer {name!r}; known are: {known_text}", f"stream {address.path}")


def _stream_address(text: str) -> Address:
    address = Address.parse(text)
    if address.step is not None:
        raise InvalidArgumentError(f"{text!r} names a step, and a stream is wanted: {address.path}")
    return address


def _say(text: str) -> None:
    console().print(Text(text), soft_wrap=True)
