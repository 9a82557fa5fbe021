# SPDX-License-Identifier: Apache-2.0
"""One tree over two servers, from `prepare` to `destroy`: what a node writes, another one reads."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
from pathlib import Path

import pytest

from forebay.errors import InvalidArgumentError, NotFoundError, RefusedError, StorageError
from forebay.workflows.files.mounts import mount_at
from tests.striped.striped_tree import CAPACITY_BYTES, StripedTree
from tests.support.randomness import TEST_SEED

pytestmark = pytest.mark.timeout(300)

_BIG_BYTES = 128 << 20


def write_big(path: Path) -> str:
    """A large file, synced; its SHA-256."""
    source, digest = random.Random(TEST_SEED), hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(_BIG_BYTES >> 20):
            piece = source.randbytes(1 << 20)
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def held_bytes(tree: Path) -> int:
    """What blocks take in a part."""
    return sum(path.stat().st_size for path in (tree / "blocks").rglob("*") if path.is_file())


def test_what_one_node_writes_the_other_reads_and_each_part_has_half(tree: StripedTree) -> None:
    tree.admit(3, 4)
    left, right = tree.mount(3), tree.mount(4)
    written = write_big(left / "big")
    with (right / "big").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == written
    for part in tree.trees:
        assert 0.4 < held_bytes(part) / _BIG_BYTES < 0.6
    room = os.statvfs(right)
    assert room.f_blocks * room.f_frsize == CAPACITY_BYTES
    used = tree.at_part(1, "usage")
    assert used["used_bytes"] > 0.4 * _BIG_BYTES
    # Twice what it was: everything is idempotent.
    tree.open()
    tree.admit(3, 4)
    tree.mount(3)
    (right / "big").unlink()
    assert os.listdir(left) == []
    tree.unmount(3)
    tree.unmount(4)
    tree.end_nodes("release", 3, 4)
    tree.close()
    assert tree.what_is_left() == []
    tree.close()
    with pytest.raises(NotFoundError):
        tree.at_part(0, "admit", NODES='{"n3": null}')
    tree.at_part(0, "destroy")


def test_no_secret_stands_where_others_look(tree: StripedTree) -> None:
    tree.admit(3)
    tree.mount(3)
    ticket = tree.tickets["n3"]
    state = (tree.state_folder(0) / "state").read_text()
    key = state.partition('"key": "')[2].partition('"')[0]
    assert len(key) == 32
    secrets = [key, ticket["permit"], ticket["password"]]
    shown = [subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout]
    shown += [Path("/proc/self/mountinfo").read_text()]
    shown += [path.read_text(errors="replace") for path in tree.folder.rglob("*.log")]
    for text in shown:
        assert not any(secret in text for secret in secrets)
    for path in [*tree.state_folder(0).rglob("*"), *tree.state_folder(1).rglob("*"), *tree.node_folder(3).rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    for folder in (tree.state_folder(0), tree.node_folder(3), Path(f"/run/forebay-files/{tree.reservation}.0")):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_only_the_gates_can_be_reached_from_other_nodes(tree: StripedTree) -> None:
    for part in range(2):
        command = [*tree.prefix(part + 1), "ss", "-Hltn"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        listening = [line.split()[3] for line in lines]
        gate = tree.gates[part]
        assert [where for where in listening if not where.startswith("127.")] == [f"{gate['address']}:{gate['port']}"]
        assert gate["port"] < 1024
        assert all(int(where.rpartition(":")[2]) < 1024 for where in listening)


def test_root_of_a_node_is_nobody_and_devices_do_not_work(tree: StripedTree) -> None:
    tree.admit(3, 4)
    home = tree.mount(3)
    home.chmod(0o755)
    node = tree.mount(4, squash=True)
    with pytest.raises(PermissionError):
        (node / "file").write_text("x")
    home.chmod(0o777)
    (node / "file").write_text("x")
    assert (home / "file").stat().st_uid == 65534
    mount = Path("/proc/self/mountinfo").read_text()
    assert mount_at(node) is not None
    lines = [line for line in mount.splitlines() if str(node) in line]
    assert all("nosuid,nodev" in line for line in lines)


def test_a_node_that_was_not_admitted_gets_nothing(tree: StripedTree) -> None:
    tree.admit(3)
    ticket = tree.tickets["n3"]
    tree.tickets["n4"] = ticket | {"number": ticket["number"] + 1}
    with pytest.raises(StorageError):
        tree.mount(4, SECONDS="5")
    tree.unmount(4, lazy=True)
    tree.tickets["n4"] = ticket | {"password": "0" * 32}
    with pytest.raises(StorageError):
        tree.mount(4, SECONDS="5")
    tree.unmount(4, lazy=True)
    assert mount_at(tree.place(4)) is None


def test_what_cannot_be_is_refused(tree: StripedTree, tmp_path: Path) -> None:
    def prepare(part: int, **values: str) -> None:
        state = tree.state_folder(part).with_name("aaaaaaaa-0000")
        usual = {
            "RESERVATION": "aaaaaaaa-0000",
            "FOLDER": str(state),
            "TREE": str(tree.trees[part]),
            "ADDRESS": tree.network.address(part + 1),
            "PORTS": "700-999",
            "CAPACITY_BYTES": str(CAPACITY_BYTES),
            "PARTS_COUNT": "2",
            "KEY": "" if part == 0 else "0" * 32,
        }
        process = tree.begin(part + 1, "prepare", state, PART=str(part), **(usual | values))
        tree.end(process)

    with pytest.raises(RefusedError, match="no file system of their own"):
        prepare(0, TREE=str(tmp_path))
    with pytest.raises(RefusedError, match="too small"):
        prepare(0, CAPACITY_BYTES=str(4 << 30))
    with pytest.raises(InvalidArgumentError, match="one server needs no juicefs"):
        prepare(0, PARTS_COUNT="1")
    for part, key in ((0, "0" * 32), (1, ""), (1, "short")):
        with pytest.raises(InvalidArgumentError, match="the home makes the key"):
            prepare(part, KEY=key)
    with pytest.raises(RefusedError, match="prepared here before"):
        tree.prepare(1, "0" * 32)
    for nodes in ('{"../n": null}', '{"n3": 7}'):
        with pytest.raises(InvalidArgumentError):
            tree.at_part(0, "admit", NODES=nodes)
    for nodes in ('{"n3": null}', '{"n3": 1}'):
        with pytest.raises(InvalidArgumentError):
            tree.at_part(1, "admit", NODES=nodes)
    tree.incarnation = 2
    tree.admit(3)
    tree.incarnation = 1
    with pytest.raises(RefusedError, match="newer manager"):
        tree.admit(4)
