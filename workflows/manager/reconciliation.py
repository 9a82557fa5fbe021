# SPDX-License-Identifier: Apache-2.0
"""Reservations as they were asked for against those that the server has, after crashes of either side.

A crash amid a change leaves a row in state CREATING or DESTROYING, which is carried through here; both calls to the
server are idempotent.
"""

from __future__ import annotations

import contextlib
import logging
import time

from forebay.errors import DisconnectedError, ForebayError, NoSpaceError, NotFoundError, RefusedError, StorageError
from forebay.records import Finding, Lifetime, ReservationInfo, Severity
from forebay.workflows.manager.database import Database, ReservationRow
from forebay.workflows.manager.name_turns import NameTurns
from forebay.workflows.manager.pools import Pools
from forebay.workflows.manager.reservation_changes import ReservationChanges
from forebay.workflows.manager.servers import Servers, server_text
from forebay.workflows.manager.states import ReservationState

__all__ = ["Reconciliation"]

_log = logging.getLogger(__name__)


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
        """The same for one server; "" is the manager's own."""
        with self._servers.link(server).admin() as admin:
            existing = {info.name: info for info in admin.reservations()}
        rows = {row.name: row for row in self._database.reservations() if row.server == server}
        for name in sorted(existing.keys() | rows.keys()):
            row, info = rows.get(name), existing.get(name)
            if row is not None and info is not None and row.state is ReservationState.PRESENT and _is_same(row, info):
                continue
            if patient or not self._turns.is_taken(name):
                with self._turns.of(name):
                    self._reconcile_one(name, server)

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
                for row in self._database.reservations()
                if row.state is ReservationState.LOST
            ]
        )

    def _reconcile_one(self, name: str, server: str) -> None:
        """Looks at both sides again, for both may have changed before it was this one's turn."""
        existing: ReservationInfo | None = None
        with self._servers.link(server).admin() as admin, contextlib.suppress(NotFoundError):
            existing = admin.reservation(name)
        row = self._database.reservation(name)
        if row is not None and row.server != server:
            if existing is not None:
                _log.error("reservation %s of %s is left alone: the pool's is another one", name, server_text(server))
        elif row is not None:
            self._reconcile_row(row, existing)
        elif existing is not None:
            _log.info("reservation %s was not made by this manager; taking it over", name)
            self._changes.adopt(existing, server)

    def _reconcile_row(self, row: ReservationRow, existing: ReservationInfo | None) -> None:
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
                self._database.forget_reservation(row.name)
            else:
                self._changes.adopt(info, row.server)
        elif existing is None and row.state is ReservationState.PRESENT:
            _log.error("reservation %s should exist, but the server does not have it", row.name)
            self._database.set_reservation_state(row.name, ReservationState.LOST)
        elif existing is not None and (row.state is ReservationState.LOST or not _is_same(row, existing)):
            # It was created again without the manager, or changed just before the manager was lost.
            self._changes.adopt(existing, row.server)


def _is_same(row: ReservationRow, info: ReservationInfo) -> bool:
    persistent = info.lifetime is Lifetime.PERSISTENT
    return (row.id, row.persistent, row.files_bytes) == (info.id, persistent, info.files_bytes)
