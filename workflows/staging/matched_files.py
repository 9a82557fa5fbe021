# SPDX-License-Identifier: Apache-2.0
"""Staging of names that match, as they appear: chosen ones are copied when they are complete, each whole and verified.

The rules, and what survives which death: docs/design/file-follow.md. `forebay-mover` copies; the log in the destination
remembers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator

import forebay
from forebay.errors import (
    NO_ROOM,
    BusyError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    NotFoundError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from forebay.fail_point import fail_point
from forebay.files.appearing_names import AppearingNames, SeenName
from forebay.files.chosen_names import ChosenNames, Look
from forebay.files.complete_rule import CompleteRule, RuleKind
from forebay.files.follow_log import FollowLog, InDoubt
from forebay.files.name_choice import NameChoice
from forebay.files.open_folder import open_outside
from forebay.instance import InstanceLike
from forebay.manager.jobs import MatchedFilesJob
from forebay.records import ReservationInfo
from forebay.workflows.staging.end_request import EndRequest
from forebay.workflows.staging.file_mover import Json, move, tree_of_stage
from forebay.workflows.staging.placed_copy import is_placed
from forebay.workflows.staging.reporting import Reporter

__all__ = ["LOG_PREFIX", "stage_matched_files"]

LOG_PREFIX = ".forebay-follow-"
_NAMES_SHOWN = 3


class _ChangedMeanwhileError(Exception):
    """What was copied is not what lies there now."""


def stage_matched_files(
    job: MatchedFilesJob, reporter: Reporter, instance: InstanceLike | None = None, ending: EndRequest | None = None
) -> Json:
    """Does the job and returns its result.

    Raises
    ------
    NotFoundError
        The reservation's files are not there (any more); or chosen names went before they could be taken.
    AlreadyExistsError
        The destination has a name that this stage did not put there.
    BusyError
        The same stage runs already.
    RefusedError
        A program still has a file of a chosen name open for writing.
    NoSpaceError, StorageError, CorruptError
        The destination is full, fails, or does not keep what was written.
    InvalidArgumentError, PermissionDeniedError, UnsupportedError
        A rule is none; a path may not be used; `closed` cannot be told there.
    """
    if not os.path.isabs(job.destination):
        raise InvalidArgumentError("the destination has an absolute path", job.destination)
    choice = NameChoice.parse(job.match, job.exclude, job.until, job.every, job.multiple_of)
    rule = CompleteRule.parse(job.complete)
    with forebay.Admin(instance) as admin:
        reservation = admin.reservation(job.reservation, count_files=False)
    files_path = tree_of_stage() or reservation.files_path
    names = AppearingNames(files_path, job.path, choice, rule)
    try:
        with _opened_destination(job, reservation) as (folder, log):
            chosen = ChosenNames(names, choice, log)
            work = _MatchedFiles(job, rule, names, chosen, log, folder, files_path, reporter)
            return work.run(ending or EndRequest())
    finally:
        names.close()


@contextlib.contextmanager
def _opened_destination(job: MatchedFilesJob, reservation: ReservationInfo) -> Iterator[tuple[int, FollowLog]]:
    """The destination's folder, and the log in it."""
    path = "/".join(part for part in job.path.split("/") if part not in ("", "."))
    subject = {"reservation": job.reservation, "uuid": reservation.id, "path": path, "match": job.match}
    name = f"{LOG_PREFIX}{hashlib.sha256(json.dumps(subject).encode()).hexdigest()[:8]}.log"
    folder: int | None = None
    try:
        folder = open_outside(job.destination)
        log = FollowLog.open(folder, name, subject, os.path.join(job.destination, name))
        try:
            yield folder, log
        finally:
            log.close()
    except ForebayError:
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NoSpaceError(
                "the destination is full. What has its name there is whole; make room, and run the same command again",
                job.destination,
            ) from error
        raise StorageError(
            f"the destination cannot be used ({error.strerror}); choose another, or have its permissions changed",
            job.destination,
        ) from error
    finally:
        if folder is not None:
            os.close(folder)


