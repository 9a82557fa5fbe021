# SPDX-License-Identifier: Apache-2.0
"""`forebay follow`: makes any program a consumer of a stream, by a command for each step."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer
import typer.core
from rich.text import Text

from forebay.cli.arguments import StreamArgument
from forebay.cli.chosen import chosen
from forebay.cli.ensemble_commands import EnsembleCommands
from forebay.cli.failures import ExitStatus
from forebay.cli.following import (
    RunOption,
    TimeoutOption,
    WaitForWriterOption,
    opened_to_follow,
    tells_interruption,
)
from forebay.cli.output import JsonOption, error_console, print_json
from forebay.cli.step_commands import CommandTurns, StepCommands
from forebay.ensemble import StreamPattern
from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.records import Address

__all__ = ["register"]

_EXEC = "--exec"
_FAILURES_SHOWN = 3
_ENDED_BY = (signal.SIGTERM, signal.SIGHUP)


class _FollowCommand(typer.core.TyperCommand):
    """What stands after --exec is the command, with all its options, as for `find -exec`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if _EXEC in args[:-1]:
            place = args.index(_EXEC)
            args = [*args[:place], *(f"{_EXEC}={word}" for word in args[place + 1 :])]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "follow", cls=_FollowCommand, epilog="Example: forebay follow run1/flow --every 10 --exec python plot.py {step}"
    )(follow)


def follow(
    stream: StreamArgument,
    words: Annotated[
        list[str],
        typer.Option(
            _EXEC,
            metavar="COMMAND...",
            help="The program and its arguments, up to the end of the line. {step} becomes the step's number, "
            "{address} its address, forebay://RES/STREAM@STEP, {stream} the stream's name.",
        ),
    ],
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name under which the server keeps the position.")
    ] = "follow",
    every: Annotated[
        int, typer.Option("--every", min=1, metavar="N", help="Run it for steps whose number N divides.")
    ] = 1,
    latest: Annotated[
        bool, typer.Option("--latest", help="Take the newest step each time, and skip those in between.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Run up to N commands at once.")] = 1,
    members: Annotated[
        int | None,
        typer.Option(
            "--members",
            min=1,
            metavar="N",
            help="With a pattern: end when N streams have joined and all have ended. Default: when all that are there "
            "have ended.",
        ),
    ] = None,
    timeout_seconds: TimeoutOption = None,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    as_json: JsonOption = False,
) -> int:
    """Run a command for each step of a stream as it commits, until the stream ends.

    A step is done when its command ended with status 0. If one fails, no further one begins, and the exit status is 1:
    the same line then continues at the step that failed. It continues where it was, too, if it is killed. While a
    command runs, its step is kept. With --json, what the commands print goes to standard error.

    A pattern, 'RES/member-*' in quotes, follows all streams whose names match; those that begin meanwhile join.
    """
    if StreamPattern.is_one(stream):
        if run_name or wait_for_writer:
            raise InvalidArgumentError("--run and --wait-for-writer are for one stream; a pattern takes what comes")
        return _follow_all(stream, words, consumer, every, latest, jobs, members, timeout_seconds, as_json)
    if members is not None:
        raise InvalidArgumentError("--members is for a pattern of streams, for example 'run1/member-*'")
    address = Address.parse(stream)
    if address.step is not None:
        raise InvalidArgumentError(f"{stream!r} names a step: name the stream, {address.path}")
    _check(words, consumer)
    commands = StepCommands(
        words,
        f"forebay://{address.server}/{address.path}" if address.server else f"forebay://{address.path}",
        _environment(),
        turns=CommandTurns(jobs),
        every=every,
        output=sys.stderr.fileno() if as_json else None,
    )
    with (
        opened_to_follow(stream, timeout_seconds, run_name, wait_for_writer) as source,
        source.follow(consumer, timeout=timeout_seconds, ack="manual", latest_only=latest) as follower,
        tells_interruption() as outcome,
    ):
        if (number := asyncio.run(_until_ended(lambda: commands.follow(follower)))) is not None:
            return _ended_by(number)
    for failure in commands.failures[:_FAILURES_SHOWN]:
        _say(f"error: step {failure.step}: {failure.reason}; the same line continues at the first step not done")
    if as_json:
        print_json(
            {
                "stream": address.path,
                "consumer": consumer,
                "succeeded": commands.succeeded,
                "failed": [{"step": failure.step, "reason": failure.reason} for failure in commands.failures],
                "last": commands.last,
            }
        )
    else:
        passed = "no step was passed" if commands.last is None else f"passed up to step {commands.last}"
        _say(f"{address.path}: {commands.succeeded} commands succeeded; consumer {consumer}: {passed}")
    return int(ExitStatus.ERROR if commands.failures else outcome.status)


