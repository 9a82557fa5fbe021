# SPDX-License-Identifier: Apache-2.0
"""What a user may do in a reservation: the server's rule (staging-servers/reservations/shares.cpp), for what the
manager decides itself. The server has the shares, and asks again whenever something is opened.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from forebay.errors import PermissionDeniedError
from forebay.records import ReservationInfo, Rights, ShareKind

__all__ = ["Peer", "is_administrator", "may_use", "rights_of"]

_ORDER = (Rights.NONE, Rights.READ, Rights.WRITE)


def is_administrator(uid: int) -> bool:
    """Root and the manager's own user may do everything, and no limit of users is theirs."""
    return uid in (0, os.geteuid())


@dataclass(frozen=True, slots=True)
class Peer:
    """The user who asks, for something that may be another's."""

    uid: int
    gid: int
    groups: Collection[int] = frozenset()  #: all that it is in

    @property
    def is_administrator(self) -> bool:
        """Root and the manager's own user may do everything."""
        return is_administrator(self.uid)

    @property
    def whose(self) -> int | None:
        """Whose things the peer sees: its own; None: everybody's."""
        return None if self.is_administrator else self.uid

    def may_see(self, uid: int) -> bool:
        """The peer is that user, or an administrator."""
        return self.uid == uid or self.is_administrator

    def must_be_administrator(self, text: str) -> None:
        """PermissionDeniedError with that text if it is none."""
        if not self.is_administrator:
            raise PermissionDeniedError(text)


def rights_of(info: ReservationInfo, peer: Peer) -> Rights:
    """A user's own share counts, alone; without one, the most that any of the groups has. The owner may write, and so
    may the owner's group, unless a share says otherwise.
    """
    if peer.uid == info.owner_uid:
        return Rights.WRITE
    of_groups = {info.owner_gid: Rights.WRITE}
    for share in info.shares:
        if share.kind is ShareKind.USER and share.id == peer.uid:
            return share.rights
        if share.kind is ShareKind.GROUP:
            of_groups[share.id] = share.rights
    return max(
        (rights for group, rights in of_groups.items() if group in peer.groups), key=_ORDER.index, default=Rights.NONE
    )


def may_use(info: ReservationInfo, peer: Peer) -> bool:
    """The user may read it at least. To others it does not exist."""
    return rights_of(info, peer) is not Rights.NONE
