# SPDX-License-Identifier: Apache-2.0
"""`forebay follow`: makes any program a consumer of a stream or of files, by a command for each step or file."""

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

import forebay
from forebay.cli.arguments import stream_names
from forebay.cli.child_command import ChildCommand
from forebay.cli.chosen import chosen
from forebay.cli.ensemble_commands import EnsembleCommands
from forebay.cli.failures import ExitStatus
from forebay.cli.file_commands import FileCommands
from forebay.cli.following import (
    OnUnavailable,
    OnUnavailableOption,
    RunOption,
    TimeoutOption,
    WaitForWriterOption,
    opened_to_follow,
    say_notice,
    tells_interruption,
)
from forebay.cli.matched_options import (
    CompleteOption,
    ExcludeOption,
    MatchedOptions,
    MatchOption,
    MultipleOfOption,
    UntilOption,
)
from forebay.cli.output import JsonOption, error_console, print_json
from forebay.cli.step_commands import CommandTurns, StepCommands
from forebay.ensemble import StreamPattern
from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.file_address import FileAddress
from forebay.records import Address

__all__ = ["register"]

_EXEC = "--exec"
_FAILURES_SHOWN = 3
_ENDED_BY = (signal.SIGTERM, signal.SIGHUP)

_SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RES/STREAM|RES:DIR",
        help="The stream, for example run1/flow; or a folder of files, for example run1:out.",
        autocompletion=stream_names,
    ),
]


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
    stream: _SourceArgument,
    words: Annotated[
        list[str],
        typer.Option(
            _EXEC,
            metavar="COMMAND...",
            help="The program and its arguments, up to the end of the line. {step} becomes the step's number, "
            "{address} its address, forebay://RES/STREAM@STEP, {stream} the stream's name. Of files: {path}, {name}, "
            "and {number}, which counts names in the order in which they appear.",
        ),
    ],
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name under which the position is kept.")
    ] = "follow",
    every: Annotated[
        int | None,
        typer.Option(
            "--every",
            min=1,
            metavar="N",
            help="Run it for steps whose number N divides; of files, for the first of each N that appear.",
        ),
    ] = None,
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
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    match: MatchOption = "",
    exclude: ExcludeOption = [],  # noqa: B006 - Typer makes a list of its own
    complete: CompleteOption = "",
    multiple_of: MultipleOfOption = None,
    until: UntilOption = "",
    accept_gaps: Annotated[
        bool,
        typer.Option(
            "--accept-gaps",
            help="With --match: do not fail at the end if chosen names went before they could be taken.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Run a command for each step of a stream as it commits, until the stream ends; or for each file that appears.

    A step is done when its command ended with status 0. If one fails, no further one begins, and the exit status is 1:
    the same line then continues at the step that failed. It continues where it was, too, if it is killed. While a
    command runs, its step is kept. With --json, what the commands print goes to standard error.

    A pattern, 'RES/member-*' in quotes, follows all streams whose names match; those that begin meanwhile join.

    Files and folders, as soon as they are whole: follow run1:out --match 'plt?????' --until finished --exec plot {path}
    """
    matched = MatchedOptions(match, tuple(exclude), complete, multiple_of, until)
    if (place := FileAddress.find(stream)) is not None:
        of_streams = {
            "--latest": latest,
            "--members": members is not None,
            "--run": bool(run_name),
            "--wait-for-writer": wait_for_writer,
            "--on-unavailable": on_unavailable is not OnUnavailable.WAIT,
        }
        if given := [option for option, is_given in of_streams.items() if is_given]:
            raise InvalidArgumentError(f"{', '.join(given)} is for steps of a stream, and {stream!r} names files")
        if not match:
            raise InvalidArgumentError(f"say which names of {stream} are followed: --match GLOB, such as 'plt?????'")
        return _follow_files(place, matched, words, consumer, every, jobs, timeout_seconds, accept_gaps, as_json)
    of_files = [*(["--match"] if match else []), *matched.given, *(["--accept-gaps"] if accept_gaps else [])]
    if of_files:
        raise InvalidArgumentError(f"{', '.join(of_files)} is for files, RES:DIR, and {stream!r} names a stream")
    every = every or 1
    if StreamPattern.is_one(stream):
        if run_name or wait_for_writer or on_unavailable is not OnUnavailable.WAIT:
            raise InvalidArgumentError(
                "--run, --wait-for-writer and --on-unavailable are for one stream; a pattern takes what comes"
            )
        return _follow_all(stream, words, consumer, every, latest, jobs, members, timeout_seconds, as_json)
    if members is not None:
        raise InvalidArgumentError("--members is for a pattern of streams, for example 'run1/member-*'")
    address = Address.parse(stream)
    if address.step is not None:
        raise InvalidArgumentError(f"{stream!r} names a step: name the stream, {address.path}")
    _check(words, consumer)
    commands = StepCommands(
        _command(words, as_json),
        f"forebay://{address.server}/{address.path}" if address.server else f"forebay://{address.path}",
        turns=CommandTurns(jobs),
        every=every,
    )
    with (
        opened_to_follow(stream, timeout_seconds, run_name, wait_for_writer, on_unavailable) as source,
        source.follow(
            consumer, timeout=timeout_seconds, ack="manual", latest_only=latest, on_notice=say_notice
        ) as follower,
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
        _command(words, as_json),
        instance=chosen(),
        consumer=consumer,
        jobs=jobs,
        every=every,
        latest=latest,
        members=members,
        timeout=timeout_seconds,
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


def _follow_files(
    place: FileAddress,
    matched: MatchedOptions,
    words: list[str],
    consumer: str,
    every: int | None,
    jobs: int,
    timeout_seconds: float | None,
    accept_gaps: bool,
    as_json: bool,
) -> int:
    _check(words, consumer)
    commands = FileCommands(_command(words, as_json), jobs)
    with forebay.follow_files(
        str(place),
        matched.match,
        consumer,
        instance=chosen(),
        exclude=matched.exclude,
        complete=matched.complete or "rename",
        every=every,
        multiple_of=matched.multiple_of,
        until=matched.until,
        timeout=timeout_seconds,
        ack="manual",
        accept_gaps=accept_gaps,
        on_notice=lambda text: _say(f"note: {text}"),
    ) as follower:
        if (number := asyncio.run(_until_ended(lambda: commands.follow(follower)))) is not None:
            return _ended_by(number)
    for failure in commands.failures[:_FAILURES_SHOWN]:
        _say(f"error: {failure.name}: {failure.reason}; the same line takes it again, and goes on")
    if follower.left:
        _say(f"note: not complete at the end, and left: {', '.join(follower.left)}")
    if as_json:
        print_json(
            {
                "source": str(place),
                "consumer": consumer,
                "succeeded": commands.succeeded,
                "failed": [{"name": failure.name, "reason": failure.reason} for failure in commands.failures],
                "left": follower.left,
                "ended_by": follower.ended_by,
            }
        )
    else:
        _say(f"{place}: {commands.succeeded} commands succeeded; consumer {consumer}")
    return int(ExitStatus.ERROR if commands.failures else ExitStatus.OK)


def _command(words: list[str], as_json: bool) -> ChildCommand:
    return ChildCommand(words, _environment(), sys.stderr.fileno() if as_json else None)


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
