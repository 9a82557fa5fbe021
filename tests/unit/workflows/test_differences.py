# SPDX-License-Identifier: Apache-2.0
"""What `forebay create` says of a reservation that exists and is another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.manager.records import ReservationRow, ReservationState
from forebay.workflows.manager.core.reservations.differences import another_exists

MIB = 1 << 20
HAVE = ReservationRow(
    name="run1",
    capacity_bytes=16 * MIB,
    files_bytes=0,
    persistent=False,
    owner_uid=1000,
    owner_gid=1000,
    created_ns=1,
    state=ReservationState.PRESENT,
)


def test_what_rounds_to_the_same_is_the_same() -> None:
    assert another_exists(HAVE, HAVE, MIB) is None
    assert another_exists(replace(HAVE, capacity_bytes=16 * MIB - 5), HAVE, MIB) is None


@pytest.mark.parametrize(
    ("files_bytes", "size"), [(3 * MIB, "3MiB"), (1365 * MIB, "1365MiB"), (2 << 30, "2GiB"), (MIB + 1, "2MiB")]
)
def test_the_command_has_the_exact_size(files_bytes: int, size: str) -> None:
    error = another_exists(replace(HAVE, files_bytes=files_bytes), HAVE, MIB)
    assert error is not None
    assert f"`forebay change run1 --files {size}` changes it" in error.what


def test_pool_and_account_are_differences_that_stay() -> None:
    error = another_exists(replace(HAVE, pool="fast", account="climate"), HAVE, MIB)
    assert error is not None
    assert "it is of the default pool, not of pool fast; it is of no account, not of account climate" in error.what
    assert "forebay change" not in error.what


def test_of_anothers_reservation_only_the_name_is_told() -> None:
    error = another_exists(replace(HAVE, owner_uid=1001, persistent=True), HAVE, MIB)
    assert error is not None
    assert error.what == "the name is taken by a reservation of another user; choose another"
