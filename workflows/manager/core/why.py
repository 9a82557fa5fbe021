# SPDX-License-Identifier: Apache-2.0
"""What a reservation, a job or a stage waits for, since when, who holds it, and what ends it: `forebay why`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from forebay.durations import format_duration
from forebay.errors import NotFoundError
from forebay.manager.records import (
    Answer,
    AttachmentRow,
    Drain,
    JobRow,
    JobState,
    QueueRow,
    ReservationRow,
    ReservationState,
    StageRow,
)
from forebay.manager.stage_state import StageState
from forebay.sizes import format_size
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.drains import DrainTable
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.database.queue_table import QueueTable
from forebay.workflows.manager.core.pools.server_name import server_name

__all__ = ["Why"]

_DIGITS_MAX = 18  # of a stage's number

_JOB_WAITS = {
    JobState.SETUP: "its reservation is being made",
    JobState.DATA_IN: "its files are being staged in",
    JobState.PRE_RUN: "all is ready; the scheduler has not started it yet",
    JobState.RUNNING: "nothing: it runs",
    JobState.POST_RUN: "the end of its last processes",
    JobState.DATA_OUT: "its stage-out",
    JobState.DRAINED: "the scheduler's teardown: everything is staged out",
    JobState.GONE: "nothing: it is over, and its reservation is gone",
    JobState.KEPT: "its owner",
    JobState.WAITING: "room",
}
_RESERVATION_WAITS = {
    ReservationState.CREATING: "the server, which is to make it",
    ReservationState.DESTROYING: "the server, which is to destroy it",
    ReservationState.LOST: "its owner: the server does not have it any more",
}


class Why:
    """Usable from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: What a scheduler says of a job that it has not reported to the manager yet.
        self.of_waiting_job: Callable[[str, Peer], list[Answer]] = lambda _token, _peer: []
        #: What a scheduler says of the end of a job that it is to move on; "" if it says nothing.
        self.of_schedulers_turn: Callable[[JobRow], str] = lambda _job: ""
        #: What a scheduler's job should know, although it runs; "" without anything.
        self.note_on: Callable[[JobRow], str] = lambda _job: ""
        #: Since when a server of the pool is away, seconds since 1970; None: it is not.
        self.away_since: Callable[[str], float | None] = lambda _server: None
        self._attachments = AttachmentTable(database)
        self._jobs = JobTable(database)
        self._queue = QueueTable(database)
        self._drains = DrainTable(database)

    def tell(self, what: str, peer: Peer) -> list[Answer]:
        """About everything of that name that the caller may see.

        Raises
        ------
        NotFoundError
            There is nothing.
        """
        answers = list(self._answers(what, peer))
        if not answers:
            raise NotFoundError(
                f"there is no reservation, job or stage {what[:80]} of yours; `forebay status`, `forebay ls` and "
                "`forebay stages` list them"
            )
        return answers

    def visible_attachments(self, peer: Peer) -> list[AttachmentRow]:
        """The caller's, and those to the caller's reservations."""
        return self._attachments.all() if peer.is_administrator else self._attachments.visible_to(peer.uid)

    def _answers(self, what: str, peer: Peer) -> Iterator[Answer]:
        for place in self._queue.all():
            if place.name == what and peer.may_see(place.owner_uid):
                yield _of_place(place, self._drains.of(server_name()))
        reservation = self._database.reservation(what)
        if reservation is not None and peer.may_see(reservation.owner_uid):
            yield self._of_reservation(reservation)
            yield from self._of_servers(reservation)
        if not (what.isascii() and what.isdecimal()):
            return
        job = self._jobs.current(what)
        # One whose setup or stage-in failed is over here, and may be held there.
        waiting = self.of_waiting_job(what, peer) if job is None or job.state is JobState.GONE else []
        yield from waiting
        if not waiting and job is not None and peer.may_see(job.owner_uid):
            yield self._of_job(job)
        for stage in self._stages_numbered([int(what)] if len(what) <= _DIGITS_MAX and what[0] != "0" else []):
            if peer.may_see(stage.owner_uid):
                yield _of_stage(stage)

    def _stages_numbered(self, numbers: Iterable[int]) -> Iterator[StageRow]:
        """Those that are there."""
        for number in sorted(numbers):
            with contextlib.suppress(NotFoundError):
                yield self._database.stage(number)

    def _of_reservation(self, row: ReservationRow) -> Answer:
        holders = self._attachments.of(row.name)
        leaving = next((left for left in self._attachments.unattached() if left.reservation == row.name), None)
        stages = [f"stage {stage.id}" for stage in self._database.stage_uses() if stage.reservation == row.name]
        held_by = [_holder_text(holder) for holder in holders] + stages
        since_ns = row.created_ns
        waits_for = _RESERVATION_WAITS.get(row.state, "nothing")
        if leaving is not None:
            since_ns = leaving.since_ns
            waits_for = f"its end: {leaving.reason}" if leaving.reason else "its end, which is under way"
            held_by.append(f"nobody is attached; the last was {leaving.last_holder}")
        lifetime = "persistent" if row.persistent else "job"
        return Answer(
            f"reservation {row.name}",
            f"{row.state.value}, lifetime {lifetime}",
            since_ns,
            waits_for,
            tuple(held_by),
            _end_of_reservation(row, bool(holders), leaving is not None),
        )

    def _of_servers(self, row: ReservationRow) -> Iterator[Answer]:
        """About those that have some of it and are not there."""
        for server in row.servers:
            name = server or server_name()
            subject = f"reservation {row.name} on {name}"
            since = self.away_since(server)
            if row.has_lost(server):
                ends = f"stage out what can be read, then `forebay destroy {row.name}`"
                yield Answer(subject, "lost", None, "nothing: the steps that had a part there are gone", ends=ends)
            elif since is not None:
                whole = server == row.server
                yield Answer(
                    subject,
                    "away",
                    round(since * 1e9),
                    "the server: nothing of the reservation can be used without its home"
                    if whole
                    else "the server: steps that have a part there are unavailable, the others are not",
                    ends=f"`forebay up` on its node; if it will not come back, `forebay servers forget {name} --lost`",
                )

    def _of_job(self, job: JobRow) -> Answer:
        waits_for = _JOB_WAITS[job.state]
        if job.reason:
            waits_for = f"{waits_for}: {job.reason}"
        if note := self.note_on(job):
            waits_for = f"{waits_for}; {note}"
        stages = [
            _stage_text(stage) for stage in self._stages_numbered(job.stages.values()) if not stage.state.is_final
        ]
        ends = ""
        timed = (JobState.SETUP, JobState.DATA_IN, JobState.POST_RUN, JobState.DATA_OUT)
        if job.state in timed and job.deadline_ns is not None:
            ends = f"its end, or {_clock(job.deadline_ns)}: what is not done by then is cancelled"
            if job.state is JobState.SETUP:
                ends = f"its end, or {_clock(job.deadline_ns)}: then the setup fails, with the reason"
            if job.state is JobState.POST_RUN:
                ends = f"their end, or {_clock(job.deadline_ns)}"
        if job.state is JobState.KEPT:
            ends = f"`forebay stage-out {job.reservation}:{job.token}/… DESTINATION`"
            ends += f", then `forebay destroy {job.reservation}`"
            if job.deadline_ns is not None:
                ends += f"; it is deleted at {_clock(job.deadline_ns)}"
        elif job.state is JobState.WAITING:
            ends = "room: the manager then releases the job, and the scheduler sets it up again; or `scancel`"
        elif not job.state.is_final and (job.reason or not ends):
            ends = self.of_schedulers_turn(job) or f"the scheduler: see `scontrol show job {job.token}`"
        return Answer(
            f"job {job.token}, run {job.run}", job.state.value, job.changed_ns, waits_for, tuple(stages), ends
        )


