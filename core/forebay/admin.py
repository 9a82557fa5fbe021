# SPDX-License-Identifier: Apache-2.0
"""What the manager and the command line ask of a staging server: reservations, streams, staging marks, audits."""

from __future__ import annotations

from collections.abc import Iterable

from forebay import _core
from forebay.closing import Closing
from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.instance import InstanceLike, server_place
from forebay.near_names import near_text
from forebay.options import integer, known_options, milliseconds, text
from forebay.records import (
    Address,
    AwaitedStream,
    Finding,
    Lifetime,
    PingInfo,
    ReservationInfo,
    Retention,
    Rights,
    ServerInfo,
    ShareKind,
    StepSummary,
    StreamInfo,
)
from forebay.sizes import parse_size

__all__ = ["Admin"]

_PING_REQUESTS_MAX = 100_000


class Admin(Closing):
    """Connection to a staging server for administration. One call at a time, from any thread; a context manager.

    Every method raises DisconnectedError when the server cannot be reached, and PermissionDeniedError where the caller
    does not own what it asks for. Streams are named by ``"RES/STREAM"`` or an :class:`Address`.

    Parameters
    ----------
    instance : Instance or path, optional
        The instance: an :class:`Instance`, the path of its root, or that of its server's socket. Not given: the one
        that the environment names now. Later calls go to the same instance, whatever the environment names then.
    reconnect_timeout : float
        Seconds that each call, and this one, waits for a server that is away; 0: one attempt.
    server : str, optional
        Not given: what is asked of a reservation goes to the server that has it, if the instance belongs to a pool of
        servers. ``""``: all goes to the instance's own server. ``"HOST:PORT"``: to that server of its pool, as the
        instance's own user, which only that user and root may.
    """

    def __init__(
        self,
        instance: InstanceLike | None = None,
        *,
        reconnect_timeout: float = 0.0,
        server: str | None = None,
    ) -> None:
        self._place = server_place(instance)
        self._is_routed = server is None
        self._timeout_ms = milliseconds(reconnect_timeout, "reconnect_timeout")
        place = _core.pool_server(self._place, server) if server else self._place
        self._core = _core.Admin.connect(place, self._timeout_ms)
        # By server and reservation: a server lets each connection use the one that it was introduced for.
        self._homes: dict[tuple[str, str], _core.Admin] = {}

    def close(self) -> None:
        """Closes the connection; idempotent."""
        for home in self._homes.values():
            home.close()
        self._core.close()

    def _of(self, reservation: str) -> _core.Admin:
        """The connection to the server that has it."""
        if not self._is_routed:
            return self._core
        home = _core.home_of(self._place, reservation)
        if not home.reservation_id:
            return self._core
        key = home.text, home.reservation_id
        if key not in self._homes:
            self._homes[key] = _core.Admin.connect(home, self._timeout_ms)
        return self._homes[key]

    def _of_stream(self, address: str | Address) -> _core.Admin:
        place = address if isinstance(address, Address) else Address.parse(address)
        return self._of(place.reservation)

    def tell_pool_directory(
        self, manager: str, homes: Iterable[tuple[str, str, str]], servers: Iterable[tuple[str, str, str]] = ()
    ) -> None:
        """Tells the server where the reservations of its pool lie: the manager's.

        Parameters
        ----------
        manager : str
            ``"HOST:PORT"`` of the server on the manager's node.
        homes : iterable of (name, id, server)
            All reservations of the pool.
        servers : iterable of (uuid, name, server)
            All its servers, by the uuids of their roots.

        Raises
        ------
        RefusedError
            The server belongs to no pool.
        """
        self._core.tell_pool_directory(manager, list(homes), list(servers))

    def server(self) -> ServerInfo:
        """The server's version, root, pid and pool."""
        return ServerInfo.from_native(self._core.server())

    def ping(self, *, requests: int = 200, size: int | str = "64MiB") -> PingInfo:
        """Measures the way to the server; from another node any token will do.

        Parameters
        ----------
        requests : int
            Small requests, one after another, for the latency.
        size : int or str
            Bytes that the server sends by the data path for the rate; they are of no step. On the server's own node
            there is no data path: clients read and write the steps' files themselves.
        """
        if not 1 <= requests <= _PING_REQUESTS_MAX:
            raise InvalidArgumentError(f"a ping has 1 to {_PING_REQUESTS_MAX} requests, not {requests}")
        return PingInfo.from_native(self._core.ping(requests, parse_size(size)))

    @known_options
    def create(
        self,
        name: str,
        capacity: int | str,
        *,
        files: int | str = 0,
        persistent: bool = False,
        owner_uid: int | None = None,
        owner_gid: int | None = None,
        pool: str = "",
        account: str = "",
        id: str = "",  # noqa: A002 - as the record calls it
        members: Iterable[tuple[str, int]] = (),
    ) -> ReservationInfo:
        """Creates a reservation; idempotent.

        Parameters
        ----------
        name : str
            ``[A-Za-z][A-Za-z0-9_.-]{0,63}``.
        capacity : int or str
            For streams: bytes or a text such as ``"2GiB"`` (see :func:`parse_size`); rounded up to the pool's
            granularity. 0 makes a reservation of files only.
        files : int or str
            For ``files/``, beside that.
        persistent : bool
            Survives the end of the instance.
        owner_uid, owner_gid : int, optional
            None: the caller. Only the server's own user or root may name another.
        pool, account : str
            Of the manager, which finds them again after the loss of its database. Empty: the default pool, no account.
        id : str
            A uuid; empty: the server draws one.
        members : iterable of (str, int)
            For a reservation over several servers, all of which are asked alike: the uuid of each one's root and the
            bytes that it gives for streams, the home first. Empty: the server that is asked has all of it.

        Raises
        ------
        AlreadyExistsError
            The name is taken by a reservation of another owner, capacity or lifetime.
        NoSpaceError
            The pool has not enough left.
        """
        info = self._core.create_reservation(
            text("the name of a reservation", name),
            parse_size(capacity),
            parse_size(files),
            Lifetime.PERSISTENT if persistent else Lifetime.JOB,
            owner_uid,
            owner_gid,
            text("the name of a pool", pool),
            text("the name of an account", account),
            id,
            list(members),
        )
        return ReservationInfo.from_native(info)

    @known_options
    def change(self, name: str, *, persistent: bool | None = None, files: int | str | None = None) -> ReservationInfo:
        """Changes what a reservation was given; idempotent. Only the server's own user and root may: `forebay change`
        asks the manager.

        Parameters
        ----------
        persistent : bool, optional
            Survives the end of the instance; None: as it is.
        files : int or str, optional
            Its capacity for ``files/``; None: as it is.

        Raises
        ------
        NoSpaceError
            The pool has not enough left.
        RefusedError
            More lies in ``files/`` than it would have.
        """
        lifetime = None if persistent is None else Lifetime.PERSISTENT if persistent else Lifetime.JOB
        files_bytes = None if files is None else parse_size(files)
        return ReservationInfo.from_native(self._of(name).change_reservation(name, lifetime, files_bytes))

    def destroy(self, name: str, *, force: bool = False) -> None:
        """Destroys a reservation with all that lies in it; destroying what does not exist succeeds.

        Raises
        ------
        PermissionDeniedError
            It belongs to another user; or there is none, and the caller is not the server's user.
        RefusedError
            It has live writers or unstaged precious steps, and ``force`` was not given.
        """
        self._of(name).destroy_reservation(name, force)

    def share(
        self, name: str, rights: Rights | str, *, user: int | None = None, group: int | None = None
    ) -> ReservationInfo:
        """Says what a user or a group may do in a reservation; idempotent. The owner and root may.

        A user's own share counts, alone; without one, the most that their groups have. The owner's group may write
        unless a share says otherwise. What uses a right that is taken away ends.

        Parameters
        ----------
        rights : Rights or str
            ``"read"``, ``"write"``, or ``"none"`` to take both away.
        user, group : int
            A uid or a gid: one of them.

        Raises
        ------
        UnsupportedError
            The file system of ``files/`` has no access lists, which this needs; nothing is changed.
        """
        kind, number = (ShareKind.USER, user) if user is not None else (ShareKind.GROUP, group)
        if number is None or (user is not None and group is not None):
            raise InvalidArgumentError("a reservation is shared with a user or with a group: give one of them", name)
        return ReservationInfo.from_native(self._of(name).share_reservation(name, kind, number, Rights(rights)))

    def adopt_files(self, name: str, path: str = "") -> ReservationInfo:
        """Lets what belongs to the owner, at ``path`` below ``files/``, count as made in the reservation; idempotent.

        Shares reach only what was made in the reservation. What was moved into it, or copied with its access list, is
        not until it is adopted. The server does it with the owner's rights; the owner and root may ask for it.

        Raises
        ------
        NotFoundError
            There is nothing at ``path``.
        InvalidArgumentError
            It leads out of ``files/``, or through a link.
        UnsupportedError
            The file system of ``files/`` has no access lists, or the server is not root and not the owner's.
        """
        return ReservationInfo.from_native(self._of(name).adopt_files(name, path))

    def reservations(
        self,
        *,
        shares: bool = False,
        count_files: bool = True,
        names: Iterable[str] | None = None,
        turn_of: int | None = None,
    ) -> list[ReservationInfo]:
        """All reservations that the caller may see.

        Parameters
        ----------
        shares : bool
            Also those whose home is another server of the pool, and of which this one has only a share. Only the
            server's own user and root see them.
        count_files : bool
            With ``files_used_bytes``, for which the server walks through the trees of ``files/``: that takes about ten
            microseconds a file. Without, it is None.
        names : iterable of str, optional
            Of these alone; those that are not there are left out.
        turn_of : int, optional
            Uid of a user for whom an administrator asks: files are counted in turns of users.
        """
        found = self._core.reservations(
            count_files=count_files, names=None if names is None else list(names), turn_of=turn_of
        )
        infos = [ReservationInfo.from_native(info) for info in found]
        return [info for info in infos if shares or info.home]

    def reservation(self, name: str, *, count_files: bool = True) -> ReservationInfo:
        """One reservation; NotFoundError without it, with names that may have been meant.

        Parameters
        ----------
        count_files : bool
            As for `reservations`.
        """
        try:
            return ReservationInfo.from_native(self._of(name).reservation(name, count_files=count_files))
        except NotFoundError as error:
            names = [info.name for info in self.reservations(count_files=False)]
            raise NotFoundError(error.what + near_text(name, names), error.where) from None

    def streams(self, reservation: str) -> list[StreamInfo]:
        """The streams of a reservation."""
        return [StreamInfo.from_native(info) for info in self._of(reservation).streams(reservation)]

    def awaited_streams(self, reservation: str) -> list[AwaitedStream]:
        """Streams of a reservation that readers wait for and nobody has made yet, by name; the first 256."""
        return [AwaitedStream.from_native(stream) for stream in self._of(reservation).awaited_streams(reservation)]

    def stream(self, address: str | Address) -> StreamInfo:
        """One stream; NotFoundError without it, with names that may have been meant."""
        try:
            return StreamInfo.from_native(self._of_stream(address).stream(str(address)))
        except NotFoundError as error:
            place = address if isinstance(address, Address) else Address.parse(address)
            known = [info.name for info in self.reservations(count_files=False)]
            if place.reservation in known:
                names = [info["name"] for info in self._of(place.reservation).streams(place.reservation)]
                near = near_text(place.stream, names)
            else:
                near = near_text(place.reservation, known)
            raise NotFoundError(error.what + near, error.where) from None

    def steps(self, address: str | Address) -> list[StepSummary]:
        """The kept steps of a stream in order."""
        return [StepSummary(*summary) for summary in self._of_stream(address).steps(str(address))]

    def remove_stream(self, address: str | Address, *, force: bool = False) -> None:
        """Removes a stream and its steps; RefusedError as in :meth:`destroy`."""
        self._of_stream(address).remove_stream(str(address), force)

    def remove_consumer(self, address: str | Address, consumer: str) -> None:
        """Forgets a consumer's cursor, so that retention no longer waits for it."""
        self._of_stream(address).remove_consumer(str(address), consumer)

    def set_retention(self, address: str | Address, retention: Retention | str) -> None:
        """Changes which steps the stream keeps."""
        self._of_stream(address).set_retention(str(address), str(retention))

    def mark_staged(self, address: str | Address, epoch: int, steps: Iterable[int], receipt: str) -> None:
        """Records that these steps of ``epoch`` have a receipt; they lose their preciousness.

        Steps that are gone are ignored.

        Parameters
        ----------
        receipt : str
            Where the receipt lies or what identifies it.
        """
        self._of_stream(address).mark_staged(str(address), epoch, list(steps), receipt)

    def set_precious(self, address: str | Address, steps: Iterable[int], precious: bool = True) -> None:
        """Marks steps, by number, as precious or not; NotFoundError for one that is not kept.

        Steps that are gone are ignored where they are not to be precious any more.
        """
        self._of_stream(address).set_precious(str(address), list(steps), precious)

    def drop_steps(self, address: str | Address, steps: Iterable[int]) -> None:
        """Drops steps by number, whatever retention says; all of them or none. Those that are gone are ignored.

        Raises
        ------
        RefusedError
            One is precious and not staged out, a reader holds it, or a named consumer has not passed it.
        NotFoundError
            There has never been such a step.
        """
        self._of_stream(address).drop_steps(str(address), [integer("a step's number", step) for step in steps])

    def create_token(
        self,
        reservation: str,
        *,
        rights: Iterable[str] = ("read",),
        lifetime: float = 8 * 3600.0,
        uid: int | None = None,
    ) -> str:
        """A token with which the caller may use a reservation from another node.

        Parameters
        ----------
        reservation : str
            The only one that the token is for.
        rights : iterable of {"read", "write"}
            What it allows.
        lifetime : float
            Seconds until it expires.
        uid : int, optional
            The user whose token it is. For somebody else only the server's own user and root may make one.

        Returns
        -------
        str
            One line of text. Keep it in a file of mode 0600: whoever has it has its rights.
        """
        wanted = set(rights)
        if not wanted or wanted - {"read", "write"}:
            raise InvalidArgumentError("a token has the right to read, to write, or both")
        core = self._of(reservation)
        return core.create_token(reservation, "read" in wanted, "write" in wanted, round(lifetime), uid)

    def revoke_token(self, token: str) -> None:
        """Makes a token void before its time: connections with it end. Whoever has the token may. Idempotent.

        Raises
        ------
        InvalidArgumentError, PermissionDeniedError
            It is no token, or this server has not made it, or not with its present key.
        """
        self._core.revoke_token(token)

    def audit(self, read_data: bool = False) -> list[Finding]:
        """Cross-checks journals, space maps, descriptors and what lies on disk; ``read_data``: and every checksum."""
        return [Finding.from_native(finding) for finding in self._core.audit(read_data)]
