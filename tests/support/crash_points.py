# SPDX-License-Identifier: Apache-2.0
"""Accidents of the stager's process at each change that it makes to files, one run for each: ended as SIGKILL does, or
told by the system that the change failed. Those of the sweep's share, that is.

A run without accident says which changes there are; each later run has its accident at one of them. Threads of a stager
take turns as they like, so a change is known not by its number in the run, but as the N-th of its kind to its file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from forebay.manager.jobs import Job
from tests.support.file_changes import Accident, Change, Moment, deaths, failures
from tests.support.sweeps import Sweep
from tests.support.watched_stager import Run, WatchedStager

__all__ = ["crash_points", "failure_points"]

#: One of these tells the user what the system said.
_REASONS = {
    Moment.FAILING: (os.strerror(errno.EIO),),
    Moment.FULL: (os.strerror(errno.ENOSPC), "is full"),
}


def crash_points(
    stager: WatchedStager,
    job: Job,
    folder: Path,
    prepare: Callable[[], object],
    check: Callable[[], object],
    sweep: Sweep,
) -> list[Change]:
    """Runs ``prepare``, then the stager, which dies at a change in the folder, then ``check``; so for a share of them.

    Returns the changes of the run without accident. Each is deadly before it happens; those that write bytes also
    with half of them written, and those that rename or remove also behind it.
    """
    changes = _changes(stager, job, folder, prepare)
    check()
    for death in sweep.among(list(deaths(changes))):
        prepare()
        run = stager.run(job, folder, death)
        assert run.status == -signal.SIGKILL, (
            f"the process ended with status {run.status} instead of dying {death}:\n{run.output}"
        )
        with _told_of(death, run):
            check()
    return changes


def failure_points(
    stager: WatchedStager,
    job: Job,
    folder: Path,
    prepare: Callable[[], object],
    check: Callable[[], object],
    check_complete: Callable[[], object],
    sweep: Sweep,
) -> None:
    """Runs ``prepare``, then the stager, which is told that a change in the folder failed, then ``check``.

    Each change fails once for itself; at those that take space the disk is full from then on, too. A run that succeeds
    all the same must have done everything, which ``check_complete`` looks at; one that fails must say why. What could
    not be synced has its hidden name still, or the next run syncs it.
    """
    for failure in sweep.among(list(failures(_changes(stager, job, folder, prepare)))):
        prepare()
        run = stager.run(job, folder, failure)
        with _told_of(failure, run):
            assert failure.change in run.changes
            if run.status == 0:
                assert failure.change.kind != "sync"
                check_complete()
            else:
                _check_reason(failure, run)
            check()
            if failure.change.kind == "sync" and not _has_hidden_name(failure.change, run.changes):
                prepare()
                assert stager.run(job, folder, failure).status == 1
                again = stager.run(job, folder)
                assert again.status == 0
                assert any((change.kind, change.path) == ("sync", failure.change.path) for change in again.changes)


def _changes(stager: WatchedStager, job: Job, folder: Path, prepare: Callable[[], object]) -> list[Change]:
    """Those of a run without accident."""
    prepare()
    run = stager.run(job, folder)
    assert run.status == 0, run.output
    return run.changes


@contextlib.contextmanager
def _told_of(accident: Accident, run: Run) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        last = "".join(f"\n  {change}" for change in run.changes[-10:])
        error.add_note(f"after an accident {accident}; the last changes:{last}\nthe output:\n{run.output}")
        raise


def _check_reason(failure: Accident, run: Run) -> None:
    """The stage ended by itself, and its last event says what failed, and where."""
    assert run.status == 1
    events = [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]
    told = events[-1]["failure"]
    assert told["code"] in ("io_error", "no_space")
    assert told["where"]
    reasons = _REASONS[failure.moment]
    if ".partial-" in failure.change.path:
        # ADIOS2's streams do not know what the system said: they name the file.
        reasons = (*reasons, ".partial-")
    assert any(text in told["what"] for text in reasons)


def _has_hidden_name(sync: Change, changes: list[Change]) -> bool:
    """True if what could not be synced has no other name yet; then it must not have got one later."""
    before, hidden, _ = sync.path.partition(".partial-????????")
    later = changes[changes.index(sync) :]
    assert not any(change.kind == "rename" and change.path == before + hidden for change in later)
    return bool(hidden)