class _MatchedFiles:
    """One run of the stage."""

    def __init__(
        self,
        job: MatchedFilesJob,
        rule: CompleteRule,
        names: AppearingNames,
        chosen: ChosenNames,
        log: FollowLog,
        folder: int,
        files_path: str,
        reporter: Reporter,
    ) -> None:
        self._job = job
        self._rule = rule
        self._names = names
        self._chosen = chosen
        self._log = log
        self._folder = folder
        self._files_path = files_path
        self._reporter = reporter
        self._taken: list[str] = []
        self._replaced: list[str] = []
        self._waiting: dict[str, ForebayError] = {}  # chosen and complete, and could not be copied at the last look
        self._incomplete: list[str] = []  # at the last look
        self._noted: set[str] = set()

    def run(self, ending: EndRequest) -> Json:
        """Takes names until the end."""
        if self._log.in_doubt is not None:
            self._settle(self._log.in_doubt)
        kept = len(self._log.done_names)
        self._reporter.progress.items_done = self._reporter.progress.items_kept = kept
        ended_by = "" if self._job.follow else "one look"
        while True:
            # Whatever ends it was there before this scan begins.
            is_last = bool(ended_by)
            if is_last:
                self._reporter.progress.stream_ended = True
            look = self._chosen.look()
            self._take_ready(look, is_last=is_last)
            if is_last:
                break
            if look.ended_by:
                ended_by = look.ended_by
            elif ending.is_made:
                ended_by = "asked to end"
            else:
                self._reporter.progress.item = ""
                self._reporter.update(at_once=True)
                self._names.wait(ending.fileno())
        if not (self._names.is_there or self._job.follow or self._log.done_names):
            raise NotFoundError("there is no such folder in the reservation", self._path_of("").rstrip("/"))
        self._check_nothing_lacks()
        return self._result(ended_by, kept)

    def _take_ready(self, look: Look, *, is_last: bool) -> None:
        """Takes what can be taken."""
        if look.refused:
            self._note(f"{look.refused} is neither file nor folder, and is not staged")
        self._waiting.clear()
        self._incomplete = [seen.name for seen in look.incomplete]
        for seen in look.incomplete:
            if self._rule.kind is RuleKind.CLOSED:
                self._note(f"{seen.name} is a folder, and --complete closed is for single files: it is not staged")
        for seen in look.ready:
            self._take(seen, wait_seconds=self._job.wait_closed_seconds if is_last else 0.0)

    def _take(self, seen: SeenName, *, wait_seconds: float) -> None:
        """Copies one name, if it can be copied now."""
        name = seen.name
        fail_point("staging.matched.taking")
        self._log.begin(name)
        copy = _OneCopy(self, seen)
        request = {
            "inside": self._files_path,
            "inward": "0",
            "path": os.path.join(self._job.path, name),
            "outside": os.path.join(self._job.destination, name),
            "name": name,
            "acls": str(int(self._job.acls)),
            "whole": "1",
            "replaces": str(int(self._job.replace or self._log.versions(name) > 0)),
            "must_know_writers": str(int(self._must_know_writers)),
            "wait_closed_ms": str(round(wait_seconds * 1000)),
        }
        self._reporter.progress.item = name
        self._reporter.update(at_once=True)
        try:
            move(request, copy)
            copy.built()  # also where the mover found that nothing had to be built
        except _ChangedMeanwhileError:
            self._waiting[name] = StorageError("another version came while it was being copied", self._path_of(name))
            return
        except ForebayError as error:
            if not self._is_of_source(error, seen):
                raise
            if self._rule.kind is RuleKind.CLOSED and isinstance(error, BusyError | RefusedError):
                self._incomplete.append(name)
                return
            self._waiting[name] = error
            self._note(f"{name} is not taken yet: {error.what} ({error.where})")
            return
        fail_point("staging.matched.placed")
        is_newer = self._log.versions(name) > 0
        self._log.done(name)
        if is_newer:
            self._replaced.append(name)
            self._note(f"{name} came again: its new version took the place of the older copy")
        elif name not in self._taken:
            self._reporter.progress.items_done += 1
        self._taken.append(name)
        self._reporter.update()

    def finishing(self, seen: SeenName) -> None:
        """The copy of what lay there is whole and lacks only its name: is it still what lies there?"""
        if not self._names.is_still(seen):
            raise _ChangedMeanwhileError
        self._log.finishing(seen.name, seen.version)
        fail_point("staging.matched.finishing")

    def add_rows(self, name: str, rows: list[Json]) -> None:
        """Files of the copy, with paths below the destination."""
        self._log.add_rows([row | {"path": f"{name}/{row['path']}" if row["path"] else name} for row in rows])

    def came_further(self, size_bytes: int) -> None:
        """So many bytes more were copied."""
        self._reporter.progress.bytes_done += size_bytes
        self._reporter.update()

    def note(self, name: str, text: str) -> None:
        """What the mover says of a copy."""
        self._note(f"{name}: {text}")

    @property
    def _must_know_writers(self) -> bool:
        """Files of another server are copied in one look only once nodes that could write them have been fenced."""
        return self._rule.kind is RuleKind.CLOSED and (self._job.follow or not tree_of_stage())

    def _is_of_source(self, error: ForebayError, seen: SeenName) -> bool:
        """It lies in what is copied, which may pass, and keeps no other name from being taken."""
        if isinstance(error, UnsupportedError) and self._rule.kind is RuleKind.CLOSED and not seen.version.is_folder:
            return False
        return error.where.startswith(self._files_path + "/")

    def _path_of(self, name: str) -> str:
        return os.path.join(self._files_path, self._job.path, name)

    def _settle(self, doubt: InDoubt) -> None:
        """The last run was killed when a copy was about to get its name."""
        if is_placed(self._folder, doubt.name, doubt.rows):
            os.fsync(self._folder)
            self._log.done(doubt.name)
        else:
            self._log.undone(doubt.name)

    def _check_nothing_lacks(self) -> None:
        """Raises for what was chosen and could not be taken."""
        for name, error in self._waiting.items():
            more = f" ({len(self._waiting) - 1} more like it)" if len(self._waiting) > 1 else ""
            raise type(error)(f"{name} was not staged{more}: {error.what}", error.where)
        missed = self._log.missed
        if missed and not self._job.accept_gaps:
            shown = ", ".join(missed[:_NAMES_SHOWN]) + (" …" if len(missed) > _NAMES_SHOWN else "")
            raise NotFoundError(
                f"{len(missed)} chosen names went before they could be taken: {shown}. All others are staged; let the "
                "program keep them longer, or allow it with --accept-gaps"
            )

    def _result(self, ended_by: str, kept: int) -> Json:
        left = self._incomplete
        if left:
            shown = ", ".join(left[:_NAMES_SHOWN]) + (" …" if len(left) > _NAMES_SHOWN else "")
            self._note(f"{len(left)} chosen names were not complete at the end, and stay behind: {shown}")
        for _, rows in self._log.rows():
            self._reporter.files(rows)
        return {
            "source": f"{self._job.reservation}:{self._job.path}",
            "target": self._job.destination,
            "appeared": len(list(self._log.names)),
            "staged": len(self._log.done_names),
            "kept": kept,
            "taken": self._taken,
            "replaced": self._replaced,
            "missed": self._log.missed,
            "left": left,
            "ended_by": ended_by,
        }

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._reporter.note(text)


class _OneCopy:
    """Listens to the mover while it copies one name."""

    def __init__(self, work: _MatchedFiles, seen: SeenName) -> None:
        self._work = work
        self._seen = seen
        self._bytes_done = 0
        self._is_finishing = False

    def planned(self, items: int, size_bytes: int, missing_bytes: int) -> None:
        """What there is to copy was looked at."""

    def came_further(self, items_done: int, items_kept: int, bytes_done: int, item: str) -> None:
        self._work.came_further(bytes_done - self._bytes_done)
        self._bytes_done = bytes_done

    def built(self) -> None:
        if not self._is_finishing:
            self._work.finishing(self._seen)
            self._is_finishing = True

    def verified(self, rows: list[Json]) -> None:
        self._work.add_rows(self._seen.name, rows)

    def noted(self, text: str) -> None:
        self._work.note(self._seen.name, text)
