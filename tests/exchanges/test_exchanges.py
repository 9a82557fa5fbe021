# SPDX-License-Identifier: Apache-2.0
"""Exchanges of names against the mover itself, 10 000 times each: no try may give anybody another's rights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.moved_under_attack import (
    AttackedFolder,
    attacked_stage_in,
    attacked_stage_out_of_status,
    attacked_stage_out_of_what_becomes_a_link,
    attacked_tree,
)
from tests.support.users import Users

COUNT = int(os.environ.get("FOREBAY_TEST_COUNT") or 10_000)

pytestmark = [
    pytest.mark.timeout(0),
    pytest.mark.skipif(os.geteuid() != 0, reason="the suite exchanges did not run: only root can act as other users"),
]


@pytest.mark.parametrize("root_asks", [False, True])
@pytest.mark.parametrize(
    "attack",
    [attacked_stage_in, attacked_stage_out_of_status, attacked_stage_out_of_what_becomes_a_link, attacked_tree],
)
def test_exchanges_give_no_rights(users: Users, place: Path, attack: object, root_asks: bool) -> None:
    victim = 0 if root_asks else users("ada").uid
    attack(AttackedFolder(victim, users("mallory"), place), COUNT)  # type: ignore[operator]
