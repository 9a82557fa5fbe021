# SPDX-License-Identifier: Apache-2.0
"""What a user may do in a reservation: the server's rule (staging-servers/reservations/shares.cpp), for what the
manager decides itself. The server has the shares, and asks again whenever something is opened.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from forebay.records import ReservationInfo, Rights, ShareKind

__all__ = ["Asker", "is_administrator", "may_use", "rights_of"]

_ORDER = (Rights.NONE, Rights.READ, Rights.WRITE)


def is_administrator(uid: int) -> bool:
    """Root and the manager's own user may do everything, and no limit of users is theirs."""
    return uid in (0, os.geteuid())


def rights_of(info: ReservationInfo, uid: int, groups: Collection[int]) -> Rights:
    """A user's own share counts, alone; without one, the most that any of the groups has. The owner may write, and so
    may the owner's group, unless a share says otherwise.
    """
    if uid == info.owner_uid:
        return Rights.WRITE
    of_groups = {info.owner_gid: Rights.WRITE}
    for share in info.shares:
        if share.kind is ShareKind.USER and share.id == uid:
            return share.rights
        if share.kind is ShareKind.GROUP:
            of_groups[share.id] = share.rights
    return max(
        (rights for group, rights in of_groups.items() if group in groups), key=_ORDER.index, default=Rights.NONE
    )


def may_use(info: ReservationInfo, asker: Asker) -> bool:
    """The user may read it at least. To others it does not exist."""
    return rights_of(info, asker.uid, asker.groups) is not Rights.NONE


@dataclass(frozen=True, slots=True)
class Asker:
    """A user who asks for something that may be another's."""

    uid: int
    groups: Collection[int]
