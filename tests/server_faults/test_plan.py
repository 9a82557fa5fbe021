# SPDX-License-Identifier: Apache-2.0
"""Plans are drawn from their seed alone."""

from __future__ import annotations

from tests.server_faults.plan import KINDS, plan_of


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan_of(7, 20, 2) == plan_of(7, 20, 2)
    assert plan_of(7, 20, 2)[:5] == plan_of(7, 5, 2)
    assert plan_of(7, 20, 2) != plan_of(8, 20, 2)


def test_all_kinds_come_and_a_copy_before_it_is_put_back() -> None:
    drawn = [action.kind for seed in range(20) for action in plan_of(seed, 40, 2)]
    assert set(drawn) == set(KINDS)
    for seed in range(200):
        kinds = [action.kind for action in plan_of(seed, 40, 2) if action.kind in ("copy root", "old root")]
        assert all(
            before == "copy root" for before, kind in zip(["", *kinds], kinds, strict=False) if kind == "old root"
        )
