# SPDX-License-Identifier: Apache-2.0
"""The manager's rule of who may use a reservation is the server's."""

from __future__ import annotations

import pytest

from forebay.records import Lifetime, ReservationInfo, Rights, Share, ShareKind
from forebay.workflows.manager.core.access import Peer, may_use, rights_of

OWNER, STRANGER = 7, 8
STAFF, CLIMATE, GUESTS = 70, 80, 90


def reservation(*shares: Share) -> ReservationInfo:
    return ReservationInfo(
        name="run1",
        id="",
        capacity_bytes=1,
        used_bytes=0,
        files_bytes=0,
        files_used_bytes=0,
        segment_bytes=1,
        lifetime=Lifetime.PERSISTENT,
        owner_uid=OWNER,
        owner_gid=STAFF,
        created_ns=0,
        streams=0,
        files_path="",
        shares=shares,
        access_generation=0,
    )


def user(uid: int, rights: Rights) -> Share:
    return Share(ShareKind.USER, uid, rights)


def group(gid: int, rights: Rights) -> Share:
    return Share(ShareKind.GROUP, gid, rights)


@pytest.mark.parametrize(
    ("shares", "uid", "groups", "rights"),
    [
        ((), OWNER, (), Rights.WRITE),
        ((), STRANGER, (CLIMATE,), Rights.NONE),
        ((), STRANGER, (STAFF,), Rights.WRITE),
        ((group(STAFF, Rights.NONE),), STRANGER, (STAFF,), Rights.NONE),
        ((group(CLIMATE, Rights.READ),), STRANGER, (CLIMATE,), Rights.READ),
        ((group(CLIMATE, Rights.READ), group(GUESTS, Rights.WRITE)), STRANGER, (CLIMATE, GUESTS), Rights.WRITE),
        ((group(CLIMATE, Rights.WRITE), user(STRANGER, Rights.NONE)), STRANGER, (CLIMATE, STAFF), Rights.NONE),
        ((user(STRANGER, Rights.READ),), STRANGER, (STAFF,), Rights.READ),
        ((user(9, Rights.READ),), STRANGER, (), Rights.NONE),
    ],
)
def test_a_users_own_share_counts_alone_and_else_the_most_of_the_groups(
    shares: tuple[Share, ...], uid: int, groups: tuple[int, ...], rights: Rights
) -> None:
    assert rights_of(reservation(*shares), Peer(uid, 0, groups)) is rights


def test_whom_it_is_not_shared_with_does_not_see_it() -> None:
    assert not may_use(reservation(), Peer(STRANGER, STRANGER))
    assert may_use(reservation(user(STRANGER, Rights.READ)), Peer(STRANGER, STRANGER))
