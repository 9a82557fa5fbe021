# SPDX-License-Identifier: Apache-2.0
"""Whether a reservation may be made now, and on which servers: the rules, without clock, database or a server's answer.

A pool gives its bytes to whoever came first. Whoever waits because of a quota of their own keeps nobody else waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forebay.errors import InvalidArgumentError, NoSpaceError
from forebay.manager.records import QueueRow
from forebay.sizes import format_size
from forebay.workflows.manager.core.database.database import Held
from forebay.workflows.manager.core.pools.placement import Placement, PlacementRequest, ServerSpace, emptied, place
from forebay.workflows.manager.core.pools.pool_settings import Pool, PoolSettings, Who

__all__ = ["Ask", "FullError", "Holdings", "admit", "check_staying", "estimated_end_ns"]

_NAMES_SHOWN_MAX = 3
_ENLARGE = "run `forebay down --keep`, then `forebay up` with a larger --capacity"


class FullError(NoSpaceError):
    """There is no room now; there may be later.

    `ahead`: how many came before.
    """

    def __init__(self, what: str, where: str = "", ahead: int = 0) -> None:
        super().__init__(what, where)
        self.ahead = ahead


@dataclass(frozen=True, slots=True)
class Ask:
    """What somebody wants."""

    pool: str
    account: str
    size_bytes: int  #: for streams and files together
    who: Who
    files_bytes: int = 0  #: of these
    servers: int = 0  #: on how many, apart from its size; 0: as many as `on` names, else one
    on: tuple[str, ...] = ()  #: only on these servers
    home_on: tuple[str, ...] = ()  #: the home only on one of these
    unit_bytes: int = 1  #: shares on several servers are multiples of this, as well as of the pool's units
    share_bytes_min: int = 0  #: what each of several servers gives for streams at least

    def placement(self) -> PlacementRequest:
        """What is to be placed."""
        return PlacementRequest(
            self.size_bytes,
            self.files_bytes,
            servers=self.servers,
            on=self.on,
            home_on=self.home_on,
            share_bytes_min=self.share_bytes_min,
        )

    def granularity_bytes(self, pool: Pool) -> int:
        """The unit of its shares."""
        if self.placement().server_count == 1:
            return pool.granularity_bytes
        return -(-pool.granularity_bytes // self.unit_bytes) * self.unit_bytes


class Holdings:
    """What is given away already."""

    def __init__(self, settings: PoolSettings, held: Iterable[Held]) -> None:
        self._settings = settings
        self._of_pool: dict[str, int] = {}
        self._of_user: dict[tuple[str, int], int] = {}
        self._of_account: dict[str, int] = {}
        for alike in held:
            self.add(alike)

    def add(self, held: Held) -> None:
        """Counts more. Those in a pool that is not configured any more count in the default pool."""
        pool, account, uid = held.pool if held.pool in self._settings.pools else "", held.account, held.owner_uid
        charge = held.count * self._settings.pools[pool].charge(held.size_bytes)
        self._of_pool[pool] = self._of_pool.get(pool, 0) + charge
        self._of_user[pool, uid] = self._of_user.get((pool, uid), 0) + charge
        self._of_account[account] = self._of_account.get(account, 0) + charge

    def of_pool(self, pool: str) -> int:
        """Bytes of a pool."""
        return self._of_pool.get(pool, 0)

    def of_user(self, pool: str, uid: int) -> int:
        """Bytes that a user holds in a pool."""
        return self._of_user.get((pool, uid), 0)

    def of_account(self, account: str) -> int:
        """Bytes that an account holds in all pools."""
        return self._of_account.get(account, 0)


def admit(
    ask: Ask,
    *,
    settings: PoolSettings,
    holdings: Holdings,
    servers: Sequence[ServerSpace],
    before: Sequence[QueueRow],
    can_wait: bool = True,
) -> Placement:
    """Where it may be made.

    Parameters
    ----------
    servers : sequence of ServerSpace
        All there are.
    before : sequence of QueueRow
        Who came earlier and waits.
    can_wait : bool
        Whoever asks could wait in the queue.

    Raises
    ------
    PermissionDeniedError
        The pool or the account is not the user's.
    InvalidArgumentError
        There is no such server, or it names fewer servers than it wants.
    FullError
        Not now.
    NoSpaceError
        Never, as the pools are: it is larger than the pool or a quota, or its share than every server.
    """
    pool = settings.pool(ask.pool)
    pool.check_allows(ask.who)
    _check_servers(ask, servers)
    charge = pool.charge(ask.size_bytes)
    all_bytes = sum(server.capacity_bytes for server in servers)
    capacity = settings.capacity_bytes(ask.pool, all_bytes)
    if charge > capacity:
        # A pool that is smaller than the servers was made so by who runs them.
        or_enlarge = f", or {_ENLARGE}" if capacity == all_bytes else ""
        raise NoSpaceError(
            f"{format_size(charge)} are asked for, and the whole pool {pool.name} has {format_size(capacity)}; ask for "
            f"less{or_enlarge}"
        )
    request = ask.placement()
    granularity_bytes = ask.granularity_bytes(pool)
    _check_ever(request, servers, pool, granularity_bytes)
    or_wait = ", or wait with --wait" if can_wait else ""
    _check_quotas(ask, pool, charge, settings, holdings, or_wait)
    ahead = [row for row in before if row.pool == ask.pool and _within_quotas(row, settings, holdings)]
    _check_taking(request, servers, can_wait=can_wait)
    taking_bytes = sum(server.free_bytes for server in servers if not server.refuses)
    free = min(capacity - holdings.of_pool(ask.pool), taking_bytes)
    if charge > free:
        raise FullError(
            f"{format_size(charge)} are asked for, and pool {pool.name} has {format_size(max(0, free))} of "
            f"{format_size(capacity)} free; destroy something, ask for less{or_wait}",
            ahead=len(ahead),
        )
    placement = place(servers, request, granularity_bytes)
    if placement is None:
        raise FullError(
            f"{format_size(charge)} are asked for, and {_where_text(request)} has room for that now; "
            f"destroy something, ask for less{or_wait}",
            ahead=len(ahead),
        )
    if ahead:
        instead = "wait with --wait" if can_wait else "try again when they have it"
        raise FullError(f"{len(ahead)} came before and wait for space in pool {pool.name}; {instead}", ahead=len(ahead))
    return placement


def check_staying(ask: Ask, servers: Sequence[ServerSpace]) -> None:
    """InvalidArgumentError if it means retired servers, which will never take anything: nobody is to wait for them."""
    retired = {server.name for server in servers if server.is_retired}
    staying = [server for server in servers if not server.is_retired]
    if not retired:
        return
    for name in ask.on:
        if name in retired:
            raise InvalidArgumentError(
                f"server {name} is retired and leaves the pool; name others: there are {_names_text(staying)}"
            )
    if not ask.on and ask.servers > len(staying):
        raise InvalidArgumentError(
            f"{ask.servers} servers are asked for, and there are {len(staying)}: the others are retired and leave "
            "the pool"
        )


def _names_text(servers: Sequence[ServerSpace]) -> str:
    names = [server.name for server in servers]
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (", …" if len(names) > _NAMES_SHOWN_MAX else "")


def _check_servers(ask: Ask, servers: Sequence[ServerSpace]) -> None:
    names = [server.name for server in servers]
    for name in ask.on:
        if name not in names:
            raise InvalidArgumentError(f"there is no server {name[:80]}; there are {_names_text(servers)}")
    most = len(set(ask.on)) or len(names)
    if ask.servers > most:
        named = "--on names" if ask.on else "there are"
        raise InvalidArgumentError(f"{ask.servers} servers are asked for, and {named} {most}")


def _check_ever(request: PlacementRequest, servers: Sequence[ServerSpace], pool: Pool, granularity_bytes: int) -> None:
    if place(emptied(servers), request, granularity_bytes) is None:
        largest = max((server.capacity_bytes for server in servers), default=0)
        raise NoSpaceError(
            f"{format_size(pool.charge(request.size_bytes))} are asked for, and {_where_text(request)} is "
            f"large enough: the largest server has {format_size(largest)}; ask for less, or {_ENLARGE}"
        )


def _check_taking(request: PlacementRequest, servers: Sequence[ServerSpace], *, can_wait: bool) -> None:
    """FullError if too few of the servers take anything."""
    on = request.on or (request.home_on if request.server_count == 1 else ())
    meant = [server for server in servers if not on or server.name in on]
    refusing = [server for server in meant if server.refuses]
    if len(meant) - len(refusing) < request.server_count:
        more = f" (and {len(refusing) - 1} more)" if len(refusing) > 1 else ""
        or_wait = ", or use --wait" if can_wait else ""
        raise FullError(
            f"{refusing[0].refuses}{more}; try again when it takes some again: `forebay status` tells{or_wait}"
        )


def _where_text(request: PlacementRequest) -> str:
    if request.server_count > 1:
        return f"no choice of {request.server_count} servers"
    on = request.on or request.home_on
    return f"none of {', '.join(on[:_NAMES_SHOWN_MAX])}" if on else "no single server"


def estimated_end_ns(missing_bytes: int, ends: Iterable[tuple[int, int]]) -> int | None:
    """When so many bytes will have come free, at the latest, by the ends that are known: pairs of time and bytes. None
    if they are not enough.
    """
    for end_ns, size_bytes in sorted(ends):
        missing_bytes -= size_bytes
        if missing_bytes <= 0:
            return end_ns
    return None


def _within_quotas(row: QueueRow, settings: PoolSettings, holdings: Holdings) -> bool:
    if row.pool not in settings.pools:
        return False
    pool = settings.pools[row.pool]
    ask = Ask(row.pool, row.account, row.size_bytes, Who.of(row.owner_uid))
    try:
        _check_quotas(ask, pool, pool.charge(row.size_bytes), settings, holdings, "")
    except NoSpaceError:
        return False
    return True


def _check_quotas(ask: Ask, pool: Pool, charge: int, settings: PoolSettings, holdings: Holdings, or_wait: str) -> None:
    _check_quota(
        charge,
        pool.quota_of(ask.who),
        holdings.of_user(ask.pool, ask.who.uid),
        f"user {ask.who.name} in pool {pool.name}",
        or_wait,
    )
    if ask.account and ask.account in settings.accounts:
        quota = settings.accounts[ask.account].quota_bytes
        _check_quota(charge, quota, holdings.of_account(ask.account), f"account {ask.account}", or_wait)


def _check_quota(charge: int, quota: int | None, held: int, whose: str, or_wait: str) -> None:
    if quota is None or charge + held <= quota:
        return
    text = f"{format_size(charge)} are asked for, and the quota of {whose} is {format_size(quota)}"
    if charge > quota:
        raise NoSpaceError(f"{text}; ask for less")
    raise FullError(f"{text}, of which {format_size(held)} are held; destroy something{or_wait}")
