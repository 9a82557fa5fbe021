# SPDX-License-Identifier: Apache-2.0
"""The servers of the pool, as the manager knows them: its own, and those that have joined. A server that is away is a
server, and its reservations exist. See docs/design/many-servers.md.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import sqlalchemy as sql

from forebay import _core
from forebay.admin import Admin
from forebay.errors import (
    AlreadyExistsError,
    DisconnectedError,
    ForebayError,
    InvalidArgumentError,
    NotFoundError,
    RefusedError,
)
from forebay.manager.records import PoolServer, ReservationRow, ReservationState
from forebay.records import ReservationInfo, ServerInfo
from forebay.workflows.manager.core.access import Peer, may_use
from forebay.workflows.manager.core.database.database import Database, metadata
from forebay.workflows.manager.core.database.drains import DrainTable
from forebay.workflows.manager.core.pools.placement import ServerSpace
from forebay.workflows.manager.core.pools.server_link import ServerLink
from forebay.workflows.manager.core.pools.server_name import server_name

__all__ = ["Servers", "server_text", "side_by_side"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
#: So many servers are asked side by side.
_ASKED_AT_ONCE_MAX = 32

_servers = sql.Table(
    "servers",
    metadata,
    sql.Column("name", sql.String, primary_key=True),
    sql.Column("address", sql.String, nullable=False, unique=True),
    sql.Column("root_uuid", sql.String, nullable=False, unique=True),
    sql.Column("joined_ns", sql.BigInteger, nullable=False),
    sql.Column("retired", sql.Boolean, nullable=False),
)


def server_text(name: str) -> str:
    """What a server is called in messages; "" is the manager's own."""
    return f"server {name or server_name()}"


