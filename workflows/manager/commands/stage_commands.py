# SPDX-License-Identifier: Apache-2.0
"""`forebay stage-in`, `forebay stage-out` and `forebay stages`."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen_or_current
from forebay.cli.failures import ExitStatus
from forebay.cli.following import RunOption
from forebay.cli.matched_options import (
    CompleteOption,
    ExcludeOption,
    MatchedOptions,
    MatchOption,
    MultipleOfOption,
    UntilOption,
    WaitClosedOption,
    wait_closed_seconds,
)
from forebay.cli.output import JsonOption, console, format_time, print_fields, print_json, print_table
from forebay.errors import InvalidArgumentError
from forebay.file_address import FileAddress
from forebay.manager.client import ManagerClient
from forebay.manager.jobs import FilesJob, Job, MatchedFilesJob, StepsJob
from forebay.manager.stage_state import StageState
from forebay.records import Address
from forebay.sizes import format_size
from forebay.step_selection import StepSelection
from forebay.workflows.manager.commands.receipt_command import write_receipt
from forebay.workflows.manager.commands.stage_waiting import await_stage, stage_title
from forebay.workflows.staging.formats import FORMAT_NAMES, format_of_name

__all__ = ["stage_in", "stage_out"]

_ReceiptOption = Annotated[
    Path | None,
    typer.Option("--receipt", metavar="FILE", help="Also write the receipt into FILE, which must not be there."),
]
_AsRootOption = Annotated[
    bool,
    typer.Option(
        "--as-root",
        help="Root only: open the end outside the reservation with root's rights. Without it root's stage runs as the "
        "reservation's owner.",
    ),
]
_AclsOption = Annotated[
    bool, typer.Option("--acls", help="Carry the access lists of your own files. Without it none is carried.")
]
_NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Do not wait: print the stage's number and return.")]

stage_in_app = typer.Typer(add_completion=False)
stage_out_app = typer.Typer(add_completion=False)
stages_app = typer.Typer(add_completion=False, invoke_without_command=True)


@stage_in_app.command(epilog="Example: forebay stage-in inputs run1:inputs")
def stage_in(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A file or a directory.")],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="RES:PATH",
            help="Name of the copy in the reservation. With a slash at the end: the folder to copy into.",
        ),
    ],
    as_root: _AsRootOption = False,
    acls: _AclsOption = False,
    wait_closed: WaitClosedOption = "",
    receipt: _ReceiptOption = None,
    no_wait: _NoWaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a file or a tree into a reservation, verified. An interrupted copy continues when it is run again."""
    place = FileAddress.parse(destination)
    _run(
        FilesJob(
            place.reservation,
            place.path,
            outside=_absolute(source),
            inward=True,
            as_root=as_root,
            acls=acls,
            wait_closed_seconds=wait_closed_seconds(wait_closed),
        ),
        receipt=receipt,
        no_wait=no_wait,
        as_json=as_json,
    )


