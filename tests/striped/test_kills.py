# SPDX-License-Identifier: Apache-2.0
"""Daemons and operations that are killed: programs go on when they are started again, and what is repeated succeeds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from forebay.errors import ForebayError, RefusedError, StorageError
from forebay.workflows.files.daemons import find_daemons
from tests.slurm.cluster import wait_for
from tests.striped.striped_tree import StripedTree

pytestmark = pytest.mark.timeout(600)

#: Writes, syncs, renames, reads back and removes, and says each turn; any error ends it.
_TURNS = """
import contextlib, itertools, os

def again_if_missing(call, *names):
    # Redis may have done it, and died before it said so.
    with contextlib.suppress(FileNotFoundError):
        call(*names)

for number in itertools.count():
    text = os.urandom(300_000)
    file = os.open("new", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(file, text)
    os.fsync(file)
    os.close(file)
    again_if_missing(os.rename, "new", f"file-{number % 3}")
    with open(f"file-{number % 3}", "rb") as reader:
        assert reader.read() == text, number
    if number % 3 == 2:
        again_if_missing(os.unlink, "file-0")
    print(number, flush=True)
"""
_DAEMONS = [(0, name) for name in ("blocks", "gate", "redis", "forwarder", "keeper")] + [(1, "blocks"), (1, "gate")]


# crash-matrix: Files striped over servers | Redis, a gate, a server of blocks, the home's forwarder or its keeper, killed | `start` starts it again; programs on nodes wait, go on, and read what they have written
def test_programs_go_on_when_a_killed_daemon_is_started_again(tree: StripedTree) -> None:
    tree.admit(3)
    place = tree.mount(3)
    command = [*tree.prefix(3), sys.executable, "-c", _TURNS]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            for part, name in _DAEMONS:
                turn = int(program.stdout.readline())
                pid = tree.daemon(part, name)
                others = tree.daemons().keys() - {pid}
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda pid=pid: not os.path.exists(f"/proc/{pid}/exe"), "its end")  # type: ignore[misc]
                tree.start()
                assert tree.daemons().keys() > others
                while int(program.stdout.readline() or -1) < turn + 5:
                    assert program.poll() is None, (part, name)
        finally:
            program.kill()


# crash-matrix: Files striped over servers | Another part's server is away when daemons of the home have ended | `start` at the home starts them again and does not wait for that part; a fence there works
def test_the_home_starts_again_while_another_part_is_away(tree: StripedTree) -> None:
    tree.admit(3)
    gone = tree.daemon(1, "gate")
    ended = [tree.daemon(0, name) for name in ("redis", "forwarder", "keeper")]
    for pid in (gone, *ended):
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid: not os.path.exists(f"/proc/{pid}/exe"), "its end")  # type: ignore[misc]
    tree.at_part(0, "start", PARTS=json.dumps(tree.gates))
    tree.at_part(0, "ready")
    for name in ("redis", "forwarder", "keeper"):
        tree.daemon(0, name)
    assert tree.at_part(0, "fence", NODES='["n3"]') == {"fenced": ["n3"]}
    tree.start()


def test_a_server_that_begins_anew_has_all_files(tree: StripedTree) -> None:
    """All daemons of both parts are killed, as by a loss of power; what was synced is there."""
    tree.admit(3)
    place = tree.mount(3)
    text = os.urandom(9 << 20)
    with (place / "file").open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    pids = [pid for pid, name in tree.daemons().items() if "juicefs" not in name]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    tree.unmount(3, lazy=True)
    tree.start()
    assert (tree.mount(3) / "file").read_bytes() == text
    tree.end_nodes("release", 3)
    for part in range(2):
        tree.at_part(part, "stop")
    # After a stop nobody is let in who was before.
    tree.start()
    tree.unmount(3, lazy=True)
    with pytest.raises(StorageError):
        tree.mount(3, SECONDS="5")


_HOME_POINTS = {
    "prepare": ["files.prepare.part"],
    "start": [
        f"files.start.{name}" for name in ("blocks", "gate", "redis", "forwarder", "format", "formatted", "keeper")
    ],
    "admit": ["files.admit.part", "files.admit.user"],
    "fence": ["files.fence.part", "files.fence.users", "files.fence.locks", "files.fence.gate"],
    "stop": ["files.stop.part"],
    "destroy": ["files.destroy.part"],
}
_NODE_POINTS = {
    "mount": ["files.mount.state", "files.mount.forwarder", "files.mount.engine"],
    "unmount": ["files.unmount.unmounted", "files.unmount.ended"],
}


def dies(call: Callable[[], object]) -> None:
    """The operation is killed and answers nothing."""
    with pytest.raises(AssertionError, match=f"status {-signal.SIGKILL}"):
        call()


# crash-matrix: An operation of the driver juicefs | at the home, killed at `files.prepare.part`, `files.start.blocks`, `files.start.gate`, `files.start.redis`, `files.start.forwarder`, `files.start.format`, `files.start.formatted`, `files.start.keeper`, `files.admit.part`, `files.admit.user`, `files.fence.part`, `files.fence.users`, `files.fence.locks`, `files.fence.gate`, `files.fence.redis`, `files.stop.part`, `files.destroy.part` | the same operation again succeeds; there is one daemon of each kind, and nothing is left at the end
def test_an_operation_at_the_home_that_is_killed_is_repeated(tree: StripedTree) -> None:
    for part in range(2):
        tree.at_part(part, "destroy")
        with pytest.raises(RefusedError, match="blocks of another tree"):
            tree.prepare(part, "0" * 32 if part else "")
        tree.wipe(part)
    for point in _HOME_POINTS["prepare"]:
        dies(lambda point=point: tree.prepare(0, FAIL_POINT=point))  # type: ignore[misc]
    home = tree.prepare(0)
    other = tree.prepare(1, home["key"])
    tree.gates = [{"address": answer["address"], "port": answer["port"]} for answer in (home, other)]
    tree.at_part(1, "start", PARTS="[]")
    gates = json.dumps(tree.gates)
    for point in _HOME_POINTS["start"]:
        dies(lambda point=point: tree.at_part(0, "start", PARTS=gates, FAIL_POINT=point))  # type: ignore[misc]
    tree.start()
    for name in ("blocks", "gate", "redis", "forwarder", "keeper"):
        tree.daemon(0, name)
    for point in _HOME_POINTS["admit"]:
        dies(lambda point=point: tree.admit(3, FAIL_POINT=point))  # type: ignore[misc]
    tree.admit(3, 4)
    tree.mount(4)
    for point in _HOME_POINTS["fence"]:
        tree.admit(3)
        number = tree.tickets["n3"]["number"]
        dies(lambda point=point: tree.at_part(0, "fence", NODES='["n3"]', FAIL_POINT=point))  # type: ignore[misc]
        # It is not let in, whatever starts again.
        tree.start()
        with contextlib.suppress(ForebayError):
            tree.mount(3, SECONDS="3")
            pytest.fail(f"{point}: a node mounts that is being fenced")
        tree.unmount(3, lazy=True)
        tree.end_nodes("fence", 3)
        tree.admit(3)
        assert tree.tickets["n3"]["number"] > number
    os.kill(tree.daemon(0, "redis"), signal.SIGSTOP)
    dies(lambda: tree.at_part(0, "fence", NODES='["n3"]', FAIL_POINT="files.fence.redis"))
    tree.end_nodes("fence", 3)
    tree.start()
    (tree.place(4) / "after").write_text("water")
    tree.unmount(4)
    for operation in ("stop", "destroy"):
        for point in _HOME_POINTS[operation]:
            dies(lambda operation=operation, point=point: tree.at_part(0, operation, FAIL_POINT=point))  # type: ignore[misc]
        tree.at_part(0, operation)
        tree.at_part(1, operation)
    assert tree.what_is_left() == []


# crash-matrix: An operation of the driver juicefs | on a node, killed at `files.mount.state`, `files.mount.forwarder`, `files.mount.engine`, `files.unmount.unmounted`, `files.unmount.ended` | the same operation again succeeds; nothing is left at the end
def test_an_operation_on_a_node_that_is_killed_is_repeated(tree: StripedTree) -> None:
    tree.admit(3)
    for point in _NODE_POINTS["mount"]:
        dies(lambda point=point: tree.mount(3, FAIL_POINT=point))  # type: ignore[misc]
    (tree.mount(3) / "file").write_text("water")
    assert len(find_daemons(tree.node_folder(3) / "forwarder.json")) == 1
    for point in _NODE_POINTS["unmount"]:
        dies(lambda point=point: tree.unmount(3, FAIL_POINT=point))  # type: ignore[misc]
    tree.unmount(3)
    assert not tree.node_folder(3).exists()
    assert (tree.mount(3) / "file").read_text() == "water"


# crash-matrix: Files striped over servers | `juicefs mount` or the forwarder of a node, killed | `mount` mounts again
@pytest.mark.parametrize("name", ["juicefs.log", "forwarder.json"])
def test_what_serves_a_node_is_killed_and_mounted_again(tree: StripedTree, name: str) -> None:
    tree.admit(3, 4)
    place = tree.mount(3)
    (place / "file").write_text("water")
    for pid in find_daemons(tree.node_folder(3) / name):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not find_daemons(tree.node_folder(3) / name), "its end")
    assert (tree.mount(3) / "file").read_text() == "water"
    tree.unmount(3)


def test_a_busy_mount_is_not_taken_away_but_lazily(tree: StripedTree) -> None:
    tree.admit(3)
    place = tree.mount(3)
    (place / "file").write_text("water")
    file = os.open(place / "file", os.O_RDONLY)
    with pytest.raises(StorageError, match="busy"):
        tree.unmount(3, SECONDS="2")
    assert (place / "file").read_text() == "water"
    tree.unmount(3, lazy=True)
    with contextlib.suppress(OSError):
        os.close(file)  # nobody serves it any more
    assert not tree.node_folder(3).exists()
