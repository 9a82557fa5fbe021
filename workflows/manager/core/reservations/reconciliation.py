# SPDX-License-Identifier: Apache-2.0
"""Reservations as they were asked for against those that the server has, after crashes of either side.

A crash amid a change leaves a row in state CREATING or DESTROYING, which is carried through here; both calls to the
server are idempotent.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace

from forebay.errors import DisconnectedError, ForebayError, NoSpaceError, NotFoundError, RefusedError, StorageError
from forebay.manager.records import ReservationRow, ReservationState
from forebay.records import Finding, Lifetime, ReservationInfo, Severity
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.name_turns import NameTurns
from forebay.workflows.manager.core.pools.pools import Pools
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers, server_text
from forebay.workflows.manager.core.reservations.reservation_changes import ReservationChanges

__all__ = ["Reconciliation"]

_log = logging.getLogger(__name__)

_CHANGING = (ReservationState.CREATING, ReservationState.DESTROYING)


class Reconciliation:
    """Usable from several threads; takes the turns that changes take."""

    def __init__(
        self, database: Database, servers: Servers, pools: Pools, changes: ReservationChanges, turns: NameTurns
    ) -> None:
        self._database = database
        self._servers = servers
        self._pools = pools
        self._changes = changes
        self._turns = turns

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
        self.reconcile_server("", patient=patient)
        for server in self._servers.others():
            if self._servers.away_since(server.name) is None:
                try:
                    self.reconcile_server(server.name, patient=patient)
                except DisconnectedError as error:
                    _log.warning("%s: %s", server_text(server.name), error)

    def reconcile_server(self, server: str, *, patient: bool = True) -> None:
        """The same for one server; "" is the manager's own. One that cannot be brought together keeps no other from
        it: what it raises comes last.
        """
        with self._servers.link(server).admin() as admin:
            existing = {info.name: info for info in admin.reservations(shares=True, count_files=False)}
        rows = {row.name: row for row in self._database.reservations() if server in row.servers}
        failures: list[ForebayError] = []
        for name in sorted(existing.keys() | rows.keys()):
            row, info = rows.get(name), existing.get(name)
            if row is not None and info is not None and _agree(row, info, server):
                continue
            if patient or not self._turns.is_taken(name):
                try:
                    with self._turns.of(name):
                        self._reconcile_one(name, server)
                except NoSpaceError:
                    raise
                except ForebayError as error:
                    if isinstance(error, DisconnectedError) and self._servers.link(server).incarnation() is None:
                        raise
                    failures.append(error)  # its files are not let go of, for example
        if failures:
            raise failures[0]

    def findings(self) -> list[Finding]:
        """What `forebay doctor` should say about reservations, compared again with what the server has.

        Raises
        ------
        DisconnectedError
            The server cannot be reached.
        """
        try:
            self._database.check_writable()
            self.reconcile(patient=False)
        except (NoSpaceError, StorageError) as error:
            return [Finding(Severity.PROBLEM, "manager", str(error))]
        drain = self._pools.drain_now()
        rows = self._database.reservations()
        drained = [] if drain is None else [Finding(Severity.NOTE, "server", f"{drain.text}; see `forebay undrain`")]
        away = [
            Finding(
                Severity.PROBLEM,
                server_text(server.name),
                f"it is away since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(since))}; its reservations "
                "cannot be used until it is back (`forebay up` on its node), or until "
                f"`forebay servers forget {server.name} --lost` gives them up",
            )
            for server in self._servers.others()
            if (since := self._servers.away_since(server.name)) is not None
        ]
        return (
            drained
            + away
            + [
                Finding(
                    Severity.PROBLEM,
                    f"reservation {row.name}",
                    "it should exist, but the server does not have it: somebody removed its data without the manager. "
                    f"`forebay destroy {row.name}` forgets it, `forebay create {row.name} …` creates it again, empty",
                )
                for row in rows
                if row.state is ReservationState.LOST
            ]
            + [finding for row in rows for finding in self._findings_of_members(row)]
        )

    def _findings_of_members(self, row: ReservationRow) -> list[Finding]:
        """What is to be said of one that lies on several servers."""
        where = f"reservation {row.name}"
        found = []
        lost = [member.server or server_name() for member in row.members if member.lost]
        away = [
            member.server
            for member in row.members
            if not member.lost and self._servers.away_since(member.server) is not None
        ]
        if lost and row.state is ReservationState.PRESENT:
            found.append(
                Finding(
                    Severity.PROBLEM,
                    where,
                    f"what lay on {_some(lost)} is lost: the server was given up, or has its share no longer. Stage "
                    f"out what can be read, then `forebay destroy {row.name}`",
                )
            )
        if away and row.state in (ReservationState.CREATING, ReservationState.DESTROYING):
            doing = "made" if row.state is ReservationState.CREATING else "destroyed"
            found.append(
                Finding(Severity.NOTE, where, f"it is being {doing}, which is finished when {_some(away)} is back")
            )
        return found

    def _reconcile_one(self, name: str, server: str) -> None:
        """Looks at both sides again, for both may have changed before it was this one's turn."""
        existing: ReservationInfo | None = None
        with self._servers.link(server).admin() as admin, contextlib.suppress(NotFoundError):
            existing = admin.reservation(name, count_files=False)
        row = self._database.reservation(name)
        if existing is not None and not existing.home:
            self._reconcile_share(row, existing, server)
        elif row is not None and row.server != server:
            if existing is not None:
                _log.error("reservation %s of %s is left alone: the pool's is another one", name, server_text(server))
            else:
                self._reconcile_missing_share(row, server)
        elif row is not None:
            self._reconcile_row(row, existing)
        elif existing is not None:
            _log.info("reservation %s was not made by this manager; taking it over", name)
            self._changes.adopt(existing, server)

    def _reconcile_share(self, row: ReservationRow | None, share: ReservationInfo, server: str) -> None:
        """What a server has of a reservation whose home is another one. The home decides whether it is to be there."""
        if row is not None and row.id == share.id and row.state in _CHANGING:
            self._reconcile_row(row, None)
            return
        home = self._servers.of_root(share.members[0].server)
        whole = None if home is None else self._on_home(share, home)
        if home is None or whole is None:
            _log.warning(
                "the share of reservation %s on %s is left alone: its home is not there",
                share.name,
                server_text(server),
            )
        elif whole.id != share.id or not whole.home:
            _log.warning(
                "a share on %s belongs to no reservation and is destroyed: %s", server_text(server), share.name
            )
            with self._servers.link(server).admin() as admin:
                admin.destroy(share.name, force=True)
        elif row is None or row.id == share.id:
            self._take_share(row or self._changes.adopt(whole, home), share, server)

    def _on_home(self, share: ReservationInfo, home: str) -> ReservationInfo | None:
        """What the home has of that name: the same, with another id, or with none; None if it does not answer."""
        if self._servers.away_since(home) is not None:
            return None
        try:
            with self._servers.link(home).admin() as admin:
                return admin.reservation(share.name, count_files=False)
        except NotFoundError:
            return replace(share, id="", home=True)
        except DisconnectedError:
            return None

    def _take_share(self, row: ReservationRow, share: ReservationInfo, server: str) -> None:
        """The server has what it gives to it, under whatever name it was known before."""
        uuid = self._servers.root_uuid(server)
        members = tuple(
            replace(member, server=server, lost=False) if member.root_uuid == uuid else member for member in row.members
        )
        if members != row.members:
            _log.info("reservation %s has its share on %s", share.name, server_text(server))
            self._database.put_reservation(replace(row, members=members))

    def _reconcile_missing_share(self, row: ReservationRow, server: str) -> None:
        member = row.member_on(server)
        if row.state in _CHANGING:
            self._reconcile_row(row, None)
        elif member is not None and not member.lost:
            _log.error("%s does not have its share of reservation %s", server_text(server), row.name)
            members = tuple(replace(one, lost=one.lost or one == member) for one in row.members)
            self._database.put_reservation(replace(row, members=members))

    def _reconcile_row(self, row: ReservationRow, existing: ReservationInfo | None) -> None:
        try:
            self._carry_through(row, existing)
        except DisconnectedError as error:
            if not row.members:
                raise
            # Another of its servers, perhaps: that one's return is awaited.
            _log.warning("reservation %s is left as it is for now: %s", row.name, error)

    def _carry_through(self, row: ReservationRow, existing: ReservationInfo | None) -> None:
        if row.state is ReservationState.DESTROYING:
            try:
                self._changes.destroy(row, force=row.force)
            except RefusedError as error:
                _log.warning("reservation %s stays: %s", row.name, error)
        elif row.state is ReservationState.CREATING:
            try:
                info = self._changes.create(row)
            except DisconnectedError:
                raise
            except ForebayError as error:
                # Whoever asked for it was told nothing, or that the manager was lost; it is not there and that is
                # consistent.
                _log.warning("reservation %s is not created: %s", row.name, error)
                self._changes.undo(row)
            else:
                self._changes.adopt(info, row.server)
        elif existing is None and row.state is ReservationState.PRESENT:
            _log.error("reservation %s should exist, but the server does not have it", row.name)
            self._database.set_reservation_state(row.name, ReservationState.LOST)
        elif existing is not None and (row.state is ReservationState.LOST or not _is_same(row, existing)):
            # It was created again without the manager, or changed just before the manager was lost.
            self._changes.adopt(existing, row.server)


def _agree(row: ReservationRow, info: ReservationInfo, server: str) -> bool:
    """The server has what the row says."""
    if row.state is not ReservationState.PRESENT:
        return False
    if info.home:
        return row.server == server and _is_same(row, info)
    member = row.member_on(server)
    return row.id == info.id and member is not None and not member.lost


def _some(servers: list[str]) -> str:
    return ", ".join(servers[:3]) + (f" and {len(servers) - 3} more" if len(servers) > 3 else "")


def _is_same(row: ReservationRow, info: ReservationInfo) -> bool:
    persistent = info.lifetime is Lifetime.PERSISTENT
    return (row.id, row.persistent, row.files_bytes) == (info.id, persistent, info.files_bytes)