@stage_out_app.command(epilog="Example: forebay stage-out run1/flow /data/run1 --every 10 --follow")
def stage_out(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RES/STREAM|RES:PATH",
            help="A stream, or a file or directory of a reservation.",
            autocompletion=stream_names,
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DEST",
            help="For steps: a directory. For files: name of the copy, or a folder with a slash at the end.",
        ),
    ],
    every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Only steps whose number is a multiple of N; with --match, the first name of each N that appear.",
        ),
    ] = None,
    steps: Annotated[
        str, typer.Option(metavar="LIST", help="Only these steps, for example 0,5,10:20 (10 to 19) or 100:200:10.")
    ] = "",
    variables: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Only these variables, separated by commas. The steps then do not count as staged."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Continue until the stream ends; with --match, until --until, `forebay stages cancel`, or the last "
            "holder of the reservation has left.",
        ),
    ] = False,
    match: MatchOption = "",
    exclude: ExcludeOption = [],  # noqa: B006 - never changed
    complete: CompleteOption = "",
    multiple_of: MultipleOfOption = None,
    until: UntilOption = "",
    wait_closed: WaitClosedOption = "",
    into: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Put all steps into one output in DEST: run1.bp (BP5), or run1.h5 (HDF5, steps as first dimension).",
        ),
    ] = "",
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMAT_NAMES),
            help="Format of the outputs.",
            show_default=FORMAT_NAMES[0],
        ),
    ] = None,
    consumer: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="With --follow: read under this name, so that the stream's retention can wait for it."
        ),
    ] = "",
    run_name: RunOption = "",
    accept_unchecked: Annotated[
        bool, typer.Option("--accept-unchecked", help="Also copy steps that were written without checksums.")
    ] = False,
    accept_gaps: Annotated[
        bool,
        typer.Option(
            "--accept-gaps",
            help="Do not fail if chosen steps, or names that match, went before they could be staged.",
        ),
    ] = False,
    mark_partial: Annotated[
        bool, typer.Option("--mark-partial", help="With --variables: the steps count as staged.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what is in DEST and comes from elsewhere.")
    ] = False,
    as_root: _AsRootOption = False,
    owner: Annotated[
        str, typer.Option(metavar="USER", help="With --as-root: to whom belongs what is made, by name or number.")
    ] = "",
    group: Annotated[str, typer.Option(metavar="GROUP", help="Likewise, the group.")] = "",
    acls: _AclsOption = False,
    receipt: _ReceiptOption = None,
    no_wait: _NoWaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Copy chosen steps of a stream, or files, out of a reservation, verified and with a receipt.

    An interrupted copy continues when it is run again. With --match, files and folders are taken one by one as they
    become complete: stage-out run1:out /data --match 'chk?????' --every 10 --follow
    """
    for_both = {
        "--every": every is not None,
        "--follow": follow,
        "--accept-gaps": accept_gaps,
        "--replace": replace,
    }
    step_options = {
        "--steps": bool(steps),
        "--variables": variables is not None,
        "--into": bool(into),
        "--format": output_format is not None,
        "--consumer": bool(consumer),
        "--run": bool(run_name),
        "--accept-unchecked": accept_unchecked,
        "--mark-partial": mark_partial,
    }
    root_options = {"--as-root": as_root, "--owner": bool(owner), "--group": bool(group)}
    file_options = {**root_options, "--acls": acls, "--match": bool(match), "--wait-closed": bool(wait_closed)}
    matched = MatchedOptions(match, tuple(exclude), complete, multiple_of, until)
    if not match and matched.given:
        raise InvalidArgumentError(f"{', '.join(matched.given)} goes with --match: stage-out RES:DIR DEST --match GLOB")
    place = FileAddress.find(source)
    job: Job
    if place is not None and match:
        given = [option for option, is_given in (step_options | root_options).items() if is_given]
        if given:
            raise InvalidArgumentError(f"{', '.join(given)} does not go with --match")
        job = matched.job(
            place,
            _absolute(destination),
            every=every,
            follow=follow,
            wait_closed=wait_closed,
            accept_gaps=accept_gaps,
            replace=replace,
            acls=acls,
        )
    elif place is not None:
        given = [option for option, is_given in (for_both | step_options).items() if is_given]
        if given:
            raise InvalidArgumentError(f"{', '.join(given)} is for steps of a stream, and {source!r} names files")
        job = FilesJob(
            place.reservation,
            place.path,
            outside=_absolute(destination),
            inward=False,
            as_root=as_root,
            owner=_number(owner, pwd.getpwnam, "pw_uid", "user"),
            group=_number(group, grp.getgrnam, "gr_gid", "group"),
            acls=acls,
            wait_closed_seconds=wait_closed_seconds(wait_closed),
        )
    else:
        given = [option for option, is_given in file_options.items() if is_given]
        if given:
            raise InvalidArgumentError(f"{', '.join(given)} is for files, and {source!r} names a stream")
        address = Address.parse(source)
        if address.step is not None:
            if steps:
                raise InvalidArgumentError(f"{source!r} names a step already; leave out @{address.step} or --steps")
            steps = str(address.step)
        StepSelection.parse(every, steps)
        if into:
            named = format_of_name(into)
            if output_format not in (None, named):
                raise InvalidArgumentError(
                    f"--into {into} means the format {named}; leave out --format {output_format}"
                )
            output_format = named
        output_format = output_format or FORMAT_NAMES[0]
        if output_format not in FORMAT_NAMES:
            raise InvalidArgumentError(f"there is no format {output_format!r}; known are {', '.join(FORMAT_NAMES)}")
        if consumer and not follow:
            raise InvalidArgumentError("--consumer goes with --follow")
        if run_name and not follow:
            raise InvalidArgumentError("--run goes with --follow: it waits for that run's writers")
        names = tuple(name for name in (variables or "").split(",") if name)
        if variables is not None and not names:
            raise InvalidArgumentError(
                "--variables names none: write for example --variables T,pressure, or leave it out"
            )
        if mark_partial and not names:
            raise InvalidArgumentError("--mark-partial goes with --variables")
        job = StepsJob(
            stream=address.path,
            destination=_absolute(destination),
            every=every,
            steps=steps,
            variables=names,
            follow=follow,
            format=output_format,
            consumer=consumer,
            run=run_name,
            accept_unchecked=accept_unchecked,
            accept_gaps=accept_gaps,
            mark_partial=mark_partial,
            replace=replace,
            into=into,
        )
    _run(job, receipt=receipt, no_wait=no_wait, as_json=as_json)


@stages_app.callback(epilog="Example: forebay stages; forebay stages show 7; forebay stages cancel 7")
def stages(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the stages, show one, or cancel one."""
    if context.invoked_subcommand is not None:
        return
    with ManagerClient(chosen_or_current()) as manager:
        rows = manager.stages()
    if as_json:
        print_json({"stages": [row.as_dict() for row in rows]})
        return
    print_table(
        (">STAGE", "STATE", "WHAT", "PROGRESS", "STARTED"),
        (
            (
                str(row.id),
                row.state,
                stage_title(row.job),
                _progress_text(row.progress),
                format_time(row.started_ns) if row.started_ns else "-",
            )
            for row in rows
        ),
        empty="There are no stages.",
    )


