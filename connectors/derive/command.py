# SPDX-License-Identifier: Apache-2.0
"""`forebay derive`: a stream from another one, computed while both are written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.status import Status
from rich.text import Text

import forebay
from forebay.cli.arguments import stream_names
from forebay.cli.following import (
    OnUnavailable,
    OnUnavailableOption,
    RunOption,
    TimeoutOption,
    WaitForWriterOption,
    needs_packages,
    opened_to_follow,
    say_notice,
    tells_interruption,
)
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.connectors.derive.expression import Expression, parse_alias
from forebay.errors import InvalidArgumentError

if TYPE_CHECKING:
    from forebay import Step
    from forebay.connectors.derive.derivation import Progress, SkippedSteps

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("derive", epilog="Example: forebay derive run1/flow run1/energy --expr 'energy = u*u + v*v + w*w'")
def derive_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RES/STREAM", help="What to derive from, for example run1/flow.", autocompletion=stream_names
        ),
    ],
    output: Annotated[str, typer.Argument(metavar="RES/NAME", help="The derived stream, for example run1/speed.")],
    expressions: Annotated[
        list[str] | None,
        typer.Option(
            "--expr", metavar="'NAME = EXPRESSION'", help="A result, element by element. May be given several times."
        ),
    ] = None,
    aliases: Annotated[
        list[str] | None,
        typer.Option("--let", metavar="NAME=VARIABLE", help="A short name for expressions, for example u=velocity/u."),
    ] = None,
    variables: Annotated[
        str, typer.Option("--variables", metavar="NAME,NAME", help="Only these variables; default: all.")
    ] = "",
    function: Annotated[
        str,
        typer.Option(
            "--with", metavar="MODULE.py:FUNCTION", help="A function of yours: a step's arrays in, new ones out."
        ),
    ] = "",
    subset: Annotated[
        str, typer.Option("--subset", metavar="RANGES", help="A box: 0:64,:,16:32, or by names, z=0:64,x=16:32.")
    ] = "",
    stride: Annotated[
        str, typer.Option("--stride", metavar="N|N,N,N", help="Each n-th element along all, or each, dimensions.")
    ] = "",
    precision: Annotated[
        str, typer.Option("--precision", metavar="float32|bits=N", help="Fewer bytes an element; also bits=N:LOW:HIGH.")
    ] = "",
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Minimum, maximum, mean, deviation and number in place of the arrays.")
    ] = False,
    histograms: Annotated[
        list[str] | None,
        typer.Option("--histogram", metavar="NAME:BINS", help="In place of the arrays; also NAME:BINS:LOW:HIGH."),
    ] = None,
    consumer: Annotated[
        str,
        typer.Option("--consumer", metavar="NAME", help="Name that the source's retention waits for; default: none."),
    ] = "",
    latest: Annotated[
        bool, typer.Option("--latest", help="Take the newest step each time, and skip those in between.")
    ] = False,
    retention: Annotated[
        str,
        typer.Option("--retention", metavar="RULE", help="Of the derived stream, such as last:10; default: all."),
    ] = "",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=64,
            metavar="N",
            help="Threads; default: half of the processors, 4 at most. With --on: steps at once; default: 4.",
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            "--on", metavar="dask://HOST:PORT|ray://HOST:PORT", help="A cluster that computes; default: this process."
        ),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Begin the derived stream anew, whatever it has.")] = False,
    timeout_seconds: TimeoutOption = None,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    as_json: JsonOption = False,
) -> int:
    """Derive a stream from another one while that is written, until it ends.

    The derived steps have the numbers and the blocks of their sources, and say what they come from. An expression takes
    variables, numbers, + - * / **, comparisons, & | ^ ~, and functions such as sqrt, exp, sin and where(CONDITION, YES,
    NO). The other operations follow it, in the order in which they stand below. Started again, the same line continues
    where it was. The producer never waits: steps that it drops before they were read are skipped, and told.
    """
    names = dict(parse_alias(text) for text in aliases or ())
    for text in expressions or ():
        Expression.parse(text, names)  # a mistake is told before the stream is waited for
    asked = (expressions, variables, function, subset, stride, precision, statistics, histograms)
    if not any(asked):
        raise InvalidArgumentError("nothing is to be derived: give --expr, or another operation, or --variables")
    forebay.Address.parse(output)
    if expressions:
        needs_packages("an expression", "derive", "numexpr")
    from forebay.connectors.derive.derivation import Progress
    from forebay.connectors.derive.deriving import derive
    from forebay.connectors.derive.making import check_cluster

    if cluster:
        check_cluster(cluster)
    messages = error_console()
    progress = Progress()
    status = Status("waiting for the first step", console=messages)

    def show(now: Progress, step: Step) -> None:
        nonlocal progress
        progress = now
        status.update(f"step {step.number}: {now.steps} derived, {now.skipped} skipped")

    def skipped(steps: SkippedSteps) -> None:
        if not as_json:
            messages.print(Text(_skipped_text(steps)), soft_wrap=True)

    with (
        opened_to_follow(source, timeout_seconds, run_name, wait_for_writer, on_unavailable) as stream,
        tells_interruption() as outcome,
    ):
        if messages.is_terminal and not as_json:
            status.start()
        try:
            progress = derive(
                stream,
                output,
                expressions=expressions or (),
                names=names,
                variables=variables.split(",") if variables else None,
                function=function or None,
                subset=subset or None,
                stride=stride or None,
                precision=precision or None,
                statistics=statistics,
                histograms=histograms or (),
                consumer=consumer,
                latest_only=latest,
                timeout=timeout_seconds,
                replace=replace,
                retention=retention or None,
                workers=workers,
                on=cluster or None,
                block_timeout=None,
                on_progress=show,
                on_skip=skipped,
                on_notice=say_notice,
            )
        finally:
            status.stop()
    if as_json:
        print_json(
            {
                "source": source,
                "output": output,
                "derived": progress.steps,
                "last": progress.last,
                "skipped": progress.skipped,
                "skipped_steps": [
                    {"first": one.first, "last": one.last, "count": one.count, "reason": one.reason}
                    for one in progress.skipped_steps
                ],
                "withdrawn": progress.withdrawn,
            }
        )
    else:
        done = "no step yet" if progress.last is None else f"up to step {progress.last}"
        text = f"{output}: {progress.steps} steps derived, {progress.skipped} skipped, {done}"
        console().print(Text(text), soft_wrap=True)
    return int(outcome.status)


def _skipped_text(steps: SkippedSteps) -> str:
    named = f"step {steps.first}" if steps.first == steps.last else f"steps {steps.first} to {steps.last}"
    return f"{named} skipped: {steps.reason}"