def side_by_side(ask: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
    """Asks all these servers; as long as the slowest takes, so that one which hangs does not hold up the others."""
    if len(names) <= 1:
        return [ask(name) for name in names]
    with ThreadPoolExecutor(min(len(names), _ASKED_AT_ONCE_MAX), thread_name_prefix="servers") as pool:
        return list(pool.map(ask, names))


class Servers:
    """Usable from several threads.

    Parameters
    ----------
    connect : callable
        Connects to the server at HOST:PORT, "" the own one.
    address : str
        HOST:PORT of the own server, for the others; "": the manager has no pool of servers.
    """

    def __init__(self, database: Database, connect: Callable[[str], Admin], address: str = "") -> None:
        self._database = database
        self._connect = connect
        self.address = address
        self.drains = DrainTable(database)
        self.own = self._link_to("", "")
        self._lock = threading.Lock()  # Guards what follows.
        self._links: dict[str, ServerLink] = {}
        self._away_since: dict[str, float] = {}  # by server, wall clock
        self._capacities: dict[str, int] = {}  # bytes, as each server last said
        self._own_uuid = ""  # of the own root, once it has been told
        self._unfinished: set[str] = set()  # servers on which something is to be made or ended yet
        self._telling = threading.Lock()  # One directory at a time, the newer one last.

    # Which there are

    def others(self) -> list[PoolServer]:
        """Those that have joined, by name."""
        with self._database.look() as connection:
            return [PoolServer(**row) for row in connection.execute(_servers.select().order_by("name")).mappings()]

    def names(self) -> list[str]:
        """Of all, as rows of reservations have them: the own one, "", first."""
        return ["", *(server.name for server in self.others())]

    def key_of(self, name: str) -> str:
        """A name that somebody gave, as rows have it.

        Raises
        ------
        NotFoundError
            There is no such server.
        """
        if name in ("", server_name()):
            return ""
        if name not in self.names():
            known = ", ".join([server_name(), *(server.name for server in self.others())][:5])
            raise NotFoundError(f"there is no server {name[:80]}; there are {known}")
        return name

    def root_uuid(self, name: str) -> str:
        """Of a server's root, by which the records of reservations name it.

        Raises
        ------
        DisconnectedError
            It is not in the pool (any more), or it is the own one, which has not answered yet.
        """
        if name:
            known = next((server for server in self.others() if server.name == name), None)
            if known is None:
                raise DisconnectedError(f"server {name} is not in the pool any more")
            return known.root_uuid
        if not self._own_uuid:
            with self.own.admin() as admin:
                self._own_uuid = admin.server().uuid
        return self._own_uuid

    def of_root(self, uuid: str) -> str | None:
        """Which server has this root; None if none of the pool has."""
        found = next((server.name for server in self.others() if server.root_uuid == uuid), None)
        return "" if found is None and uuid and uuid == self.root_uuid("") else found

    def link(self, name: str) -> ServerLink:
        """The way to a server.

        Raises
        ------
        DisconnectedError
            It is not in the pool (any more).
        """
        if not name:
            return self.own
        with self._lock:
            link = self._links.get(name)
        if link is not None:
            return link
        server = next((server for server in self.others() if server.name == name), None)
        if server is None:
            raise DisconnectedError(f"server {name} is not in the pool any more")
        made = self._link_to(name, server.address, server.root_uuid)
        with self._lock:
            return self._links.setdefault(name, made)

    def close(self) -> None:
        """Closes all connections that nobody uses."""
        self.own.close()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.close()

    def _link_to(self, name: str, address: str, root_uuid: str = "") -> ServerLink:
        """The way to a server. `root_uuid`: of the only one that is meant, where it is known."""

        def connect() -> Admin:
            try:
                admin = self._connect(address)
            except DisconnectedError as error:
                if not name:
                    raise
                raise DisconnectedError(f"server {name} cannot be reached: {error.what}", error.where) from None
            # All servers of the pool have its key. Who listens where one is down may pass on to another.
            try:
                found = admin.server().uuid if root_uuid else root_uuid
            except BaseException:
                admin.close()
                raise
            if found != root_uuid:
                admin.close()
                raise DisconnectedError(f"server {name} cannot be reached: another one answers", address)
            return admin

        return ServerLink(connect)

    # Who is there

    def away_since(self, name: str) -> float | None:
        """Since when a server does not answer, seconds since 1970; None: it does, as far as is known."""
        with self._lock:
            return self._away_since.get(name)

    def look_at(self, name: str) -> tuple[int, int] | None:
        """Which run of the server answers now, as `ServerLink.incarnation`; None, and away from then on, if none."""
        try:
            incarnation = self.link(name).incarnation()
        except ForebayError as error:  # it refuses: another key, or another root
            _log.warning("%s: %s", server_text(name), error)
            incarnation = None
        with self._lock:
            if incarnation is not None:
                self._away_since.pop(name, None)
            else:
                self._away_since.setdefault(name, time.time())
        return incarnation

    def finish_later(self, name: str) -> None:
        """Something there could not be made or ended: it is to be reconciled as soon as it answers."""
        with self._lock:
            self._unfinished.add(name)

    def is_unfinished(self, name: str) -> bool:
        """Whether that was said; it no longer is from now on."""
        with self._lock:
            if name not in self._unfinished:
                return False
            self._unfinished.remove(name)
            return True

    def spaces(self) -> list[ServerSpace]:
        """What each has, the own one first. Asks those that are not away.

        Raises
        ------
        DisconnectedError
            The own one cannot be reached.
        """
        with self.own.admin() as admin:
            info = admin.server()
        self._own_uuid = info.uuid
        homes = Counter(row.server for row in self._database.reservations())
        own = self._space("", info, homes)
        servers = self.others()
        infos = side_by_side(
            lambda name: self._ask(name, lambda admin: admin.server()), [server.name for server in servers]
        )
        others = zip(servers, infos, strict=True)
        return [own, *(self._space(server.name, info, homes, retired=server.retired) for server, info in others)]

    def check_stays(self, name: str) -> None:
        """RefusedError for a retired server: no command lets it take anything again."""
        if any(server.name == name and server.retired for server in self.others()):
            raise RefusedError(
                f"server {name} is retired: it takes nothing new, and leaves the pool with its last reservation. "
                "After that `forebay down`, then `forebay up` on its node, let it join again"
            )

    def usable_reservations(self, peer: Peer) -> tuple[list[ReservationInfo], list[str]]:
        """What a user may read on all of them, by name, as its home knows each; and which servers are away. Files are
        counted of these alone, in the user's turn: nobody waits for the trees of others.
        """

        def may_see(info: ReservationInfo) -> bool:
            return peer.is_administrator or may_use(info, peer)

        def ask(admin: Admin) -> list[ReservationInfo]:
            names = [info.name for info in admin.reservations(count_files=False) if may_see(info)]
            return [info for info in admin.reservations(names=names, turn_of=peer.uid) if may_see(info)]

        homes = {row.name: row.server for row in self._database.reservations()}
        names = self.names()
        found: list[ReservationInfo] = []
        away: list[str] = []
        answers = side_by_side(lambda name: self._ask(name, ask), names)
        for name, there in zip(names, answers, strict=True):
            if there is None:
                away.append(name or server_name())
            else:  # of two with one name the pool's is the one that the manager knows
                found += [info for info in there if homes.get(info.name, name) == name]
        return sorted(found, key=lambda info: info.name), away

    def _ask(self, name: str, question: Callable[[Admin], _T]) -> _T | None:
        """What a server answers; None, and away from then on, if it does not."""
        if self.away_since(name) is not None:
            return None
        try:
            with self.link(name).admin() as admin:
                return question(admin)
        except ForebayError as error:
            _log.warning("%s: %s", server_text(name), error)
            with self._lock:
                self._away_since.setdefault(name, time.time())
            return None

    def _space(
        self, name: str, info: ServerInfo | None, homes: Mapping[str, int], *, retired: bool = False
    ) -> ServerSpace:
        shown = name or server_name()
        if info is None:
            # What it was is told of, as far as it is known: what is asked for may fit there once it is back.
            capacity_bytes = self._capacities.get(name, 0)
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.away_since(name) or time.time()))
            refuses = f"server {shown} is away since {since} and makes no reservations"
            return ServerSpace(shown, capacity_bytes, 0, refuses, homes.get(name, 0), is_away=True, is_retired=retired)
        self._capacities[name] = info.pool_bytes
        drain = self.drains.of(shown)
        refuses = "" if drain is None else drain.text
        if retired:
            refuses = f"server {shown} is retired and makes no reservations"
        free_bytes = info.pool_bytes - info.reserved_bytes
        return ServerSpace(
            shown, info.pool_bytes, free_bytes, refuses, homes.get(name, 0), info.reservations, is_retired=retired
        )

    # Coming and going

    def join(self, name: str, address: str) -> PoolServer:
        """Has a server in the pool from now on; idempotent. Its reservations are adopted by reconciliation.

        Raises
        ------
        RefusedError
            The manager has no pool of servers.
        AlreadyExistsError
            Another root has this name or this address, or one of its reservations' names is taken.
        DisconnectedError
            It cannot be reached at this address.
        """
        if not self.address:
            raise RefusedError(
                "this manager has no pool of servers; run `forebay down --keep`, then `forebay up --pool-key FILE "
                "--listen HOST:PORT` on its node"
            )
        if not _core.is_valid_name(name) or name == server_name():
            raise InvalidArgumentError(
                f"a server of a pool has a name of its own, and not {name[:80]!r}: a letter, then letters, digits, "
                "'_', '.' or '-'"
            )
        with self._link_to(name, address).admin() as admin:
            info = admin.server()
            there = admin.reservations(count_files=False)
        with self.own.admin() as admin:
            if admin.server().uuid == info.uuid:
                raise InvalidArgumentError(f"{address} is the manager's own server")
        # Of a share its home decides, once it is asked.
        taken = {row.name for row in self._database.reservations() if row.server != name}
        if both := sorted(taken & {one.name for one in there}):
            raise AlreadyExistsError(
                f"a reservation {both[0]} is in the pool already, and on this server, too; destroy one of them"
            )
        row = PoolServer(name, address, info.uuid, time.time_ns())
        with self._database.change() as connection:
            for known in connection.execute(_servers.select()).mappings():
                if (known["name"] == name) != (known["root_uuid"] == info.uuid) or (
                    known["address"] == address and known["name"] != name
                ):
                    raise AlreadyExistsError(
                        f"server {known['name']} at {known['address']} has this name, root or address; give another, "
                        f"or give that one up: `forebay servers forget {known['name']} --lost`"
                    )
                if known["name"] == name:
                    row = PoolServer(name, address, info.uuid, known["joined_ns"])
                    connection.execute(_servers.delete().where(_servers.c.name == name))
            values = {"name": name, "address": address, "root_uuid": info.uuid, "joined_ns": row.joined_ns}
            connection.execute(_servers.insert().values(values | {"retired": False}))
        with self._lock:
            self._away_since.pop(name, None)
            old = self._links.pop(name, None)
        if old is not None:
            old.close()
        _log.info("server %s at %s is in the pool", name, address)
        return row

    def retire(self, name: str) -> list[str]:
        """Lets it take nothing new; the names of reservations without which it could leave."""
        if not name:
            raise RefusedError("the manager's own server cannot leave the pool")
        with self._database.change() as connection:
            connection.execute(_servers.update().where(_servers.c.name == name).values(retired=True))
        return self._names_on(name)

    def leave_if_retired(self, name: str) -> bool:
        """True if a retired server had no reservation any more, and is in the pool no longer."""
        retired = any(server.name == name and server.retired for server in self.others())
        if not retired or self._names_on(name):
            return False
        self.forget(name)
        return True

    def forget(self, name: str) -> None:
        """It is in the pool no longer. Its rows of reservations are forgotten before."""
        with self._database.change() as connection:
            connection.execute(_servers.delete().where(_servers.c.name == name))
        with self._lock:
            self._away_since.pop(name, None)
            link = self._links.pop(name, None)
        if link is not None:
            link.close()
        _log.info("server %s is not in the pool any more", name)

    def _names_on(self, name: str) -> list[str]:
        return [row.name for row in self._database.reservations() if name in row.servers and not row.has_lost(name)]

    # Where reservations lie

    def tell_directory(self, to: Iterable[str] | None = None) -> None:
        """Tells servers where all reservations lie; those that are away hear it when they are back."""
        if not self.address:
            return
        with self._telling:
            addresses = {"": self.address} | {server.name: server.address for server in self.others()}
            homes = list(self._homes(addresses))
            servers = list(self._addresses())

            def tell(name: str) -> None:
                if self.away_since(name) is not None:
                    return
                try:
                    with self.link(name).admin() as admin:
                        admin.tell_pool_directory(self.address, homes, servers)
                except ForebayError as error:
                    _log.warning("%s does not know where reservations lie: %s", server_text(name), error)

            side_by_side(tell, list(addresses if to is None else to))

    def _homes(self, addresses: dict[str, str]) -> Iterator[tuple[str, str, str]]:
        for row in self._database.reservations():
            if row.state is ReservationState.PRESENT and row.id and row.server in addresses:
                yield row.name, row.id, addresses[row.server]

    def _addresses(self) -> Iterator[tuple[str, str, str]]:
        """All servers of the pool: root, name, address."""
        with contextlib.suppress(ForebayError):  # it is away, and has not been asked yet
            yield self.root_uuid(""), server_name(), self.address
        for server in self.others():
            yield server.root_uuid, server.name, server.address

    def address_of(self, row: ReservationRow) -> str:
        """HOST:PORT of the reservation's server, for clients on other nodes; "": it is the own one, or is not known."""
        return next((server.address for server in self.others() if server.name == row.server), "")

    def of(self, row: ReservationRow) -> ServerLink:
        """The way to the reservation's server, which is its home."""
        return self.link(row.server)