def _follow_all(
    pattern: str,
    words: list[str],
    consumer: str,
    every: int,
    latest: bool,
    jobs: int,
    members: int | None,
    timeout_seconds: float | None,
    as_json: bool,
) -> int:
    wanted = StreamPattern.parse(pattern)
    _check(words, consumer)
    commands = EnsembleCommands(
        wanted,
        words,
        _environment(),
        instance=chosen(),
        consumer=consumer,
        jobs=jobs,
        every=every,
        latest=latest,
        members=members,
        timeout=timeout_seconds,
        output=sys.stderr.fileno() if as_json else None,
    )
    with tells_interruption() as outcome:
        if (number := asyncio.run(_until_ended(commands.follow))) is not None:
            return _ended_by(number)
    for failure in commands.failures[:_FAILURES_SHOWN]:
        _say(
            f"error: {failure.stream}, step {failure.step}: {failure.reason}; the same line continues at the first "
            "step not done"
        )
    streams = {name: done.last for name, done in sorted(commands.of_streams.items())}
    if as_json:
        print_json(
            {
                "streams": streams,
                "consumer": consumer,
                "succeeded": commands.succeeded,
                "failed": [
                    {"stream": failure.stream, "step": failure.step, "reason": failure.reason}
                    for failure in commands.failures
                ],
            }
        )
    else:
        _say(f"{wanted}: streams {len(streams)}, commands that succeeded {commands.succeeded}; consumer {consumer}")
    return int(ExitStatus.ERROR if commands.failures else outcome.status)


def _check(words: list[str], consumer: str) -> None:
    if not consumer:
        raise InvalidArgumentError("--consumer names nobody: give a name under which the position is kept")
    if shutil.which(words[0]) is None:
        raise NotFoundError(f"there is no program {words[0]!r} that can be run; see what stands after {_EXEC}")


def _ended_by(number: int) -> int:
    _say(f"ended by {signal.Signals(number).name}; the same line continues where it was")
    return 128 + number


async def _until_ended(work: Callable[[], Coroutine[Any, Any, None]]) -> int | None:
    """The signal that ended it; None: the stream, or a command that failed."""
    received: list[int] = []
    running = asyncio.create_task(work())

    def end(number: int) -> None:
        received.append(number)
        running.cancel()

    loop = asyncio.get_running_loop()
    for number in _ENDED_BY:
        loop.add_signal_handler(number, end, number)
    try:
        await running
    except asyncio.CancelledError:
        if not received:  # Ctrl-C
            raise
        return received[0]
    finally:
        for number in _ENDED_BY:
            loop.remove_signal_handler(number)
    return None


def _environment() -> dict[str, str]:
    """Commands find the same instance, also where --root named it."""
    instance = chosen()
    if instance is None:
        return dict(os.environ)
    return os.environ | {"FOREBAY_ROOT": str(instance.root), "FOREBAY_SOCKET": "", "FOREBAY_SERVER": ""}


def _say(text: str) -> None:
    error_console().print(Text(text), soft_wrap=True)
