# SPDX-License-Identifier: Apache-2.0
"""Pools and accounts as the centre has configured them: tables `[pools.NAME]` and `[accounts.NAME]`."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgumentError, PermissionDeniedError
from forebay.sizes import parse_size
from forebay.workflows.manager.core.configuration import check_table

__all__ = ["FILES_DRIVERS", "Account", "Pool", "PoolSettings", "Who"]

_POOL_KINDS = {
    "capacity": str,
    "granularity": str,
    "allow_users": list,
    "allow_groups": list,
    "user_quota": str,
    "user_quotas": dict,
    "files_driver": str,
    "striped": bool,
}
_ACCOUNT_KINDS = {"users": list, "groups": list, "quota": str}
_GRANULARITY = "16MiB"
#: "": files/ is used on its server's node alone.
FILES_DRIVERS = ("", "nfs", "commands")


@dataclass(frozen=True, slots=True)
class Who:
    """A user by name, with the names of the user's groups, as the system has them."""

    uid: int
    name: str
    groups: frozenset[str]

    @classmethod
    def of(cls, uid: int) -> Who:
        """The user; one without an account is known by number."""
        try:
            account = pwd.getpwuid(uid)
        except KeyError:
            return cls(uid, str(uid), frozenset())
        return cls(uid, account.pw_name, frozenset(map(_group_name, os.getgrouplist(account.pw_name, account.pw_gid))))

    def is_among(self, users: tuple[str, ...], groups: tuple[str, ...]) -> bool:
        """The user is named, or a group of the user's is."""
        return self.name in users or not self.groups.isdisjoint(groups)


