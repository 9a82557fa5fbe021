# SPDX-License-Identifier: Apache-2.0
"""Ending the stager's process, as SIGKILL does, at each change that it makes to files: one run for each.

A run without accident says which changes there are; each later run dies at one of them. Threads of a stager take turns
as they like, so a change is known not by its number in the run, but as the N-th of its kind to its file.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from forebay.workflows.staging.job import Job
from tests.support.watched_stager import Change, Death, Moment, WatchedStager

__all__ = ["crash_points"]

#: After these, a stager may say something to the server before it makes the next change. Behind any other is the same
#: as before the next one.
_FOLLOWED_BY_WORDS = frozenset({"remove", "rename"})


def crash_points(
    stager: WatchedStager,
    job: Job,
    folder: Path,
    prepare: Callable[[], object],
    check: Callable[[], object],
) -> list[Change]:
    """Runs ``prepare``, then the stager, which dies at a change in the folder, then ``check``; so for every change.

    Returns the changes of the run without accident. Each was deadly before it happened; those that write bytes also
    with half of them written, and those that rename or remove also behind it.
    """
    prepare()
    whole = stager.run(job, folder)
    assert whole.status == 0, whole.output
    check()
    for death in _deaths(whole.changes):
        prepare()
        run = stager.run(job, folder, death)
        assert run.status == -signal.SIGKILL, (
            f"the process ended with status {run.status} instead of dying {death}:\n{run.output}"
        )
        try:
            check()
        except BaseException as error:
            last = "".join(f"\n  {change}" for change in run.changes[-10:])
            error.add_note(f"after a death {death}; the last changes:{last}")
            raise
    return whole.changes


def _deaths(changes: list[Change]) -> Iterator[Death]:
    for change in changes:
        yield Death(change, Moment.BEFORE)
        if change.kind == "write":
            yield Death(change, Moment.HALFWAY)
        elif change.kind in _FOLLOWED_BY_WORDS:
            yield Death(change, Moment.BEHIND)
