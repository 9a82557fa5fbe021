# SPDX-License-Identifier: Apache-2.0
"""What may be done with reservations: create, change, find and destroy, by whom, and with room in pool and quotas.

Changes of one reservation take turns; those of different ones do not wait for one another.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

from forebay.errors import (
    AlreadyExistsError,
    BusyError,
    DisconnectedError,
    ForebayError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    UnsupportedError,
)
from forebay.files.complete_rule import RuleKind
from forebay.manager.jobs import Job, MatchedFilesJob, StepsJob
from forebay.manager.records import GivenUp, MemberRow, PoolServer, QueuePlace, ReservationRow, ReservationState
from forebay.names import check_name
from forebay.near_names import near_text
from forebay.records import Finding, Lifetime, ReservationInfo
from forebay.workflows.manager.core.access import Peer, is_administrator, may_use
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable, is_name_of_a_job
from forebay.workflows.manager.core.name_turns import NameTurns
from forebay.workflows.manager.core.pools.admission import FullError
from forebay.workflows.manager.core.pools.placement import Placement, Reach
from forebay.workflows.manager.core.pools.pool_settings import PoolSettings
from forebay.workflows.manager.core.pools.pools import Pools
from forebay.workflows.manager.core.pools.server_link import ServerLink
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.core.reservations.in_use import refuse_if_written
from forebay.workflows.manager.core.reservations.reconciliation import Reconciliation
from forebay.workflows.manager.core.reservations.reservation_changes import ReservationChanges

__all__ = ["Reservations", "no_reservation"]

_log = logging.getLogger(__name__)

_OF_ONE_USER_MAX = 1000  # those of a scheduler's jobs count, but are not refused: its own rules bound them


class Reservations:
    """Creates and destroys. Usable from several threads."""

    def __init__(self, database: Database, servers: Servers, pools: PoolSettings | None = None) -> None:
        self._database = database
        self._attachments = AttachmentTable(database)
        self._jobs = JobTable(database)
        self.servers = servers
        self.pools = Pools(database, servers, pools or PoolSettings())
        self._changes = ReservationChanges(database, servers)
        self._turns = NameTurns()  # One change of each at a time: request, call, outcome.
        self._reconciliation = Reconciliation(database, servers, self.pools, self._changes, self._turns)
        self._admission = threading.Lock()  # Who is admitted is counted before the next one asks.
        self.have_jobs = False  #: a scheduler's jobs have reservations of their own
        #: Whether files of a reservation of another server are shown on this node to stages.
        self.shows_files: Callable[[ReservationRow], bool] = lambda _: False

    def before_destroy(self, call: Callable[[ReservationRow], None]) -> None:
        """Has this called before a reservation is destroyed, so that what holds its files open lets go of them."""
        self._changes.let_go = call

    def check_free_name(self, name: str) -> None:
        """PermissionDeniedError if it is one of a job, perhaps to come: who had it would keep that job from its own."""
        if self.have_jobs and is_name_of_a_job(name):
            where = f"reservation {name}"
            raise PermissionDeniedError("such names are those of Slurm's jobs; choose another one", where)

    def create(
        self,
        request: ReservationRow,
        *,
        queues: bool = True,
        reach: Reach | None = None,
        servers: int = 0,
    ) -> ReservationInfo:
        """Creates the reservation; idempotent.

        Parameters
        ----------
        queues : bool
            Whoever came before and waits for space is first. Not for a scheduler, which has a queue of its own.
        reach : Reach, optional
            Where alone; None: on any servers that have room. One that was begun goes on where it is.
        servers : int
            On how many it is to lie; 0: on all that `reach` names, else on as many as its pool says.

        Raises
        ------
        BusyError
            One of this name is being destroyed, and a server that has some of it is away.
        AlreadyExistsError, NoSpaceError, InvalidArgumentError, PermissionDeniedError
            The server refuses, or the rules of pool and account do; nothing is remembered.
        DisconnectedError
            The server was lost; whether it exists is settled when the server is back.
        NoSpaceError, StorageError
            The manager's disk is full or fails; asked again when it does not, it is created if it was not.
        """
        check_name(request.name)
        with self._turns.of(request.name):
            known = self._database.reservation(request.name)
            if known is not None:
                request = replace(request, server=known.server)
            if known is not None and (known.members or servers > 1):
                request = self._as_known(request, known, servers)
            elif known is not None and known.state is ReservationState.PRESENT:
                self._changes.refuse_other(request, known)
            else:
                with self._admission:
                    if known is None and queues:
                        self._check_count(request.owner_uid)
                    if known is not None and self.servers.others():
                        reach = Reach((known.server or server_name(),))
                    placement = self.pools.check(request, queues=queues, reach=reach, servers=servers)
                    request = self._placed(request, placement)
                    self._database.put_reservation(replace(request, state=ReservationState.CREATING))
            try:
                info = self._made(request)
            except DisconnectedError:
                raise
            except ForebayError as error:
                if known is None:
                    self._changes.undo(request)
                elif known.state is not ReservationState.PRESENT:
                    self._database.put_reservation(known)
                if isinstance(error, AlreadyExistsError) and (
                    existing := self._changes.adopt_from_server(request.name)
                ):
                    self._changes.refuse_other(request, existing)
                raise
            self._changes.adopt(info, request.server)
            self.servers.tell_directory()
            return info

    def _placed(self, request: ReservationRow, placement: Placement) -> ReservationRow:
        """The request with its servers; the home is the first of several."""
        home = self.servers.key_of(placement.home)
        if len(placement.shares) == 1:
            return replace(request, server=home)
        members = []
        for share in sorted(placement.shares, key=lambda share: share.server != placement.home):
            server = self.servers.key_of(share.server)
            members.append(MemberRow(server, self.servers.root_uuid(server), share.size_bytes - share.files_bytes))
        return replace(
            request,
            server=home,
            id=str(uuid.uuid4()),
            capacity_bytes=sum(member.size_bytes for member in members),
            members=tuple(members),
        )

    def _as_known(self, request: ReservationRow, known: ReservationRow, servers: int) -> ReservationRow:
        """What was begun, to be carried through on the servers where it was, if this is the one that is asked for."""
        if known.owner_uid != request.owner_uid:
            self._changes.refuse_other(request, known)
        if known.state is ReservationState.DESTROYING:
            raise BusyError(
                f"a reservation {known.name} is being destroyed, which is finished when all its servers are there: "
                "`forebay servers` tells; choose another name, or try again then",
                known.name,
            )
        if servers and servers != len(known.servers):
            raise AlreadyExistsError(
                f"a reservation of this name exists and differs: it lies on {_servers_text(len(known.servers))}, not "
                f"on {_servers_text(servers)}. Destroy it first, or choose another name",
                known.name,
            )
        self._changes.refuse_other(request, known, self.pools.streams_bytes(request, len(known.servers)))
        return known

    def _made(self, request: ReservationRow) -> ReservationInfo:
        """As its home tells it, after all servers have it. One that is there already is not asked of all again."""
        if request.members and request.state is ReservationState.PRESENT:
            with contextlib.suppress(NotFoundError):
                return self.info(request.name)
        return self._changes.create(request)

    def _check_count(self, owner_uid: int) -> None:
        """NoSpaceError if the user has as many reservations as one may."""
        if not is_administrator(owner_uid) and self._database.count_reservations(owner_uid) >= _OF_ONE_USER_MAX:
            raise NoSpaceError(
                f"user {owner_uid} has {_OF_ONE_USER_MAX} reservations, as many as may be; destroy some (`forebay ls`)"
            )

    def change(
        self, name: str, *, persistent: bool | None, files_bytes: int | None, by: Peer | None
    ) -> ReservationInfo:
        """Changes lifetime and capacity for files of a reservation; None: as it is. Idempotent.

        Parameters
        ----------
        by : Peer, optional
            Who asks: the owner, or an administrator. None: the manager itself.

        Raises
        ------
        NotFoundError
            There is none, or it belongs to another user, who does not share it.
        PermissionDeniedError
            It belongs to another user, who shares it.
        NoSpaceError
            Pool or quota have too little left, or the manager's disk is full.
        RefusedError
            More lies in its files/ than it would have, or it is that of a job.
        BusyError
            It is being created or destroyed.
        DisconnectedError
            The server was lost; whether it is changed is seen when the server is back.
        """
        with self._turns.of(name):
            known = self._database.reservation(name) or self._changes.adopt_from_server(name)
            if known is None or not self._is_seen(known, by):
                near = near_text(name, self.names_of(None if by is None else by.whose))
                raise NotFoundError(f"there is no reservation of this name{near}", name)
            if known.state in (ReservationState.CREATING, ReservationState.DESTROYING):
                doing = "made" if known.state is ReservationState.CREATING else "destroyed"
                raise BusyError(f"reservation {name} is being {doing}; ask again when that is over", name)
            if self._jobs.uses_as_own(name):
                raise RefusedError(
                    f"reservation {name} is that of a job and ends with it; its script says how large it is", name
                )
            grown = None
            if files_bytes is not None and files_bytes > known.files_bytes:
                grown = replace(known, files_bytes=files_bytes)
                with self._admission:
                    self.pools.check_growth(known, files_bytes)
                    self._database.put_reservation(grown)  # counts from now on
            try:
                with self.servers.of(known).admin() as admin:
                    info = admin.change(name, persistent=persistent, files=files_bytes)
            except DisconnectedError:
                raise
            except ForebayError:
                if grown is not None:
                    self._database.put_reservation(known)
                raise
            self._changes.adopt(info, known.server)
            if info.lifetime is Lifetime.PERSISTENT:
                self._attachments.forget_unattached(name)
            return info

    def create_or_wait(
        self, request: ReservationRow, *, reach: Reach | None = None, servers: int = 0
    ) -> ReservationInfo | QueuePlace:
        """As `create`; where there is no room now, takes a place in the queue, or keeps the one it has.

        To be called again and again: a place at which nobody asks any more is lost (`QueueTable`).
        """
        check_name(request.name)
        self.pools.enter(request)
        try:
            info = self.create(request, reach=reach, servers=servers)
        except FullError as error:
            return self.pools.place(request, error)
        except DisconnectedError:
            raise
        except ForebayError:
            self.pools.leave(request.name)
            raise
        self.pools.leave(request.name)
        return info

    def destroy(self, name: str, *, force: bool, by: Peer | None) -> bool:
        """Destroys the reservation; idempotent. False if there was none, or it belongs to another user, who does not
        share it.

        Parameters
        ----------
        by : Peer, optional
            Who asks: the owner, or an administrator. None: the manager itself.

        Raises
        ------
        PermissionDeniedError
            It belongs to another user, who shares it.
        RefusedError
            Somebody is attached, or the server refuses, without `force`; the reservation stays.
        DisconnectedError
            The server was lost; the reservation is destroyed when the server is back.
        NoSpaceError, StorageError
            The manager's disk is full or fails; asked again when it does not, it is destroyed if it was not.
        """
        with self._turns.of(name):
            known = self._database.reservation(name) or self._changes.adopt_from_server(name)
            if known is None or not self._is_seen(known, by):
                return False
            self._changes.destroy(known, force=force)  # where a server is away, it is to hear of it
            self.servers.tell_directory()
            return True

    def find(self, name: str) -> ReservationRow:
        """The reservation as it was asked for; NotFoundError if there is none."""
        known = self._database.reservation(name)
        if known is None:
            with self._turns.of(name):
                known = self._database.reservation(name) or self._changes.adopt_from_server(name)
        if known is None:
            raise no_reservation(name)
        return known

    def _is_seen(self, known: ReservationRow, by: Peer | None) -> bool:
        """Whether it exists for who asks; PermissionDeniedError if it does, and is another's."""
        if by is None or by.may_see(known.owner_uid):
            return True
        if not self.is_shared_with(known.name, by):
            return False
        raise PermissionDeniedError(
            f"reservation {known.name} belongs to user {known.owner_uid}; ask them, or the administrator", known.name
        )

    def is_shared_with(self, name: str, peer: Peer) -> bool:
        """The user may read it at least, as its server knows it; False if that has it no more."""
        try:
            return may_use(self.info(name), peer)
        except NotFoundError:
            return False

    def info(self, name: str, *, count_files: bool = False) -> ReservationInfo:
        """As its server knows it; NotFoundError if it has none, DisconnectedError if it is away."""
        with self.home_of(name).admin() as admin:
            return admin.reservation(name, count_files=count_files)

    def home_of(self, name: str) -> ServerLink:
        """The way to the server with the reservation of this name, or that would know it."""
        known = self._database.reservation(name)
        return self.servers.own if known is None else self.servers.of(known)

    def address_of(self, name: str) -> str:
        """HOST:PORT of its home, for clients on other nodes; "": it is the manager's own server."""
        known = self._database.reservation(name)
        return "" if known is None else self.servers.address_of(known)

    def check_stages_here(self, job: Job) -> None:
        """UnsupportedError if the job moves files of a reservation that another server of the pool has, and no driver
        shows them here, or it asks who has them open: that is not seen here. Steps are read wherever they are.
        """
        if not isinstance(job, StepsJob):
            self.check_files_here(job.reservation, job.complete if isinstance(job, MatchedFilesJob) else "")

    def check_files_here(self, name: str, complete: str = "") -> None:
        """UnsupportedError if stages do not reach the reservation's files, because another server of the pool has them.

        Parameters
        ----------
        complete : str
            By which rule files that match are to be complete.
        """
        known = self._database.reservation(name)
        if known is None or not known.server:
            return
        where = f"the files of {known.name} lie on server {known.server}"
        if not self.shows_files(known):
            raise UnsupportedError(
                f"{where}, and the manager stages files of its own server only, unless the pool has "
                "a files_driver; run on that server's node: python -m forebay.workflows.staging, or cp",
                known.name,
            )
        if complete == RuleKind.CLOSED:
            raise UnsupportedError(
                f"{where}, and who has them open is seen there alone; use complete rename, or marker=NAME", known.name
            )

    def end_unattached(self, name: str) -> None:
        """Destroys a reservation whose last holder has left, unless somebody has attached to it since.

        Raises
        ------
        RefusedError
            Somebody is attached, or the server refuses; it stays.
        """
        with self._turns.of(name):
            known = self._database.reservation(name)
            if known is not None and not known.persistent:  # it may have been made so since
                self._changes.destroy(known, force=False)

    def destroy_non_persistent(self, *, force: bool) -> tuple[list[str], list[str]]:
        """Destroys all that live only until the instance goes down. Their names, and those of reservations on servers
        that are away: these are destroyed once both the server and a manager are there.

        Raises
        ------
        RefusedError
            One of them has writers or unstaged precious steps. All of them stay, unless the writers came while others
            were already being destroyed; the text then names these.
        """
        self.reconcile()
        doomed = [row for row in self._database.reservations() if not row.persistent]
        if not force:
            refuse_if_written(doomed, self.servers)
        destroyed: list[str] = []
        to_destroy: list[str] = []
        for row in doomed:
            try:
                with self._turns.of(row.name):
                    known = self._database.reservation(row.name)
                    if known is None or known.persistent:
                        continue
                    self._changes.destroy(known, force=force)
            except RefusedError as error:
                gone = f"; already destroyed: {', '.join(destroyed)}" if destroyed else ""
                raise RefusedError(error.what + gone, error.where) from None
            except DisconnectedError as error:  # its row says that it is to go
                if not row.server:
                    raise
                _log.warning("reservation %s is destroyed when its server is back: %s", row.name, error)
                to_destroy.append(row.name)
            else:
                destroyed.append(row.name)
        return destroyed, to_destroy

    def names_of(self, owner_uid: int | None) -> list[str]:
        """The reservations that this user has; None: all of them."""
        rows = self._database.reservations()
        return [row.name for row in rows if owner_uid is None or row.owner_uid == owner_uid]

    def reconcile(self, *, patient: bool = True) -> None:
        """Brings what was asked for and what the server has together: at each start, when the server is back, and
        before findings are reported.

        Parameters
        ----------
        patient : bool
            Waits also for those that somebody changes just now; else these are left to whoever changes them.

        Raises
        ------
        DisconnectedError
            The server cannot be reached.
        """
        self._reconciliation.reconcile(patient=patient)

    def reconcile_server(self, server: str) -> None:
        """The same for one server that has come, or is back, which hears then where reservations lie."""
        self._reconciliation.reconcile_server(server)
        self.servers.tell_directory()

    def take_server(self, name: str, address: str) -> PoolServer:
        """Has a server in the pool, with the reservations that it has; raises as `Servers.join` does. Idempotent."""
        joined = self.servers.join(name, address)
        self.reconcile_server(name)
        return joined

    def give_up_server(self, server: str) -> GivenUp:
        """Ends all waiting for a server that will not come back: it is in the pool no longer, and neither are the
        reservations whose home it was. Those that had only a share there have lost that.

        Raises
        ------
        RefusedError
            It answers, or it is the manager's own.
        """
        if not server:
            raise RefusedError("the manager's own server cannot be given up")
        if self.servers.look_at(server) is not None:
            raise RefusedError(
                f"server {server} answers; let it leave with its last reservation: `forebay servers retire {server}`",
            )
        lost, damaged = [], []
        for name in [row.name for row in self._database.reservations() if server in row.servers]:
            with self._turns.of(name):
                row = self._database.reservation(name)
                if row is None or server not in row.servers:
                    continue
                members = tuple(replace(one, lost=one.lost or one.server == server) for one in row.members)
                remaining = replace(row, members=members)
                if row.server == server:
                    lost.append(name)
                if row.server == server or row.state in (ReservationState.CREATING, ReservationState.DESTROYING):
                    self._changes.undo(remaining)
                else:
                    self._database.put_reservation(remaining)
                    damaged.append(name)
        self.servers.forget(server)
        self.servers.tell_directory()
        return GivenUp(server, tuple(lost), tuple(damaged))

    def findings(self) -> list[Finding]:
        """What `forebay doctor` should say about reservations, compared again with what the server has.

        Raises
        ------
        DisconnectedError
            The server cannot be reached.
        """
        return self._reconciliation.findings()


def _servers_text(count: int) -> str:
    return "1 server" if count == 1 else f"{count} servers"


def no_reservation(name: str) -> NotFoundError:
    """Also what a reservation looks like to whom it is not shared with."""
    return NotFoundError(f"there is no reservation {name}; `forebay create {name} …` makes it", name)
