# SPDX-License-Identifier: Apache-2.0
"""How a reservation that is asked for differs from the one of that name, and the command that would make it so."""

from __future__ import annotations

import shlex

from forebay.errors import AlreadyExistsError
from forebay.manager.records import ReservationRow
from forebay.sizes import format_size

__all__ = ["another_exists"]


def another_exists(request: ReservationRow, have: ReservationRow, granularity_bytes: int) -> AlreadyExistsError | None:
    """What to tell who asks for a reservation whose name is taken; None if it is the one that they ask for."""
    if have.owner_uid != request.owner_uid:
        return AlreadyExistsError("the name is taken by a reservation of another user; choose another", request.name)

    def rounded(size_bytes: int) -> int:
        return -(-size_bytes // granularity_bytes) * granularity_bytes

    fixed: list[str] = []
    changeable: list[str] = []
    command = ["forebay", "change", request.name]
    if rounded(request.capacity_bytes) != have.capacity_bytes:
        fixed.append(
            f"it has {format_size(have.capacity_bytes)} for streams, not {format_size(request.capacity_bytes)}"
        )
    for what, wanted, had in (("pool", request.pool, have.pool), ("account", request.account, have.account)):
        if wanted != had:
            fixed.append(f"it is of {_named(what, had)}, not of {_named(what, wanted)}")
    if request.persistent != have.persistent:
        changeable.append("it is not persistent" if request.persistent else "it is persistent")
        command.append("--persistent" if request.persistent else "--not-persistent")
    if rounded(request.files_bytes) != have.files_bytes:
        changeable.append(f"it has {format_size(have.files_bytes)} for files, not {format_size(request.files_bytes)}")
        command += ["--files", _exact(rounded(request.files_bytes))]
    if not fixed and not changeable:
        return None
    cures = []
    if changeable:
        cures.append(f"`{shlex.join(command)}` changes {'the rest' if fixed else 'it'}")
    if fixed:
        cures.insert(
            0, "Its capacity for streams, pool and account cannot be changed: destroy it first, or choose another name"
        )
    return AlreadyExistsError(
        f"a reservation of this name exists and differs: {'; '.join(fixed + changeable)}. {'; '.join(cures)}",
        request.name,
    )


def _named(what: str, name: str) -> str:
    if not name:
        return "the default pool" if what == "pool" else "no account"
    return f"{what} {name}"


def _exact(size_bytes: int) -> str:
    """A size that `forebay.parse_size` reads back as it is."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)
