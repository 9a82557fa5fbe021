# SPDX-License-Identifier: Apache-2.0
"""Room: a file that is overwritten in place never fills the parts, and files that do get ENOSPC, not EIO."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from tests.slurm.cluster import wait_for
from tests.striped.striped_tree import CAPACITY_BYTES, StripedTree

pytestmark = pytest.mark.timeout(900)

_ROUNDS = 10


def test_one_file_is_overwritten_in_place_ten_times_the_capacity(tree: StripedTree) -> None:
    tree.admit(3, 4)
    place, other = tree.mount(3), tree.mount(4)
    # Nearly all that there is, as a checkpoint that fills its reservation.
    size = CAPACITY_BYTES * 15 // 16
    piece = 4 << 20
    last = b""
    with (place / "checkpoint").open("wb", buffering=0) as file:
        for round_ in range(_ROUNDS * CAPACITY_BYTES // size + 1):
            for offset in range(0, size, piece):
                last = (b"%8x" % (round_ + offset)) * (piece // 8)
                assert os.pwrite(file.fileno(), last, offset) == piece
            os.fsync(file.fileno())
    with (other / "checkpoint").open("rb") as file:
        for offset in range(0, size, piece):
            assert file.read(piece) == (b"%8x" % (round_ + offset)) * (piece // 8)
    # And the parts come back to what the file takes.
    wait_for(lambda: all(held(part) < size * 5 // 8 for part in tree.trees), "the keeper to remove blocks", 120)


def fill(file: int) -> None:
    """Writes until that fails."""
    while True:
        os.write(file, b"x" * (1 << 20))


def held(tree: Path) -> int:
    """What blocks take in a part."""
    total = 0
    for folder, _, names in os.walk(tree / "blocks"):
        for name in names:
            try:
                total += os.stat(f"{folder}/{name}").st_size
            except FileNotFoundError:
                continue
    return total


def test_a_full_tree_says_so_and_room_comes_back(tree: StripedTree) -> None:
    tree.admit(3)
    place = tree.mount(3)
    file = os.open(place / "file", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space left") as full:
        fill(file)
    assert full.value.errno == errno.ENOSPC
    with contextlib.suppress(OSError):
        os.close(file)  # it may say so once more
    assert (place / "file").stat().st_size > CAPACITY_BYTES * 9 // 10
    (place / "file").unlink()
    # Blocks that were on their way when the tree was full are in no file; the keeper removes them when they are old.
    wait_for(lambda: sum(map(held, tree.trees)) < 100 << 20, "the blocks to go", 60)
    (place / "file").write_bytes(b"x" * (CAPACITY_BYTES * 7 // 8))


def test_room_that_another_node_makes_is_seen_after_a_while(tree: StripedTree) -> None:
    """A client asks Redis every 12 s what all of them use, and judges by that."""
    tree.admit(3, 4)
    place, other = tree.mount(3), tree.mount(4)
    for round_ in range(2):
        file = os.open(place / "ballast", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError, match="No space left"):
            fill(file)
        with contextlib.suppress(OSError):
            os.close(file)  # it may say so once more
        (other / "ballast").unlink()
        # Who has made the room has it at once.
        (other / f"mine-{round_}").write_bytes(b"x" * (8 << 20))
        wait_for(lambda round_=round_: has_room(place / f"file-{round_}"), "the room to be seen", 30)  # type: ignore[misc]
        assert (other / f"file-{round_}").stat().st_size == 8 << 20


def has_room(path: Path) -> bool:
    """The file could be written."""
    try:
        path.write_bytes(b"x" * (8 << 20))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True
