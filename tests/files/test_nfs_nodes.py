# SPDX-License-Identifier: Apache-2.0
"""Nodes that mount files by NFS, without Slurm: how an epilog seals a mount that programs keep alive, and what becomes
of the locks of a node that is cut off.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.files.open_writers import is_being_written
from forebay.workflows.files import seal
from forebay.workflows.files.node_mounts import NFS_OPTIONS, STAGE_OPTIONS
from tests.files.shown_tree import HOME, USER, ShownTree, shown_tree
from tests.slurm.cluster import wait_for
from tests.support.guests import GuestError, why_no_guests
from tests.support.time_limits import seconds

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("mount.nfs4") is None, reason="needs nfs-common; ./run test files installs it"),
    pytest.mark.timeout(300),
]

_LEASE_SECONDS = 6
_AS_USER = f"setpriv --reuid={USER} --regid={USER} --clear-groups"


@pytest.fixture(scope="module")
def shown() -> Iterator[ShownTree]:
    with tempfile.TemporaryDirectory(prefix="nodes-", dir="/var/tmp") as name, contextlib.ExitStack() as stack:
        Path(name).chmod(0o755)
        try:
            running = stack.enter_context(shown_tree(Path(name), 320, lease_seconds=_LEASE_SECONDS))
        except GuestError as error:
            pytest.skip(str(error))
        yield running


def test_a_mount_is_sealed_only_while_nothing_is_open_for_writing(shown: ShownTree) -> None:
    guest, node, home = shown.guests["n1"], shown.actor("n1"), shown.actor(HOME)
    sealing = f"/usr/bin/python3 {seal.__file__} {shown.place}"
    file = node.ask("open", "sealed", "O_RDWR|O_CREAT")
    node.ask("pwrite", file, "." * 4096, 0)
    assert guest.try_to_run(sealing) == (1, "Device or resource busy\n")
    mapping = node.ask("map", file, 4096)
    node.ask("close", file)
    assert guest.try_to_run(sealing)[0] == 1
    node.ask("unmap", mapping)
    # A namespace of a user's own has a mount of its own, which keeps the file system alive after umount, too.
    guest.run(f"{_AS_USER} unshare --user --map-root-user --mount sleep 1000 > /dev/null 2>&1 & echo $! > /run/hidden")
    wait_for(lambda: guest.run("cat /proc/$(cat /run/hidden)/comm") == "sleep\n", "the namespace")
    node.ask("put", "unsynced", "water")
    node.ask("open", ".", "O_PATH|O_DIRECTORY")
    assert guest.try_to_run(f"umount {shown.place}")[0] != 0
    guest.run(sealing)
    assert home.ask("get", "unsynced") == "water"
    assert node.error("put", "more", "x") == node.error("unlink", "unsynced") == "EROFS"
    undo = f"mount -o remount,rw {shown.place}; mount -o remount,bind,rw {shown.place}; touch {shown.place}/more"
    status, said = guest.try_to_run(f"nsenter -t $(cat /run/hidden) --user --mount sh -c '{undo}'")
    assert status != 0
    assert "Read-only file system" in said
    # The next mount of the same tree is another file system.
    guest.run(f"umount --lazy {shown.place}")
    mount = shown.mounts["n1"]
    guest.run(f"mount -t nfs4 -o {NFS_OPTIONS},port={mount.port},retry=0 {mount.source} {shown.place}")
    later = shown.actor("n1")
    later.ask("put", "more", "x")
    assert node.error("put", "more", "y") == "EROFS"
    assert home.ask("get", "more") == "x"
    assert stat.S_ISREG(home.ask("stat", "more")["mode"])
    guest.run("kill $(cat /run/hidden)")


def test_the_home_sees_which_files_a_node_has_open_for_writing(shown: ShownTree) -> None:
    """What `--complete closed` and `--wait-closed` ask; large files are synced by the server itself, too."""
    node = shown.actor("n1")
    folder = os.open(shown.tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for size in (1, 8 << 20):
            file = node.ask("open", "watched", "O_WRONLY|O_CREAT")
            assert is_being_written(folder, "watched") is True
            node.ask("pwrite", file, "x" * size, 0)
            node.ask("fsync", file)
            mapping = node.ask("map", node.ask("open", "watched", "O_RDWR"), 1)
            node.ask("close", file)
            assert is_being_written(folder, "watched") is True
            node.ask("unmap", mapping)
            node.close()
            node = shown.actor("n1")
            wait_for(lambda: is_being_written(folder, "watched") is False, "the server to close it", 30)
            assert node.ask("get", "watched") == "x" * size
            assert is_being_written(folder, "watched") is False
    finally:
        os.close(folder)
        node.close()


# crash-matrix: Files of a job on a node | the network, cut for less than the lease | the node keeps its locks, and goes on
def test_a_node_that_is_cut_off_for_a_moment_keeps_its_locks(shown: ShownTree) -> None:
    cut, other = shown.actor("n1"), shown.actor("n2")
    mine = cut.ask("open", "kept", "O_RDWR|O_CREAT")
    theirs = other.ask("open", "kept", "O_RDWR")
    cut.ask("lock", mine, "w", 0, 0)
    shown.guests["n1"].cut()
    try:
        for number in range(100):
            other.ask("put", "other", str(number))
    finally:
        shown.guests["n1"].heal()
    assert other.error("lock", theirs, "w", 0, 0) == "EAGAIN"
    cut.ask("pwrite", mine, "mine", 0)
    cut.ask("fsync", mine)
    assert other.error("lock", theirs, "w", 0, 0) == "EAGAIN"
    cut.ask("lock", mine, "u", 0, 0)
    assert other.ask("get", "kept") == "mine"
    cut.close()
    other.close()


# crash-matrix: Files of a job on a node | the network, cut for longer than the lease | its locks go to who waits for them; what it writes under a lock that it has lost is refused, with an error
def test_the_lock_of_a_node_that_is_cut_off_goes_to_who_waits(shown: ShownTree) -> None:
    cut, other = shown.actor("n1"), shown.actor("n2")
    mine = cut.ask("open", "lost", "O_RDWR|O_CREAT")
    theirs = other.ask("open", "lost", "O_RDWR")
    cut.ask("lock", mine, "w", 0, 0)
    cut.ask("pwrite", mine, "first", 0)
    cut.ask("fsync", mine)
    shown.guests["n1"].cut()
    try:
        began = time.monotonic()
        other.ask("lock", theirs, "w", 0, 0, True)
        waited = time.monotonic() - began
        # The lease, and how seldom a waiting client asks again.
        assert waited < seconds(60), waited
        other.ask("pwrite", theirs, "other", 0)
        other.ask("fsync", theirs)
    finally:
        shown.guests["n1"].heal()
    errors = [cut.error("pwrite", mine, "late!", 0), cut.error("fsync", mine)]
    assert "EIO" in errors, errors
    assert shown.actor(HOME).ask("get", "lost") == "other"
    cut.close()
    other.close()


def test_a_mount_for_stages_sees_names_and_markers_as_they_are_at_the_home(shown: ShownTree) -> None:
    guest, home, mount = shown.guests["n2"], shown.actor(HOME), shown.mounts["n2"]
    place = "/run/stages"
    guest.run(f"mkdir -p {place}")
    guest.run(f"mount -t nfs4 -o {STAGE_OPTIONS},port={mount.port},retry=0 {mount.source} {place}")
    here = shown.actors.in_guest(guest, place)
    home.ask("mkdir", "chk")
    for number in range(20):
        home.ask("put", "chk/done", f"{number}")
        home.ask("put", "plot.new", f"{number}")
        home.ask("rename", "plot.new", "plot")
        home.ask("put", "grows", "." * number)
        home.ask("put", f"name{number}", "x")
        names = here.ask("names", ".")
        assert f"name{number}" in names
        assert "plot.new" not in names
        for name in ("chk/done", "plot", "grows"):
            assert here.ask("stat", name) == home.ask("stat", name)
        home.ask("unlink", "chk/done")
        assert here.error("stat", "chk/done") == "ENOENT"
    here.close()
    home.close()
    wait_for(lambda: guest.try_to_run(f"umount {place}")[0] == 0, "its program to end")
