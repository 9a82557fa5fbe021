# SPDX-License-Identifier: Apache-2.0
"""What a fence promises: nothing of the node lands after it, its locks are free, and others go on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.errors import StorageError
from tests.slurm.cluster import wait_for
from tests.striped.striped_tree import StripedTree
from tests.support.time_limits import seconds

pytestmark = pytest.mark.timeout(300)

#: Holds a lock on a file, appends to it and syncs for ever; says so after each turn, and says why it ends.
_APPENDER = """
import fcntl, os
file = os.open("file", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
fcntl.lockf(file, fcntl.LOCK_EX)
try:
    while True:
        os.write(file, b"x" * 4096)
        os.fsync(file)
        print("synced", flush=True)
except OSError as error:
    print(f"ended {error.errno}", flush=True)
"""
#: Makes files and folders as fast as it can.
_MAKER = """
import os, itertools
print("begins", flush=True)
try:
    for number in itertools.count():
        os.mkdir(f"{number}")
        file = os.open(f"{number}/file", os.O_WRONLY | os.O_CREAT)
        os.write(file, b"x" * 100)
        os.fsync(file)
        os.close(file)
except OSError as error:
    print(f"ended {error.errno}", flush=True)
"""
#: Writes what takes blocks of both parts.
_WRITER = """
import os
file = os.open("big", os.O_WRONLY | os.O_CREAT)
print("begins", flush=True)
os.write(file, b"x" * (64 << 20))
os.fsync(file)
"""
_LOCKER = "import fcntl, os; fcntl.lockf(os.open('file', os.O_RDWR), fcntl.LOCK_EX)"


@contextlib.contextmanager
def program(tree: StripedTree, node: int, text: str) -> Iterator[subprocess.Popen[str]]:
    """It runs in the mounted tree of a node; killed at the end."""
    command = [*tree.prefix(node), sys.executable, "-c", text]
    with subprocess.Popen(command, cwd=tree.place(node), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def everything(folder: Path) -> list[tuple[str, int]]:
    """Names and sizes of all that is there."""
    return sorted((str(path.relative_to(folder)), path.stat().st_size) for path in folder.rglob("*"))


# crash-matrix: Files striped over servers | the node, cut off or hung | fencing takes its way in and no other's; nothing that it sends can land, and its locks are free
def test_a_fenced_node_writes_nothing_its_locks_are_free_and_others_go_on(tree: StripedTree) -> None:
    tree.admit(3, 4)
    tree.mount(3)
    other = tree.mount(4)
    with program(tree, 3, _APPENDER) as appender:
        for _ in range(5):
            assert line(appender) == "synced\n"
        waiting = subprocess.Popen([*tree.prefix(4), sys.executable, "-c", _LOCKER], cwd=other)
        tree.end_nodes("fence", 3)
        size = (other / "file").stat().st_size
        assert size >= 5 * 4096
        assert waiting.wait(seconds(60)) == 0  # it has the lock
        (other / "after").write_text("water")
        # juicefs tries again and again. What it has tried by now has not landed.
        with pytest.raises(StorageError):
            tree.unmount(3, SECONDS="3")
        tree.unmount(3, lazy=True)
        assert appender.stdout is not None
        words = [word for word in appender.stdout if word != "synced\n"]
        assert words[0].startswith("ended ")
        assert (other / "file").stat().st_size == size
    # Its permit and password are of no use any more; it comes back under another number.
    with pytest.raises(StorageError):
        tree.mount(3, SECONDS="5")
    tree.unmount(3, lazy=True)
    before = tree.tickets["n3"]["number"]
    tree.admit(3)
    assert tree.tickets["n3"]["number"] > before
    assert (tree.mount(3) / "after").read_text() == "water"


def pending_bytes(tree: StripedTree) -> int:
    """What has reached Redis's connections, and Redis has not read."""
    command = [*tree.prefix(1), "ss", "-Hx", "src", f"/run/forebay-files/{tree.reservation}.0/redis"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(int(re.split(r"\s+", each)[2]) for each in lines if "ESTAB" in each)


# crash-matrix: Files striped over servers | the node, while Redis is stopped and holds its requests | when the fence is over, nothing of them lands
@pytest.mark.parametrize("goes_on", [False, True], ids=["it stays stopped", "it goes on"])
def test_requests_that_a_stopped_redis_holds_do_not_land_after_the_fence(tree: StripedTree, goes_on: bool) -> None:
    tree.admit(3, 4)
    tree.mount(3)
    other = tree.mount(4)
    with program(tree, 3, _MAKER) as maker:
        assert line(maker) == "begins\n"
        wait_for(lambda: len(os.listdir(other)) > 3, "the first folders")
        redis = tree.daemon(0, "redis")
        os.kill(redis, signal.SIGSTOP)
        wait_for(lambda: pending_bytes(tree) > 0, "requests that Redis holds")
        fence = tree.begin_at_part(0, "fence", NODES='["n3"]')
        state = tree.state_folder(0) / "state"
        wait_for(lambda: json.loads(state.read_text())["nodes"].get("n3", {}).get("fenced", True), "the fence to begin")
        if goes_on:
            os.kill(redis, signal.SIGCONT)
        tree.end(fence)
        after = everything(other)
        tree.unmount(3, lazy=True)
        assert line(maker).startswith("ended ")
        assert everything(other) == after
    tree.at_part(1, "fence", NODES='["n3"]')
    (other / "after").write_text("water")
    assert (tree.daemon(0, "redis") == redis) or not goes_on


# crash-matrix: Files striped over servers | the node, while a part's file system is frozen and holds its blocks | fencing of that part is over when nobody works for the node any more
def test_a_fence_waits_for_blocks_that_are_inside(tree: StripedTree) -> None:
    tree.admit(3, 4)
    tree.mount(3)
    other = tree.mount(4)
    with program(tree, 3, _WRITER) as writer, frozen(tree.trees[1]) as thaw:
        assert line(writer) == "begins\n"
        blocks = tree.daemon(1, "blocks")
        wait_for(lambda: is_held(blocks), "a block that waits for the disk")
        tree.at_part(0, "fence", NODES='["n3"]')
        fence = tree.begin_at_part(1, "fence", NODES='["n3"]')
        state = tree.state_folder(1) / "state"
        wait_for(lambda: json.loads(state.read_text())["nodes"]["n3"]["fenced"], "the fence to begin")
        assert fence.poll() is None
        assert "n3" in json.loads(state.read_text())["nodes"]
        thaw()
        tree.end(fence)
        assert json.loads(state.read_text())["nodes"].keys() == {"n4"}
        assert not is_held(blocks)
        before = everything(tree.trees[1] / "blocks")
        (other / "after").write_bytes(b"")
        assert (other / "big").stat().st_size == 0
        tree.unmount(3, lazy=True)
        assert everything(tree.trees[1] / "blocks") == before


@contextlib.contextmanager
def frozen(folder: Path) -> Iterator[Callable[[], None]]:
    """Its file system takes no changes until it is thawed, at the end at the latest."""

    def thaw() -> None:
        subprocess.run(["xfs_freeze", "-u", folder], check=False, stderr=subprocess.DEVNULL)

    subprocess.run(["xfs_freeze", "-f", folder], check=True)
    try:
        yield thaw
    finally:
        thaw()


def is_held(pid: int) -> bool:
    """A thread waits in the kernel for a file system that takes no changes."""
    waits = [(task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return any("percpu_rwsem_wait" in wait for wait in waits)


def test_a_part_that_stays_frozen_fails_the_fence_which_goes_on_when_asked_again(tree: StripedTree) -> None:
    tree.admit(3)
    tree.mount(3)
    with program(tree, 3, _WRITER), frozen(tree.trees[1]) as thaw:
        blocks = tree.daemon(1, "blocks")
        wait_for(lambda: is_held(blocks), "a block that waits for the disk")
        with pytest.raises(TimeoutError):
            tree.at_part(1, "fence", NODES='["n3"]', SECONDS="2")
        assert json.loads((tree.state_folder(1) / "state").read_text())["nodes"]["n3"]["fenced"]
        thaw()
        tree.at_part(1, "fence", NODES='["n3"]')
        tree.at_part(0, "fence", NODES='["n3"]')
        tree.unmount(3, lazy=True)


def test_a_release_is_not_noticed_by_others(tree: StripedTree) -> None:
    tree.admit(3, 4)
    tree.mount(3)
    other = tree.mount(4)
    with program(tree, 4, _APPENDER) as appender:
        assert line(appender) == "synced\n"
        tree.unmount(3)
        daemons = {name: tree.daemon(0, name) for name in ("blocks", "gate", "redis")}
        tree.end_nodes("release", 3)
        for _ in range(5):
            assert line(appender) == "synced\n"
        assert {name: tree.daemon(0, name) for name in ("blocks", "gate", "redis")} == daemons
    assert (other / "file").stat().st_size >= 5 * 4096