def _of_place(row: QueueRow, drain: Drain | None) -> Answer:
    return Answer(
        f"reservation {row.name}",
        "waiting to be made",
        row.created_ns,
        f"{format_size(row.size_bytes)} of space; {row.ahead} came before{'' if drain is None else f'; {drain.text}'}",
        ends="room in its pool, or the end of `forebay create --wait`"
        if drain is None
        else "`forebay undrain`, then room in its pool; or the end of `forebay create --wait`",
    )


def _of_stage(row: StageRow) -> Answer:
    since_ns = row.finished_ns or row.started_ns or row.created_ns
    waits_for = "nothing"
    if row.state is StageState.DEFERRED:
        waits_for = "the end of its job, or its program, which may activate or revoke it"
    elif row.state is StageState.QUEUED:
        waits_for = "a free place among the stages that run"
        if row.failure is not None:
            waits_for = f"its next attempt, after: {row.failure['what']}"
    elif row.state is StageState.FAILED and row.failure is not None:
        waits_for = f"its owner: {row.failure['what']}"
    ends = "" if row.state.is_final else f"`forebay stages cancel {row.id}`"
    return Answer(f"stage {row.id}", row.state.value, since_ns, waits_for, row.notes, ends)


def _clock(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ns / 1e9))


def _holder_text(row: AttachmentRow) -> str:
    since = format_duration((time.time_ns() - row.created_ns) / 1e9)
    if row.pid is not None:
        until = f"until process {row.pid} ends"
    elif row.expires_ns is not None:
        until = f"for another {format_duration((row.expires_ns - time.time_ns()) / 1e9)}"
    elif row.kind == "job":
        until = "until the job is over"
    else:
        until = "until it is detached"
    return f"{row.holder} (user {row.owner_uid}), attached for {since}, {until}"


def _stage_text(row: StageRow) -> str:
    done = row.progress.get("items_done")
    total = row.progress.get("items_total")
    progress = "" if done is None else f", {done}{'' if total is None else f' of {total}'} done"
    return f"stage {row.id} ({row.state.value}{progress})"


def _end_of_reservation(row: ReservationRow, attached: bool, leaving: bool) -> str:
    if leaving:
        return "it is destroyed as soon as nothing is in the way, unless somebody attaches to it"
    if row.persistent:
        return f"`forebay destroy {row.name}`"
    if attached:
        return "it is destroyed when the last of them detaches"
    return f"`forebay destroy {row.name}`, or `forebay down`; once attached to: its last detach"