@stages_app.command("show", epilog="Example: forebay stages show 7")
def show_stage(stage: Annotated[int, typer.Argument(help="The stage's number.")], as_json: JsonOption = False) -> None:
    """Show one stage: what it copies, its progress, how it ended."""
    with ManagerClient(chosen_or_current()) as manager:
        row = manager.stage(stage)
    if as_json:
        print_json({"stage": row.as_dict()})
        return
    fields = [("stage", str(row.id)), ("what", stage_title(row.job)), ("state", row.state)]
    fields += [("progress", _progress_text(row.progress)), ("attempts", str(row.attempts))]
    if row.receipt is not None:
        fields.append(("receipt", f"forebay receipt {row.id} (CRC-32C {row.receipt.crc32c})"))
        if row.result is not None and "receipt" in row.result:
            fields.append(("receipt of steps", str(row.result["receipt"])))
    if row.failure is not None:
        fields.append(("failure", f"{row.failure['what']} ({row.failure['where']})"))
    fields += [("note", note) for note in row.notes]
    print_fields(fields)


@stages_app.command("cancel", epilog="Example: forebay stages cancel 7")
def cancel_stage(
    stage: Annotated[int, typer.Argument(help="The stage's number.")], as_json: JsonOption = False
) -> None:
    """Cancel a stage. What it has finished stays. Idempotent.

    One that follows files is asked to end: it takes what is complete, and succeeds. Cancel it again to end it at once.
    """
    with ManagerClient(chosen_or_current()) as manager:
        row = manager.cancel(stage)
    if as_json:
        print_json({"stage": row.as_dict()})
        return
    if row.state == StageState.SUCCEEDED or (row.finished_ns and not row.cancel):
        word = "has already ended"
    elif not row.finished_ns and row.job["kind"] == MatchedFilesJob.kind and row.job["follow"]:
        word = "takes what is complete, and ends; cancel it again to end it at once"
    else:
        word = "is cancelled"
    console().print(f"stage {stage} {word}", markup=False)


def _run(job: Job, *, receipt: Path | None, no_wait: bool, as_json: bool) -> None:
    if no_wait and receipt is not None:
        raise InvalidArgumentError("--receipt waits for the stage; leave out --no-wait, or use `forebay receipt` later")
    instance = chosen_or_current()
    with ManagerClient(instance) as manager:
        row = manager.submit(job)
    if no_wait:
        if as_json:
            print_json({"stage": row.as_dict()})
        else:
            console().print(str(row.id))
        return
    status = await_stage(instance, row, as_json=as_json)
    if status is not ExitStatus.OK:
        raise typer.Exit(int(status))
    if receipt is not None:
        with ManagerClient(instance) as manager:
            write_receipt(manager, row.id, receipt)


def _number(name: str, find: Callable[[str], Any], field: str, kind: str) -> int | None:
    """Of a user or a group, given by name or number; None if none is given."""
    if not name:
        return None
    if re.fullmatch("[0-9]{1,10}", name):
        number = int(name)
        if number < 2**32 - 1:
            return number
    try:
        return int(getattr(find(name), field))
    except KeyError:
        raise InvalidArgumentError(f"there is no {kind} {name[:100]!r} on this machine") from None


def _absolute(path: str) -> str:
    """Absolute, with a slash at the end if there was one; links stay as they are."""
    absolute = os.path.abspath(path)
    return absolute + "/" if path.endswith("/") and absolute != "/" else absolute


def _progress_text(progress: dict[str, Any]) -> str:
    if not progress:
        return "-"
    total = progress["items_total"]
    items = str(progress["items_done"]) if total is None else f"{progress['items_done']}/{total}"
    return f"{items}, {format_size(progress['bytes_done'])}"