@dataclass(frozen=True, slots=True)
class Pool:
    """Capacity that is handed out together."""

    name: str
    capacity_bytes: int | None = None  #: None: what the other pools leave of the server's
    granularity_bytes: int = 1  #: what a reservation takes is counted in these
    allow_users: tuple[str, ...] = ()  #: with `allow_groups` empty, too: everybody
    allow_groups: tuple[str, ...] = ()
    user_quota_bytes: int | None = None  #: what one user may hold; None: no limit
    user_quotas_bytes: dict[str, int] = field(default_factory=dict)  #: for some users another
    files_driver: str = ""  #: what shows files/ on the nodes of jobs; "": nothing does
    is_striped: bool = False  #: streams lie on as many servers as they have units

    def charge(self, size_bytes: int) -> int:
        """What so many bytes take: whole units."""
        return -(-size_bytes // self.granularity_bytes) * self.granularity_bytes

    def quota_of(self, who: Who) -> int | None:
        """What this user may hold in it; None: no limit."""
        return self.user_quotas_bytes.get(who.name, self.user_quota_bytes)

    def check_allows(self, who: Who) -> None:
        """PermissionDeniedError if the user is not on its lists."""
        if (self.allow_users or self.allow_groups) and not who.is_among(self.allow_users, self.allow_groups):
            raise PermissionDeniedError(f"pool {self.name} is not open to user {who.name}; ask your administrator")


@dataclass(frozen=True, slots=True)
class Account:
    """Users who have a quota together, over all pools."""

    name: str
    users: tuple[str, ...]
    groups: tuple[str, ...]
    quota_bytes: int | None

    def check_has(self, who: Who) -> None:
        """PermissionDeniedError if the user is not in it."""
        if not who.is_among(self.users, self.groups):
            raise PermissionDeniedError(f"user {who.name} does not belong to account {self.name}")


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """All of them. The default pool is there in any case, under the name ""."""

    pools: dict[str, Pool] = field(default_factory=lambda: {"": Pool("default")})
    accounts: dict[str, Account] = field(default_factory=dict)

    @property
    def decides(self) -> bool:
        """Something is configured; else the server alone says what there is room for."""
        if self.accounts or self.pools.keys() != {""}:
            return True
        return replace(self.pools[""], files_driver="") != Pool("default")

    @classmethod
    def from_configuration(cls, tables: dict[str, Any], path: Path) -> PoolSettings:
        """Reads the tables. The default pool is `[pools.default]`.

        Raises
        ------
        InvalidArgumentError
            A setting is unknown, of another type, or no size.
        """
        pools = {"": Pool("default")}
        for name, table in _subtables(tables, "pools", path):
            pools["" if name == "default" else name] = _pool(name, table, path)
        for name, pool in pools.items():
            if name and pool.capacity_bytes is None:
                raise InvalidArgumentError(
                    f"[pools.{name}] needs a capacity; only the default pool has none", str(path)
                )
        return cls(pools, {name: _account(name, table, path) for name, table in _subtables(tables, "accounts", path)})

    def pool(self, name: str) -> Pool:
        """The pool of that name, "" for the default; InvalidArgumentError if there is none."""
        key = "" if name == "default" else name
        if key not in self.pools:
            known = ", ".join(pool.name for pool in self.pools.values())
            raise InvalidArgumentError(f"there is no pool {name[:80]}; there are {known}")
        return self.pools[key]

    def account(self, name: str) -> Account:
        """The account of that name; InvalidArgumentError if there is none."""
        if name not in self.accounts:
            known = ", ".join(self.accounts) or "none"
            raise InvalidArgumentError(f"there is no account {name[:80]}; there are {known}")
        return self.accounts[name]

    def capacity_bytes(self, name: str, server_bytes: int) -> int:
        """What the pool has on a server of this size."""
        own = self.pools[name].capacity_bytes
        if own is not None:
            return own
        return max(0, server_bytes - sum(pool.capacity_bytes or 0 for pool in self.pools.values()))


def _subtables(tables: dict[str, Any], name: str, path: Path) -> list[tuple[str, Any]]:
    group = tables.get(name, {})
    if not isinstance(group, dict) or not all(isinstance(table, dict) for table in group.values()):
        raise InvalidArgumentError(f"{name} has no tables; write [{name}.NAME]", str(path))
    return list(group.items())


def _pool(name: str, table: Any, path: Path) -> Pool:
    title = f"pools.{name}"
    settings = check_table(table, title, _POOL_KINDS, path)
    granularity = _size(settings.get("granularity", 1 if name == "default" else _GRANULARITY), title, path)
    if not granularity:
        raise InvalidArgumentError(f"[{title}] granularity must be above 0", str(path))
    striped = settings.get("striped", False)
    if striped and name == "default" and "granularity" not in settings:
        raise InvalidArgumentError(f"[{title}] striped needs a granularity: what each server gives at least", str(path))
    quotas = settings.get("user_quotas", {})
    driver = settings.get("files_driver", "")
    if driver == "juicefs":
        raise InvalidArgumentError(
            f"[{title}] files_driver: no job can use juicefs yet; its operations are for direct calls alone", str(path)
        )
    if driver not in FILES_DRIVERS:
        known = ", ".join(f'"{name}"' for name in FILES_DRIVERS)
        raise InvalidArgumentError(f"[{title}] files_driver must be one of {known}", str(path))
    return Pool(
        name,
        _size_or_none(settings.get("capacity"), title, path),
        granularity,
        _names(settings.get("allow_users", []), title, path),
        _names(settings.get("allow_groups", []), title, path),
        _size_or_none(settings.get("user_quota"), title, path),
        {user: _size(quota, title, path) for user, quota in quotas.items()},
        driver,
        striped,
    )


def _account(name: str, table: Any, path: Path) -> Account:
    title = f"accounts.{name}"
    settings = check_table(table, title, _ACCOUNT_KINDS, path)
    return Account(
        name,
        _names(settings.get("users", []), title, path),
        _names(settings.get("groups", []), title, path),
        _size_or_none(settings.get("quota"), title, path),
    )


def _names(values: list[Any], title: str, path: Path) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise InvalidArgumentError(f"[{title}] lists have names in quotes", str(path))
    return tuple(values)


def _size_or_none(text: str | None, title: str, path: Path) -> int | None:
    return None if text is None else _size(text, title, path)


def _size(text: Any, title: str, path: Path) -> int:
    try:
        return parse_size(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"[{title}] {error.what}", str(path)) from None


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
