# SPDX-License-Identifier: Apache-2.0
"""Waits for a stage with a progress bar, also across restarts of the manager; Ctrl-C cancels the stage."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from forebay.cli.failures import ExitStatus, fail_with
from forebay.cli.output import console, error_console, print_json
from forebay.errors import ErrorCode, ForebayError
from forebay.instance import Instance
from forebay.manager.client import ManagerClient, follow_stage
from forebay.manager.records import StageStatus
from forebay.manager.stage_state import StageState
from forebay.sizes import format_size

__all__ = ["await_stage", "stage_title"]

Json = dict[str, Any]

_NUMBERS_SHOWN_MAX = 10


class _StageFailedError(ForebayError, RuntimeError):
    """What a stage told of its failure."""

    def __init__(self, failure: Json) -> None:
        super().__init__(failure["what"], failure["where"])
        try:
            self.code = ErrorCode(failure["code"])  # type: ignore[misc]
        except ValueError:  # "killed" and "internal", which no library call raises
            self.code = ErrorCode.FAILED  # type: ignore[misc]


def await_stage(instance: Instance, row: StageStatus, *, as_json: bool) -> ExitStatus:
    """Shows the stage's progress until it is over, tells how it ended, and returns the exit status."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[item]}"),
    )
    err = error_console()
    bar = Progress(*columns, console=err, disable=as_json or not err.is_terminal, transient=True)
    cancelled_here = False
    with bar:
        task = bar.add_task(f"stage {row.id}", total=None, done="", item="")
        shown_notes = 0

        def show(newest: StageStatus) -> None:
            nonlocal shown_notes
            for note in newest.notes[shown_notes:]:
                if not as_json:
                    err.print(Text(f"note: {note}"), soft_wrap=True)
            shown_notes = len(newest.notes)
            if newest.failure is not None and newest.state == StageState.QUEUED and not as_json:
                bar.update(task, item=f"tried again soon: {newest.failure['what']}")
            progress = newest.progress
            if progress:
                bar.update(task, done=_done_text(progress), item=progress["item"], **_bar_of(progress))

        while True:
            try:
                row = follow_stage(instance, row.id, show)
                break
            except KeyboardInterrupt:
                cancelled_here = True
                with ManagerClient(instance) as manager:
                    row = manager.cancel(row.id)
    return _tell(row, cancelled_here=cancelled_here, as_json=as_json)


def stage_title(job: Json) -> str:
    """What a stage does, in one line."""
    if job["kind"] == "steps":
        chosen = [f"every {job['every']}"] if job["every"] else []
        chosen += [f"steps {job['steps']}"] if job["steps"] else []
        chosen += ["follow"] if job["follow"] else []
        suffix = f" ({', '.join(chosen)})" if chosen else ""
        # A stage of an earlier version has no `into`.
        place = f"{job['destination'].rstrip('/')}/{job['into']}" if job.get("into") else job["destination"]
        return f"{job['stream']} → {place}{suffix}"
    inside = f"{job['reservation']}:{job['path']}"
    if job["kind"] == "matched-files":
        chosen = [f"every {job['every']}"] if job["every"] else []
        chosen += [f"multiple of {job['multiple_of']}"] if job["multiple_of"] else []
        chosen += ["follow"] if job["follow"] else []
        suffix = f" ({', '.join(chosen)})" if chosen else ""
        return f"{inside.rstrip('/')}{'' if inside.endswith(':') else '/'}{job['match']} → {job['destination']}{suffix}"
    return f"{job['outside']} → {inside}" if job["inward"] else f"{inside} → {job['outside']}"


def _tell(row: StageStatus, *, cancelled_here: bool, as_json: bool) -> ExitStatus:
    state = row.state
    failure = row.failure if state is StageState.FAILED else None
    if as_json:
        error = {} if failure is None else {"error": {key: failure[key] for key in ("code", "what", "where")}}
        print_json({"stage": row.as_dict()} | error)
    if state is StageState.SUCCEEDED:
        if not as_json:
            console().print(Text(_result_text(row)), soft_wrap=True)
        return ExitStatus.OK
    if state in (StageState.CANCELLED, StageState.REVOKED):
        if not as_json:
            error_console().print(f"stage {row.id} was {state.value}; the same command takes it up again", markup=False)
        return ExitStatus.CTRL_C if cancelled_here else ExitStatus.ERROR
    assert failure is not None
    if not as_json:
        fail_with(_StageFailedError(failure), as_json=False)
    return ExitStatus.INTERRUPTED_STREAM if failure["stream_broken"] else ExitStatus.ERROR


def _result_text(row: StageStatus) -> str:
    result = row.result
    assert result is not None
    if row.job["kind"] == "steps":
        kept = f", {_length(result, 'kept')} were there already" if result["kept"] else ""
        lost = f", {_length(result, 'lost')} were gone ({_numbers(result, 'lost')})" if result["lost"] else ""
        count = _length(result, "staged")
        return f"{count} step{'' if count == 1 else 's'} staged out{kept}{lost}; receipt: {result['receipt']}"
    kept = f", {result['kept']} were there already" if result["kept"] else ""
    if row.job["kind"] == "matched-files":
        missed = f", {_length(result, 'missed')} were gone" if result["missed"] else ""
        left = f", {_length(result, 'left')} were not complete" if result["left"] else ""
        return (
            f"{result['staged']} of {result['appeared']} names staged out{kept}{missed}{left}; "
            f"receipt: forebay receipt {row.id}"
        )
    copied = f"{result['copied']} file{'' if result['copied'] == 1 else 's'} copied"
    return f"{copied}{kept}; receipt: forebay receipt {row.id}"


def _numbers(result: Json, name: str) -> str:
    """The first of a list of numbers."""
    more = _length(result, name) - _NUMBERS_SHOWN_MAX
    return ", ".join(map(str, result[name][:_NUMBERS_SHOWN_MAX])) + (f" and {more} more" if more > 0 else "")


def _length(result: Json, name: str) -> int:
    """Of a list, which may have been cut."""
    length: int = result.get("cut", {}).get(name, len(result[name]))
    return length


def _done_text(progress: Json) -> str:
    items = (
        progress["items_done"]
        if progress["items_total"] is None
        else f"{progress['items_done']}/{progress['items_total']}"
    )
    return f"{items}  {format_size(progress['bytes_done'])}"


def _bar_of(progress: Json) -> Json:
    if progress["bytes_total"]:
        return {"total": progress["bytes_total"], "completed": min(progress["bytes_done"], progress["bytes_total"])}
    return {"total": progress["items_total"], "completed": progress["items_done"]}
