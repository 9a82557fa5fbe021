# SPDX-License-Identifier: Apache-2.0
"""Prolog and epilog of a node that mounts jobs' files: what `forebay job-begin` and `job-end` do where the
configuration has `[files] server`.

The prolog asks the manager as root, mounts, and links `node_folder/JOB`, for private scratch also
`node_folder/.private/JOB`. The epilog writes out, unmounts, and says so.
What it cannot do in time it says, too: the manager then fences this node, and the mount is taken away. Both end in
bounded time, whatever the manager and the servers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from forebay.errors import BusyError, ForebayError, NotFoundError, PermissionDeniedError, StorageError
from forebay.fail_point import fail_point
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.manager.pool_membership import PoolMembership
from forebay.manager.records import JobMount, NodeAnswer, NodeAnswerState
from forebay.workflows.files.commands.site_mounts import SiteWanted
from forebay.workflows.files.namespaces import private_folder, striped_folder
from forebay.workflows.files.node_mounts import NodeMounts, NotServedError, Wanted
from forebay.workflows.files.settings import FilesSettings
from forebay.workflows.manager.core.configuration import configuration_file, read_configuration
from forebay.workflows.slurm.processes import job_fields
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.staging.publication import write_whole

__all__ = ["NodeFiles"]

_T = TypeVar("_T")

_POLL_SECONDS = 0.3
#: Beyond the time that each part has, for what nothing can cut short.
_GRACE_SECONDS = 30
#: A report may wait for a fence.
_REPORT_SECONDS = 60.0
_JOB = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """One node's."""

    node: str
    mounts: NodeMounts
    settings: FilesSettings
    scontrol: str
    connect: Callable[[], ManagerClient]
    home: str | None  #: the server of this node, "" where the manager runs; None: it has none

    @classmethod
    def configured(cls, node: str) -> NodeFiles | None:
        """By the centre's configuration; None: nodes mount nothing here.

        Raises
        ------
        InvalidArgumentError
            The configuration is none.
        """
        path = configuration_file()
        tables = read_configuration(path)
        settings = FilesSettings.from_configuration(tables, path)
        slurm = SlurmSettings.from_configuration(tables, path)
        if settings is None or not settings.server or slurm is None or not slurm.node_folder:
            return None
        os.environ.setdefault("FOREBAY_SERVER", settings.server)
        instance = Instance.below(str(tables["root"])) if "root" in tables else Instance.current()
        return cls(
            node,
            NodeMounts(Path(slurm.node_folder), node=node, commands=settings.commands),
            settings,
            slurm.scontrol,
            lambda: ManagerClient(instance),
            _server_here(instance),
        )

    def begin(self, job: str) -> list[str]:
        """The prolog: mounts what the job has, and makes its link, which is returned. What is not served costs the job
        these files, and not the node: its users may have brought that about.

        Raises
        ------
        ForebayError
            The job cannot run here; Slurm drains the node and requeues the job.
        """
        _check(job)
        deadline = time.monotonic() + self.settings.begin_seconds_max
        signal.alarm(round(self.settings.begin_seconds_max + _REPORT_SECONDS) + 2 * _GRACE_SECONDS)
        answer = self._answer(job, deadline)
        if answer is None or answer.state is NodeAnswerState.NONE:
            return []
        self.mounts.prepare()
        not_served = ""
        try:
            self._keep_answer(job, answer)  # before anything is mounted: the epilog knows of it, whatever happens
            fail_point("node.begin.answer")
            for mount in answer.mounts:
                try:
                    with self.mounts.turn(mount.id, deadline):
                        self.mounts.mount(self._wanted(mount), deadline)
                except (NotServedError, BusyError) as error:
                    not_served = error.what
            fail_point("node.begin.mounted")
            links = self._make_links(job, answer, not_served)
        except ForebayError as error:
            self._report(job, answer, "failed", error.what)
            raise
        fail_point("node.begin.linked")
        if not_served:
            sys.stderr.write(f"job {job} does not have all its files on {self.node}: {not_served}\n")
        self._detach_lost(deadline)
        self._report(job, answer, "failed" if not_served else "mounted", not_served)
        return links

    def end(self, job: str) -> list[str]:
        """The epilog: what it removed. Idempotent.

        Raises
        ------
        StorageError
            The job's files are still mounted here.
        """
        _check(job)
        deadline = time.monotonic() + self.settings.end_seconds_max
        signal.alarm(round(self.settings.end_seconds_max + 2 * _REPORT_SECONDS) + _GRACE_SECONDS)
        answer = self._known_answer(job)
        if answer is None:  # the node was started anew, or the prolog found nothing
            return []
        removed = self._remove_links(job)
        mounted = [mount.id for mount in answer.mounts if self.mounts.is_there(mount.id)]
        # The kernel tells once that something could not be written: whoever was told may have been killed.
        said = ["an epilog before this one was killed"] if answer.ending else []
        self._keep_answer(job, dataclasses.replace(answer, ending=True))
        said += [self.mounts.what_changed(mount.id) for mount in answer.mounts]
        said += [self.mounts.sync(reservation, answer.uid, answer.gid, deadline) for reservation in mounted]
        fail_point("node.end.synced")
        if not any(said):
            for reservation in mounted:
                try:
                    with self.mounts.turn(reservation, deadline):
                        said += self._unmount_unshared(job, reservation, answer, deadline)
                except BusyError as error:
                    said.append(error.what)
        fail_point("node.end.unmounted")
        wrong = next(filter(None, said), "")
        self._report(job, answer, "unclean" if wrong else "clean", wrong)
        fail_point("node.end.reported")
        self._let_go(job, [mount.id for mount in answer.mounts])
        if wrong:
            sys.stderr.write(f"job {job} was not clean on {self.node}: {wrong}\n")
        return removed

    def _unmount_unshared(self, job: str, reservation: str, answer: NodeAnswer, deadline: float) -> list[str]:
        """Unmounts it, unless another job has it; what was in the way. The caller has its turn."""
        if not self._unshared(job, [reservation]):
            return []
        said = [self.mounts.unmount(reservation, deadline)]
        fail_point("node.end.sealed")
        if self.mounts.is_mounted(reservation):  # what was written between the first time and the seal
            said.append(self.mounts.sync(reservation, answer.uid, answer.gid, deadline))
        return said

    def _let_go(self, job: str, reservations: list[str]) -> None:
        """Takes away what is mounted still, unless another job has it, and forgets the job."""
        deadline = time.monotonic() + _GRACE_SECONDS
        # All turns until the job is forgotten: of two jobs that end at once the second one takes it away.
        with contextlib.ExitStack() as turns:
            held = []
            for reservation in sorted(reservations):
                with contextlib.suppress(BusyError):  # who has the turn has a job, whose mount it is
                    turns.enter_context(self.mounts.turn(reservation, deadline))
                    held.append(reservation)
            for reservation in self._unshared(job, held):
                self.mounts.detach(reservation, deadline)
            (self._answers / job).unlink(missing_ok=True)

    def _answer(self, job: str, deadline: float) -> NodeAnswer | None:
        """The manager's; None: it is away, and Slurm says that the job has no burst buffer; or the job's files are not
        opened in time, which is no fault of the node.

        Raises
        ------
        StorageError
            Neither says what the job has, until the deadline.
        """
        while True:
            why = ""
            try:
                answer = self._ask(lambda client: client.files_on_node(job, self.node))
                if answer.state is not NodeAnswerState.WAIT:
                    return answer
            except PermissionDeniedError:
                raise
            except ForebayError as error:  # the manager is away, or has much to do
                why = error.what
                fields = asyncio.run(job_fields(self.scontrol, job))
                if fields and not fields.get("BurstBuffer", "").strip("() \n").replace("null", ""):
                    return None
            if time.monotonic() > deadline:
                if why:
                    raise StorageError(f"job {job} does not get its files on {self.node} in time: {why}")
                sys.stderr.write(f"job {job} does not get its files on {self.node}: its exports are not open in time\n")
                return None
            time.sleep(_POLL_SECONDS)

    def _report(self, job: str, answer: NodeAnswer, state: str, reason: str) -> None:
        """Tells the manager, for a time: one that never hears takes the node for unclean."""
        deadline = time.monotonic() + _REPORT_SECONDS
        while True:
            try:
                self._ask(lambda client: client.report_node(job, answer.run, self.node, state, reason))
                return
            except NotFoundError:  # the job is over, and so is its way in
                return
            except ForebayError as error:
                if time.monotonic() > deadline:
                    sys.stderr.write(f"the manager does not hear that job {job} is {state} here: {error}\n")
                    return
            time.sleep(_POLL_SECONDS)

    def _ask(self, call: Callable[[ManagerClient], _T]) -> _T:
        client = self.connect()
        try:
            return call(client)
        finally:
            client.close()

    def _wanted(self, mount: JobMount) -> Wanted:
        if self.home is not None and self.home == mount.home:
            return Wanted(mount.id, mount.tree, 0)
        site = None
        if mount.site is not None:
            site = SiteWanted(mount.site.incarnation, mount.site.capacity_bytes, mount.source, mount.site.state)
        return Wanted(mount.id, mount.source, mount.port, site)

    def _make_links(self, job: str, answer: NodeAnswer, not_served: str) -> list[str]:
        """To the job's folders in what is mounted now."""
        if not (reservation := answer.striped):
            return []
        if not self.mounts.is_mounted(reservation):
            if not_served:
                self._remove_links(job)  # of a run before
                return []
            raise StorageError(f"the files of job {job} are not mounted any more", str(self.mounts.folder))
        files = self.mounts.place(reservation)
        striped, private = self._links(job)
        targets = {striped: striped_folder(files, job)}
        if answer.private:
            targets[private] = private_folder(files, self.node)
        for link, target in targets.items():
            made = link.with_name(f".{job}.new")
            try:
                made.unlink(missing_ok=True)
                made.symlink_to(target)
                made.replace(link)
            except OSError as error:
                raise StorageError(f"the job's link cannot be made: {error.strerror}", str(link)) from None
        return [str(link) for link in targets]

    def _remove_links(self, job: str) -> list[str]:
        there = [link for link in self._links(job) if link.is_symlink()]
        for link in there:
            link.unlink(missing_ok=True)
        return [str(link) for link in there]

    def _links(self, job: str) -> tuple[Path, Path]:
        """Those of the striped and of the private scratch: the same on every node."""
        return self.mounts.folder / job, self.mounts.folder / ".private" / job

    @property
    def _answers(self) -> Path:
        """What the manager has answered, of each job."""
        return self.mounts.folder / ".answers"

    def _keep_answer(self, job: str, answer: NodeAnswer) -> None:
        write_whole(self._answers / job, json.dumps(answer.as_dict()) + "\n", mode=0o600, durable=False)

    def _known_answer(self, job: str) -> NodeAnswer | None:
        try:
            return NodeAnswer.from_native(json.loads((self._answers / job).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return None

    def _detach_lost(self, deadline: float) -> None:
        """Takes away what no job of this node has any more: its epilog has not run, and it was fenced since."""
        for reservation in self._unshared("", self.mounts.reservations()):
            try:
                with self.mounts.turn(reservation, 0.0):
                    for lost in self._unshared("", [reservation]):
                        self.mounts.detach(lost, deadline)
            except BusyError:  # somebody sees to it
                continue
            except StorageError as error:  # it is no fault of the job that comes
                sys.stderr.write(f"what a lost job has left stays: {error}\n")

    def _unshared(self, job: str, reservations: list[str]) -> list[str]:
        """Those of the reservations that no other job has mounted on this node."""
        shared: set[str] = set()
        for path in self._answers.iterdir():
            if _JOB.fullmatch(path.name) and path.name != job and (other := self._known_answer(path.name)):
                shared |= {mount.id for mount in other.mounts}
        return [reservation for reservation in reservations if reservation not in shared]


def _server_here(instance: Instance) -> str | None:
    membership = PoolMembership.read(instance)
    if membership is not None and membership.manager:  # whatever a manager has left that ran here before
        return membership.name
    return "" if os.path.exists(instance.manager_endpoint) else None


def _check(job: str) -> None:
    if _JOB.fullmatch(job) is None:
        raise StorageError(f"'{job[:80]}' is no job number")
