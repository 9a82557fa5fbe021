# SPDX-License-Identifier: Apache-2.0
"""Files of jobs on their nodes, as the manager sees them: opened for the nodes that Slurm lists, closed before anything
is copied. docs/design/files-on-nodes.md has the order of calls.

A node is clean when its epilog has said so. Every other one is fenced, and its row says what may be missing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from forebay.errors import ForebayError, NotFoundError, PermissionDeniedError, UnsupportedError
from forebay.manager.records import (
    JobMount,
    JobRow,
    JobState,
    NodeAnswer,
    NodeAnswerState,
    NodeReported,
    ReservationRow,
    SiteMount,
)
from forebay.records import Finding, ReservationInfo, Severity
from forebay.workflows.directives.directives import Directives
from forebay.workflows.files.commands.site_mounts import SiteWanted
from forebay.workflows.files.driver_checks import STAGES_NODE
from forebay.workflows.files.namespaces import make_namespaces
from forebay.workflows.files.node_mounts import Wanted
from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_node_table import JobNodeRow, JobNodeState, JobNodeTable
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.name_turns import NameTurns
from forebay.workflows.manager.core.pools.placement import Reach
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.slurm.shown_places import ShownPlaces

__all__ = ["JobFiles"]

_log = logging.getLogger(__name__)

_SHOWN_MAX = 3
_REASON_CHARACTERS_MAX = 200
_BEFORE_RUN = (JobState.SETUP, JobState.DATA_IN, JobState.PRE_RUN)


class JobFiles:
    """Those of one instance's jobs. Usable from several threads; what may take long waits for its reservation alone.

    Parameters
    ----------
    engines : PoolEngines, optional
        None: no pool of the configuration shows files on other nodes.
    """

    def __init__(self, database: Database, reservations: Reservations, engines: PoolEngines | None) -> None:
        self._table = JobNodeTable(database)
        self._jobs = JobTable(database)
        self._database = database
        self._reservations = reservations
        self.engines = engines
        self._staged: dict[str, set[int]] = {}  # by reservations that stages mount here, whose; changed in their turns
        self._turns = NameTurns()
        self._places = None if engines is None else ShownPlaces(engines, database, self._uses)

    def are_shown(self, reservation: str) -> bool:
        """The reservation's pool has a driver, which shows its files on the nodes of jobs."""
        return bool(self._driver_of(self._database.reservation(reservation) if reservation else None))

    def _driver_of(self, reservation: ReservationRow | None) -> str:
        """What shows its files on the nodes of jobs; "": nothing does."""
        return "" if reservation is None else self._driver_of_pool(reservation.pool)

    def _driver_of_pool(self, pool: str) -> str:
        known = self._reservations.pools.settings.pools.get(pool)
        return "" if self.engines is None or known is None else known.files_driver

    def reach(self, pool: str, *, follows: bool = False) -> Reach:
        """Where reservations of jobs from this pool may lie: on the manager's server, unless files of others are shown
        to nodes, and to stages here, too. `follows`: they are to be copied as they appear, which the manager's server
        tells at once.
        """
        others = self._reservations.servers.others()
        if not others:
            return Reach()
        engines, driver = self.engines, self._driver_of_pool(pool)
        if follows or engines is None or not driver or (driver == "nfs" and not engines.can_mount):
            return Reach(home_on=(server_name(),))
        return Reach(
            without={
                server.name: f"no agent runs on server {server.name}, so files of jobs cannot lie there"
                for server in others
                if engines.lacks_agent(server.name)
            }
        )

    def reaches(self, reservation: ReservationRow) -> bool:
        """Files of another server's reservation can be mounted on the manager's node."""
        return bool(self._driver_of(reservation))

    def open_for_stages(self, reservation: ReservationRow, uid: int) -> Wanted:
        """Opens the files of another server's reservation for a stage of this user's on the manager's node; idempotent.
        Raises as `open`.
        """
        assert self.engines is not None
        info = self._reservations.info(reservation.name)
        with self._turns.of(info.id), self._place(uid, reservation.name):
            self._staged.setdefault(info.id, set()).add(uid)
            site = None
            if self._driver_of(reservation) == "commands":  # it may have had no job yet
                self.engines.make_tree(info.id, Path(info.files_path), info.files_bytes)
            nodes = {STAGES_NODE: self.engines.own_address}
            mount = self.engines.open(info.id, Path(info.files_path), nodes)[STAGES_NODE]
            if self._driver_of(reservation) == "commands":
                state = self.engines.site_state(info.id)
                site = SiteWanted(self.engines.incarnation, info.files_bytes, mount.source, state)
            return Wanted(info.id, mount.source, mount.port, site)

    def close_for_stages(self, reservation_id: str) -> None:
        """Nobody stages there any more; idempotent."""
        with self._turns.of(reservation_id):
            self._staged.pop(reservation_id, None)
            if self.engines is None:
                return
            if self._needed(reservation_id):
                self.engines.release(reservation_id, [STAGES_NODE])
            else:
                self.engines.close(reservation_id)

    def id_of(self, reservation: str) -> str:
        """Its uuid; "" without such a reservation."""
        row = self._database.reservation(reservation)
        return "" if row is None else row.id

    def path(self, reservation: str) -> Path:
        """Its files on its home; raises as `Reservations.info`."""
        return Path(self._reservations.info(reservation).files_path)

    def shown_of(self, job: JobRow, directives: Directives) -> list[str]:
        """Names of the reservations of the job whose files its nodes mount."""
        names = [job.reservation, *directives.persistents]
        return [name for name in names if self.are_shown(name)]

    def check_there(self, job: JobRow) -> None:
        """NotFoundError if the job's own reservation is gone: destroyed by force, or given up with its server."""
        if job.reservation and not self.id_of(job.reservation):
            raise NotFoundError("its reservation was destroyed, or given up with its server; submit the job again")

    def make_trees(self, job: JobRow, directives: Directives) -> None:
        """Has a site's engine make what is to be shown, before anything is staged in; idempotent. Raises as the driver
        does.
        """
        for name in self.shown_of(job, directives):
            if self._driver_of(self._database.reservation(name)) == "commands":
                info = self._reservations.info(name)
                with self._turns.of(info.id):
                    assert self.engines is not None
                    self.engines.make_tree(info.id, Path(info.files_path), info.files_bytes)

    def make_namespaces(self, job: JobRow, directives: Directives, info: ReservationInfo, *, prolog: bool) -> None:
        """Makes the folders of the job's scratch, before anything is staged in; idempotent. Raises as `make_namespaces`
        and an agent's call.

        Parameters
        ----------
        prolog : bool
            Where nodes mount no files, each makes its private folder.
        """
        row = self._database.reservation(job.reservation)
        if self.engines is not None and self._driver_of(row):
            with self._turns.of(info.id):
                self.engines.make_namespaces(
                    info.id, Path(info.files_path), job.token, job.owner_uid, job.owner_gid, private=directives.private
                )
        elif row is not None and row.server:
            raise UnsupportedError(
                f"its files lie on server {row.server}, and its pool shows them to no nodes any more"
            )
        else:
            owner = (job.owner_uid, job.owner_gid)
            make_namespaces(Path(info.files_path), job.token, *owner, private=directives.private, prolog=prolog)

    def open(self, job: JobRow, directives: Directives, nodes: Mapping[str, str]) -> None:
        """Opens them for these nodes, by their addresses; idempotent. Raises as the driver does, and NoSpaceError if
        the job's user has so many shown that the places that are left are for others.
        """
        for name in self.shown_of(job, directives):
            info = self._reservations.info(name)
            with self._turns.of(info.id), self._place(job.owner_uid, name):
                assert self.engines is not None
                mounts = self.engines.open(info.id, Path(info.files_path), nodes)
                if name == job.reservation and directives.private:
                    owner = (job.owner_uid, job.owner_gid)
                    self.engines.make_private_folders(info.id, Path(info.files_path), nodes, *owner)
                for node, mount in mounts.items():
                    self._table.open(job.id, info.id, node, mount.source, mount.port, info.files_path)

    def _place(self, uid: int, name: str) -> contextlib.AbstractContextManager[None]:
        """Held while its files are opened for this user's job or stage. Who has the turn of the reservation calls."""
        row = self._database.reservation(name)
        if row is None or self._driver_of(row) != "nfs" or self._places is None:
            return contextlib.nullcontext()
        return self._places.taken(uid, row)

    def _uses(self, uid: int, reservation_id: str) -> bool:
        """A job or a stage of the user has it shown."""
        if uid in self._staged.get(reservation_id, ()):
            return True
        in_use = [row for row in self._table.of_reservation(reservation_id) if self._is_in_use(row)]
        return any((job := self._jobs.numbered(row.job_id)) is not None and job.owner_uid == uid for row in in_use)

    def answer(self, token: str, node: str) -> NodeAnswer:
        """What a node mounts for a job.

        Raises
        ------
        PermissionDeniedError
            Slurm has not listed the node for this job.
        """
        nothing = NodeAnswer(NodeAnswerState.NONE)
        job = self._jobs.current(token)
        if job is None or job.state.is_final:
            return nothing
        directives = Directives.from_json(job.directives)
        if not self.shown_of(job, directives):
            return nothing
        if job.state in _BEFORE_RUN:
            return NodeAnswer(NodeAnswerState.WAIT)
        if job.state is not JobState.RUNNING:
            return nothing  # it was cancelled just now, which is no fault of the node
        of_job = self._table.of_job(job.id)
        if not of_job:
            return nothing  # a persistent reservation was made when the job had begun without it
        rows = [row for row in of_job if row.node == node]
        if not rows:
            raise PermissionDeniedError(f"Slurm did not list node {node[:80]} for job {token}")
        if any(row.state is JobNodeState.CLEAN for row in rows):
            raise PermissionDeniedError(f"job {token} is over on node {node[:80]}")
        # What was fenced before the job has come: another job of the node was not clean, by its user's doing. That
        # costs this job these files, and not the node.
        rows = [row for row in rows if row.state is not JobNodeState.FENCED]
        # Nor does the node lack what somebody has destroyed since.
        there = {row.id for row in self._database.reservations_of_ids(row.reservation_id for row in rows)}
        rows = [row for row in rows if row.reservation_id in there]
        if not rows:
            return nothing
        striped = self.id_of(job.reservation) if job.reservation else ""
        return NodeAnswer(
            NodeAnswerState.MOUNT,
            run=job.run,
            uid=job.owner_uid,
            gid=job.owner_gid,
            striped=striped if any(row.reservation_id == striped for row in rows) else "",
            private=directives.private,
            mounts=tuple(self._mount_of(row) for row in rows),
        )

    def _mount_of(self, row: JobNodeRow) -> JobMount:
        reservation = next(iter(self._database.reservations_of_ids([row.reservation_id])), None)
        site = None
        if reservation is not None and self._driver_of(reservation) == "commands":
            assert self.engines is not None
            state = self.engines.site_state(row.reservation_id)
            site = SiteMount(self.engines.incarnation, reservation.files_bytes, state)
        home = "" if reservation is None else reservation.server
        return JobMount(row.reservation_id, row.source, row.port, row.tree, home, site)

    def user_of(self, token: str) -> int | None:
        """Whose job it is; None: there is none of this number."""
        job = self._jobs.current(token)
        return None if job is None else job.owner_uid

    def report(self, token: str, run: int, node: str, state: str, reason: str) -> NodeReported:
        """What a node says of itself: "mounted", "failed", "clean" or "unclean". An unclean one is fenced when this
        returns.

        Raises
        ------
        NotFoundError
            There is no such node of such a run.
        """
        job = self._jobs.current(token)
        rows = [] if job is None or job.run != run else [row for row in self._of(job) if row.node == node]
        if not rows:
            raise NotFoundError(f"node {node[:80]} has no files of job {token}")
        reason = reason[:_REASON_CHARACTERS_MAX]
        for row in rows:
            with self._turns.of(row.reservation_id):
                now = self._row_now(row)
                if now is None or now.state.has_let_go:
                    continue
                if state == "clean":
                    self._table.change(now, JobNodeState.CLEAN)
                elif state == "unclean":
                    self._fence([now], reason)
                else:
                    self._table.change(now, JobNodeState.MOUNTED if state == "mounted" else now.state, reason)
        assert job is not None
        return NodeReported(any(row.state is JobNodeState.FENCED for row in self._of(job) if row.node == node))

    def settle(self, job: JobRow) -> list[str]:
        """Takes the ways in of all of the job's nodes away. When it returns, the job's files change no more but by the
        home's own programs, and may be copied. The nodes that were not clean.

        Raises
        ------
        ForebayError
            It is not sure that nothing of them can land; or the files are not there.
        """
        self._take_ways_in(job)
        if self.engines is not None:
            for reservation_id in {row.reservation_id for row in self._of(job)}:
                self.engines.check_tree(reservation_id)
        return self.unclean(job)

    def _take_ways_in(self, job: JobRow) -> None:
        by_reservation: dict[str, list[JobNodeRow]] = {}
        for row in self._of(job):
            by_reservation.setdefault(row.reservation_id, []).append(row)
        for reservation_id in by_reservation:
            with self._turns.of(reservation_id):
                rows = [row for row in self._of(job) if row.reservation_id == reservation_id]
                others = self._nodes_of_others(job, reservation_id)
                in_use = bool(others) or reservation_id in self._staged
                # Unless another job uses the same way in.
                clean = [row.node for row in rows if row.state is JobNodeState.CLEAN and row.node not in others]
                if not in_use and self.engines is not None:
                    self.engines.stop(reservation_id, clean)  # the fence for all, whatever nodes have said
                self._fence([row for row in rows if not row.state.has_let_go], "")
                if in_use and self.engines is not None:
                    self.engines.release(reservation_id, clean)

    def unclean(self, job: JobRow) -> list[str]:
        """Nodes whose ways in were taken before they had let go."""
        return sorted({row.node for row in self._of(job) if row.state is JobNodeState.FENCED})

    def note_on(self, job: JobRow) -> str:
        """For `forebay why`: which node has not mounted, which was not clean, which server with its files is away; ""
        without any.
        """
        rows = self._of(job)
        waits = {row.node: row.reason for row in rows if row.state is JobNodeState.OPEN}
        fenced = {row.node: row.reason for row in rows if row.state is JobNodeState.FENCED}
        texts = []
        if waits and job.state is JobState.RUNNING:
            texts.append(f"{_listed(waits)} has not mounted its files")
        if fenced:
            texts.append(
                f"{_listed(fenced)} was fenced before it had written out its files: what its programs had not synced "
                "may be missing"
            )
        return "; ".join([*texts, *self._homes_away(job)])

    def _homes_away(self, job: JobRow) -> list[str]:
        names = () if job.state.is_final else (job.reservation, *Directives.from_json(job.directives).persistents)
        homes = {row.server for name in names if name and (row := self._database.reservation(name)) is not None}
        since = {server: self._reservations.servers.away_since(server) for server in sorted(homes - {""})}
        return [
            f"its files lie on server {server}, which is away since {_time(seconds)}"
            for server, seconds in since.items()
            if seconds is not None
        ]

    def end(self, job: JobRow) -> None:
        """The job has no way in any more, on no node; engines that nobody else needs end. Idempotent: what is to be
        destroyed may be half gone.

        Raises
        ------
        ForebayError
            It is not sure that nothing of them can land.
        """
        self._take_ways_in(job)
        for reservation_id in {row.reservation_id for row in self._of(job)}:
            with self._turns.of(reservation_id):
                in_use = reservation_id in self._staged or self._nodes_of_others(job, reservation_id)
                if self.engines is not None and not in_use:
                    self.engines.close(reservation_id)

    def reconcile(self) -> None:
        """Ends engines that no job needs, and forgets nodes of jobs that are forgotten."""
        if self.engines is None:
            return
        for reservation_id in self.engines.reservations():
            with self._turns.of(reservation_id):
                if not self._needed(reservation_id):
                    _log.warning("files of %s are shown to no job any more", reservation_id)
                    try:
                        self.engines.close(reservation_id, self._clean_nodes(reservation_id))
                    except ForebayError as error:
                        _log.warning("files of %s: %s", reservation_id, error)
        self.engines.forget_all_but({row.id for row in self._database.reservations()})
        self._table.forget_gone()

    def start_ended(self) -> None:
        """Starts engines again whose daemons have ended."""
        if self.engines is not None:
            self.engines.start_ended()

    def findings(self) -> list[Finding]:
        """For `forebay doctor`: engines that nodes need and that do not run, and servers whose files nobody shows."""
        if self.engines is None:
            return []
        engines = self.engines
        ended = [
            Finding(
                Severity.PROBLEM,
                f"files of reservation {reservation_id}",
                "nodes of jobs wait for their engine, which does not run. The manager starts it again and again, or "
                f"the agent of its server does; ganesha.log or commands.log in ROOT/drivers/{reservation_id} there "
                "says why that fails",
            )
            for reservation_id in engines.ended()
        ]
        ended += [
            Finding(Severity.PROBLEM, f"[files.commands] {operation}", str(error))
            for operation, error in engines.site_problems().items()
        ]
        ended += [
            Finding(
                Severity.NOTE,
                f"server {server}" if server else "files on nodes",
                f"what their daemons take counts to {'the agent' if server else 'the manager'}: {problem}. "
                "See [files] cgroup",
            )
            for server, problem in engines.cgroup_problems().items()
        ]
        rows = [row for row in self._database.reservations() if row.server and row.files_bytes]
        servers = {row.server for row in rows if self.are_shown(row.name)}
        return ended + [
            Finding(
                Severity.PROBLEM,
                f"server {server}",
                "no agent runs there, so jobs cannot mount the files of its reservations; start `forebay agent` there, "
                "as root",
            )
            for server in sorted(servers)
            if engines.lacks_agent(server)
        ]

    def let_go(self, reservation: ReservationRow) -> None:
        """The reservation is about to be destroyed, whoever uses it."""
        if self.engines is not None and reservation.id:
            with self._turns.of(reservation.id):
                # An agent is needed only where it has ever shown something, or has had a tree made.
                if reservation.server and not (
                    self._driver_of(reservation) == "commands"
                    or self._table.of_reservation(reservation.id)
                    or reservation.id in self.engines.reservations()
                ):
                    return
                self.engines.forget(reservation.id)

    def _of(self, job: JobRow) -> list[JobNodeRow]:
        return self._table.of_job(job.id)

    def _row_now(self, row: JobNodeRow) -> JobNodeRow | None:
        rows = self._table.of_job(row.job_id)
        return next((now for now in rows if (now.reservation_id, now.node) == (row.reservation_id, row.node)), None)

    def _fence(self, rows: list[JobNodeRow], reason: str) -> None:
        """Of one reservation. The rows change when it is sure."""
        if not rows:
            return
        if self.engines is not None:
            self.engines.fence(rows[0].reservation_id, [row.node for row in rows])
        for row in rows:
            _log.warning("node %s is fenced from %s%s", row.node, row.tree, f": {reason}" if reason else "")
            self._table.change(row, JobNodeState.FENCED, reason or row.reason)
        # Jobs of one node have one way in, so it is taken from all of them.
        nodes = {row.node for row in rows}
        for other in self._table.of_reservation(rows[0].reservation_id):
            if other.node in nodes and not other.state.has_let_go:
                self._table.change(other, JobNodeState.FENCED, "another job was not clean on this node")

    def _nodes_of_others(self, job: JobRow, reservation_id: str) -> set[str]:
        """Nodes that other runs still have in use."""
        rows = self._table.of_reservation(reservation_id)
        return {row.node for row in rows if row.job_id != job.id and self._is_in_use(row)}

    def _needed(self, reservation_id: str) -> bool:
        if reservation_id in self._staged:
            return True
        return any(self._is_in_use(row) for row in self._table.of_reservation(reservation_id))

    def _clean_nodes(self, reservation_id: str) -> list[str]:
        """Nodes whose jobs have all let go, the last one clean: a job that is over may not be settled yet."""
        rows: dict[str, list[JobNodeRow]] = {}
        for row in sorted(self._table.of_reservation(reservation_id), key=lambda row: row.job_id):
            rows.setdefault(row.node, []).append(row)
        return [
            node
            for node, of_node in rows.items()
            if of_node[-1].state is JobNodeState.CLEAN and all(row.state.has_let_go for row in of_node)
        ]

    def _is_in_use(self, row: JobNodeRow) -> bool:
        if row.state.has_let_go:
            return False
        job = self._jobs.numbered(row.job_id)
        return job is not None and not job.state.is_final


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _listed(nodes: dict[str, str]) -> str:
    shown = [f"{node} ({reason})" if reason else node for node, reason in sorted(nodes.items())[:_SHOWN_MAX]]
    more = len(nodes) - len(shown)
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(shown)}{f' and {more} more' if more else ''}"
