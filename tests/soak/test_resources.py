# SPDX-License-Identifier: Apache-2.0
"""When the resources at the quiet points of a soak count as grown."""

from __future__ import annotations

import random

import pytest

from tests.soak.resources import Holding, growths, table, unjudged


def holding(number: int, **changes: int) -> Holding:
    """A quiet point of a server, ten seconds after the one before."""
    usual = {"memory_bytes": 20 << 20, "descriptors": 30, "threads": 3, "mappings": 90}
    return Holding(10.0 * number, "server", 1, **{**usual, **changes})


def test_steady_resources_pass_and_warm_up_does_not_count() -> None:
    assert (
        growths([holding(0, memory_bytes=5 << 20, descriptors=9), *(holding(number) for number in range(1, 5))]) == []
    )


@pytest.mark.parametrize(
    ("name", "step"), [("descriptors", 4), ("threads", 3), ("mappings", 25), ("memory_bytes", 8 << 20)]
)
def test_resource_that_grows_from_quiet_point_to_quiet_point_is_told(name: str, step: int) -> None:
    usual = getattr(holding(0), name)
    grown = growths([holding(number, **{name: usual + step * number}) for number in range(5)])
    assert len(grown) == 1
    assert ("memory" if name == "memory_bytes" else name) in grown[0]


def hour(memory_mib: list[float]) -> list[Holding]:
    """One life of a server with a quiet point each minute."""
    points = [holding(6 * number, memory_bytes=int(mib * 2**20)) for number, mib in enumerate(memory_mib)]
    assert len(points) == 60
    return points


@pytest.mark.parametrize("mib_a_minute", [3.0, 0.5])
def test_leak_is_told_over_an_hour_of_quiet_points(mib_a_minute: float) -> None:
    grown = growths(hour([20 + mib_a_minute * minute for minute in range(60)]))
    assert len(grown) == 1
    assert "memory" in grown[0]


def test_leak_is_told_though_the_points_are_noisy() -> None:
    chance = random.Random(1)
    assert growths(hour([20 + 0.7 * minute + chance.uniform(0, 12) for minute in range(60)]))


def test_noise_single_peaks_and_one_lasting_rise_are_no_leak() -> None:
    chance = random.Random(2)
    memory = [20 + chance.uniform(0, 12) + 6 * (minute > 20) for minute in range(60)]
    memory[30] += 40
    memory[59] += 40
    assert growths(hour(memory)) == []


def test_count_that_is_high_at_one_point_in_the_middle_is_told() -> None:
    points = [holding(number, descriptors=30 + 4 * (number == 3)) for number in range(6)]
    assert growths(points) == ["server (pid 1): descriptors went from 30 to 34"]


def test_memory_that_too_short_lives_leave_unjudged_is_told() -> None:
    points = [holding(number) for number in range(4)]
    assert unjudged(points[:3]) == ["server"]
    assert "memory of the server: not judged" in table(points[:3])
    assert unjudged(points) == []
    assert "not judged" not in table(points)
