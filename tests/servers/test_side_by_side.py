# SPDX-License-Identifier: Apache-2.0
"""Blocks above the stripe: one writer sends them to all members at once, and one reader fetches them so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import forebay
from tests.servers.test_members import used_segments
from tests.servers.three_servers import far_environment, problems, wait_until_present
from tests.support.server_pool import ServerPool

pytestmark = [pytest.mark.timeout(60)]

MIB = 1 << 20
SHARE = 64 * MIB
#: 24 MiB: three stripes of 8 MiB.
SHAPE = (48, 256, 256)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ServerPool]:
    with ServerPool(
        tmp_path / "pool", 3, options=("--flush-interval-ms", "-1", "--fabric", "tcp", "--fabric-peers", "trusted")
    ) as made:
        made.create("run1", [(0, SHARE), (1, SHARE), (2, SHARE)])
        wait_until_present(made, 2)
        yield made


@pytest.fixture(autouse=True)
def _as_far(pool: ServerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in far_environment(pool, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FOREBAY_ROOT", raising=False)


def content(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).random(SHAPE)


def write(numbers: range, retention: str | None = None) -> None:
    with forebay.open("run1/flow", "w", retention=retention) as stream:
        for number in numbers:
            with stream.step() as step:
                step.write("T", content(number))


@pytest.mark.parametrize("transport", ["tcp", "fabric"])
def test_large_blocks_lie_on_all_members_and_come_back_whole(
    pool: ServerPool, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_TRANSPORT", transport)
    write(range(4))
    assert all(used_segments(pool, server) >= 1 for server in range(3))
    with forebay.open("run1/flow", verify="read") as stream:
        for number in range(4):
            assert np.array_equal(stream[number]["T"][...], content(number)), number
    assert problems(pool) == []


Verify = Literal["none", "auto", "read"]
EVERY_VERIFY: tuple[Verify, ...] = ("none", "auto", "read")


@pytest.mark.parametrize("verify", EVERY_VERIFY)
def test_any_box_of_a_block_that_is_spread(pool: ServerPool, verify: Verify) -> None:
    write(range(1))
    whole = content(0)
    boxes: list[Any] = [
        np.s_[7:33],  # one run over the ends of two pieces
        np.s_[:, 17],  # rows of 2 KiB
        np.s_[:, :, 3],  # single elements
        np.s_[1:47, 3:250, 5:],
        np.s_[15:17, 100:200],
        np.s_[::5, ::3, ::7],
    ]
    with forebay.open("run1/flow", verify=verify) as stream:
        step = stream[0]
        for box in boxes:
            assert np.array_equal(step["T"][box], whole[box]), box


def test_space_that_is_used_again(pool: ServerPool) -> None:
    # Three times what there is.
    write(range(20), retention="last:2")
    with forebay.open("run1/flow", verify="read") as stream:
        assert np.array_equal(stream[19]["T"][...], content(19))
    assert problems(pool) == []


def test_many_blocks_of_many_members_in_one_selection(pool: ServerPool) -> None:
    with forebay.open("run1/flow", "w") as writer, writer.step() as step:
        whole = np.arange(40.0 * 40_000).reshape(40, 40_000)
        for row in range(40):
            step.write("T", whole[row : row + 1], shape=whole.shape, start=(row, 0))
    for verify in EVERY_VERIFY:
        with forebay.open("run1/flow", verify=verify) as stream:
            assert np.array_equal(stream[0]["T"][...], whole)
            assert np.array_equal(stream[0]["T"][3:37, 11:39_000], whole[3:37, 11:39_000])
            assert np.array_equal(stream[0]["T"][:, ::1000], whole[:, ::1000])


def test_a_changed_byte_on_a_member_is_named_with_its_block(pool: ServerPool) -> None:
    write(range(1))
    changed = 0
    for path in (pool.servers[2].root / "reservations").glob("*/segments/*"):
        data = path.read_bytes()
        if not any(data):
            continue
        place = len(data) - 1 - next(i for i, byte in enumerate(reversed(data)) if byte)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([data[place] ^ 1]))
        changed += 1
    assert changed >= 1
    with (
        forebay.open("run1/flow", verify="read") as stream,
        pytest.raises(forebay.CorruptError, match="block 0, segment"),
    ):
        stream[0]["T"][...]


def test_a_member_that_dies_between_two_blocks(pool: ServerPool) -> None:
    with forebay.open("run1/flow", "w") as writer:
        with writer.step() as step:
            step.write("T", content(0))
        pool.servers[1].kill()
        pool.servers[1].start()
        pool.tell()
        wait_until_present(pool, 3)
        # What was granted there before is refused once; then it is written again, as a program does that retries.
        for attempt in range(3):
            try:
                with writer.step() as step:
                    step.write("T", content(1))
                break
            except forebay.UnavailableError:
                assert attempt < 2
    with forebay.open("run1/flow", verify="read") as stream:
        assert np.array_equal(stream[0]["T"][...], content(0))
        assert np.array_equal(stream[1]["T"][...], content(1))
