# SPDX-License-Identifier: Apache-2.0
"""Whether a reservation may be made now: the rules, without server, clock or database.

A pool gives its bytes to whoever came first. Whoever waits because of a quota of their own keeps nobody else waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forebay.errors import NoSpaceError
from forebay.sizes import format_size
from forebay.workflows.manager.database import Held
from forebay.workflows.manager.pool_settings import Pool, PoolSettings, Who
from forebay.workflows.manager.queue_table import QueueRow

__all__ = ["Ask", "FullError", "Holdings", "admit", "estimated_end_ns"]


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
    size_bytes: int
    who: Who


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
    server_bytes: int,
    server_free_bytes: int,
    before: Sequence[QueueRow],
    can_wait: bool = True,
) -> None:
    """Returns if it may be made.

    Parameters
    ----------
    before : sequence of QueueRow
        Who came earlier and waits.
    can_wait : bool
        Whoever asks could wait in the queue.

    Raises
    ------
    PermissionDeniedError
        The pool or the account is not the user's.
    FullError
        Not now.
    NoSpaceError
        Never, as the pools are: it is larger than the pool or a quota.
    """
    pool = settings.pool(ask.pool)
    pool.check_allows(ask.who)
    charge = pool.charge(ask.size_bytes)
    capacity = settings.capacity_bytes(ask.pool, server_bytes)
    if charge > capacity:
        raise NoSpaceError(
            f"{format_size(charge)} are asked for, and the whole pool {pool.name} has {format_size(capacity)}; ask for "
            "less"
        )
    or_wait = ", or wait with --wait" if can_wait else ""
    _check_quotas(ask, pool, charge, settings, holdings, or_wait)
    ahead = [row for row in before if row.pool == ask.pool and _within_quotas(row, settings, holdings)]
    free = min(capacity - holdings.of_pool(ask.pool), server_free_bytes)
    if charge > free:
        raise FullError(
            f"{format_size(charge)} are asked for, and pool {pool.name} has {format_size(max(0, free))} of "
            f"{format_size(capacity)} free; destroy something, ask for less{or_wait}",
            ahead=len(ahead),
        )
    if ahead:
        instead = "wait with --wait" if can_wait else "try again when they have it"
        raise FullError(f"{len(ahead)} came before and wait for space in pool {pool.name}; {instead}", ahead=len(ahead))


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
