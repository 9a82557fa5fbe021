# SPDX-License-Identifier: Apache-2.0
"""What programs on two nodes may rely on in files that the driver `nfs` shows: the table in docs/operations/files.md,
row by row, and what is not promised.

Each test runs with both programs on one machine, which shows that it asks for no more than a file system's rules; on
two nodes; and at the home and on a node.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.files.shown_tree import HOME, Actor, ShownTree, shown_tree
from tests.slurm.cluster import wait_for
from tests.support.guests import GuestError, why_no_guests

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("mount.nfs4") is None, reason="needs nfs-common; ./run test files installs it"),
    pytest.mark.timeout(300),
]

_PAIRS = {"one-machine": (HOME, HOME), "two-nodes": ("n1", "n2"), "home-and-node": (HOME, "n1")}
_ROUNDS = 100
_numbers = count()


@pytest.fixture(scope="module")
def shown() -> Iterator[ShownTree]:
    with tempfile.TemporaryDirectory(prefix="consistency-", dir="/var/tmp") as name, contextlib.ExitStack() as stack:
        Path(name).chmod(0o755)
        try:
            running = stack.enter_context(shown_tree(Path(name), 400))
        except GuestError as error:
            pytest.skip(str(error))
        yield running


@pytest.fixture(scope="module", params=_PAIRS)
def pair(shown: ShownTree, request: pytest.FixtureRequest) -> tuple[Actor, Actor]:
    """Two programs."""
    first, second = (shown.actor(node) for node in _PAIRS[request.param])
    return first, second


@pytest.fixture
def left(pair: tuple[Actor, Actor]) -> Actor:
    return pair[0]


@pytest.fixture
def right(pair: tuple[Actor, Actor]) -> Actor:
    return pair[1]


@pytest.fixture
def name(left: Actor) -> str:
    """Of a folder that nobody has used."""
    folder = f"folder-{next(_numbers)}"
    left.ask("mkdir", folder)
    return folder


def at_once(left: Actor, right: Actor, *request: Any) -> list[str]:
    """Both are asked the same before either answers: the errors."""
    left.begin(*request)
    right.begin(*request)
    return [left.error_of_answer(), right.error_of_answer()]


# --- Close to open


def test_what_was_closed_is_read_by_who_opens_after_that(left: Actor, right: Actor, name: str) -> None:
    stale = 0
    for number in range(_ROUNDS):
        writer, reader = (left, right) if number % 2 else (right, left)
        writer.ask("put", f"{name}/file", f"round {number}" + "." * (number % 3))
        stale += reader.ask("get", f"{name}/file") != f"round {number}" + "." * (number % 3)
    assert stale == 0


def test_a_file_that_was_renamed_over_another_is_read_by_who_opens_after_that(
    left: Actor, right: Actor, name: str
) -> None:
    stale = 0
    for number in range(_ROUNDS):
        left.ask("put", f"{name}/new", str(number))
        left.ask("rename", f"{name}/new", f"{name}/file")
        stale += right.ask("get", f"{name}/file") != str(number)
    assert stale == 0


def test_a_file_that_was_missing_is_found_as_soon_as_it_is_there(left: Actor, right: Actor, name: str) -> None:
    for number in range(10):
        assert right.error("get", f"{name}/{number}") == "ENOENT"
        assert right.error("stat", f"{name}/{number}") == "ENOENT"
        left.ask("put", f"{name}/{number}", "there")
        assert right.ask("stat", f"{name}/{number}")["size"] == 5
        assert right.ask("get", f"{name}/{number}") == "there"


def test_a_file_that_was_removed_cannot_be_opened(left: Actor, right: Actor, name: str) -> None:
    for number in range(10):
        left.ask("put", f"{name}/{number}", "there")
        assert right.ask("get", f"{name}/{number}") == "there"
        left.ask("unlink", f"{name}/{number}")
        assert right.error("get", f"{name}/{number}") == "ENOENT"


def test_a_listing_has_what_others_have_made_and_removed(left: Actor, right: Actor, name: str) -> None:
    for number in range(10):
        left.ask("put", f"{name}/{number}", "")
        assert right.ask("names", name) == sorted(str(made) for made in range(number + 1))
    left.ask("unlink", f"{name}/0")
    assert right.ask("names", name) == [str(made) for made in range(1, 10)]


def test_names_are_any_bytes_but_slashes(left: Actor, right: Actor, name: str) -> None:
    names = sorted(["é" * 127, "x" * 255, " ", "\\", "line\nbreak", ".nfs1", "\udcff"])
    for each in names:
        left.ask("put", f"{name}/{each}", "x")
    assert right.ask("names", name) == names
    assert right.error("put", f"{name}/{'x' * 256}", "") == "ENAMETOOLONG"


# --- One winner


def test_one_of_two_wins_an_exclusive_creation(left: Actor, right: Actor, name: str) -> None:
    for number in range(_ROUNDS):
        answers = at_once(left, right, "open", f"{name}/{number}", "O_WRONLY|O_CREAT|O_EXCL")
        assert sorted(answers) == ["", "EEXIST"]


def test_two_that_create_a_file_have_the_same_one(left: Actor, right: Actor, name: str) -> None:
    for number in range(_ROUNDS):
        request = ("open", f"{name}/{number}", "O_RDWR|O_CREAT")
        left.begin(*request)
        right.begin(*request)
        opened = [left.answer(), right.answer()]
        inodes = {actor.ask("fstat", file)["inode"] for actor, file in zip((left, right), opened, strict=True)}
        assert len(inodes) == 1
        for actor, file in zip((left, right), opened, strict=True):
            actor.ask("close", file)


def test_one_of_two_makes_a_folder_or_a_link_or_renames(left: Actor, right: Actor, name: str) -> None:
    for number in range(20):
        assert sorted(at_once(left, right, "mkdir", f"{name}/{number}")) == ["", "EEXIST"]
        left.ask("put", f"{name}/file", "x")
        assert sorted(at_once(left, right, "link", f"{name}/file", f"{name}/link")) == ["", "EEXIST"]
        assert sorted(at_once(left, right, "rename", f"{name}/file", f"{name}/other")) == ["", "ENOENT"]
        assert sorted(at_once(left, right, "unlink", f"{name}/link")) == ["", "ENOENT"]
        assert sorted(at_once(left, right, "rmdir", f"{name}/{number}")) == ["", "ENOENT"]


# --- Names


def test_links_folders_and_renames_look_alike_from_both(left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "water")
    left.ask("link", f"{name}/file", f"{name}/link")
    left.ask("symlink", "file", f"{name}/symbolic")
    assert right.ask("get", f"{name}/symbolic") == right.ask("get", f"{name}/link") == "water"
    assert right.ask("readlink", f"{name}/symbolic") == "file"
    assert right.ask("stat", f"{name}/file")["links"] == 2
    left.ask("mkdir", f"{name}/full")
    left.ask("put", f"{name}/full/file", "")
    left.ask("mkdir", f"{name}/empty")
    assert right.error("rmdir", f"{name}/full") == "ENOTEMPTY"
    assert right.error("rename", f"{name}/empty", f"{name}/full") in ("ENOTEMPTY", "EEXIST")
    assert right.error("rename", f"{name}/full", f"{name}/full/below") == "EINVAL"
    right.ask("rename", f"{name}/full", f"{name}/empty")
    assert left.ask("names", f"{name}/empty") == ["file"]
    assert left.error("stat", f"{name}/full") == "ENOENT"


def test_a_file_that_its_own_node_removes_stays_while_it_is_open(left: Actor, right: Actor, name: str) -> None:
    file = left.ask("open", f"{name}/file", "O_RDWR|O_CREAT")
    left.ask("pwrite", file, "water", 0)
    left.ask("unlink", f"{name}/file")
    assert left.ask("pread", file, 5, 0) == "water"
    left.ask("pwrite", file, "fire", 0)
    assert left.ask("pread", file, 5, 0) == "firer"
    assert right.error("get", f"{name}/file") == "ENOENT"
    left.ask("close", file)
    # Until then NFS has another name for it.
    assert left.ask("names", name) == []
    left.ask("rmdir", name)


def test_a_file_that_another_node_removes_stays_while_it_is_open(left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "water")
    file = right.ask("open", f"{name}/file", "O_RDWR")
    left.ask("unlink", f"{name}/file")
    assert right.ask("pread", file, 5, 0) == "water"
    right.ask("pwrite", file, "fire", 0)
    right.ask("fsync", file)
    assert right.ask("pread", file, 5, 0) == "firer"
    right.ask("close", file)


def test_rights_and_owners_are_the_users(left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "x")
    left.ask("chmod", f"{name}/file", 0o4600)
    seen = right.ask("stat", f"{name}/file")
    assert seen["uid"] == left.ask("stat", f"{name}/file")["uid"]
    assert stat.S_IMODE(seen["mode"]) in (0o4600, 0o600)
    assert right.error("chown", f"{name}/file", 0) == "EPERM"
    assert right.error("mknod", f"{name}/device") == "EPERM"


# --- Locks


def test_locks_exclude_each_other_by_ranges(left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "." * 100)
    mine, theirs = (actor.ask("open", f"{name}/file", "O_RDWR") for actor in (left, right))
    left.ask("lock", mine, "w", 10, 10)
    assert right.error("lock", theirs, "w", 19, 1) == "EAGAIN"
    assert right.error("lock", theirs, "r", 0, 0) == "EAGAIN"
    assert right.error("lock", theirs, "w", 20, 10) == ""
    assert left.error("lock", mine, "w", 0, 0) == "EAGAIN"
    left.ask("lock", mine, "r", 10, 10)
    assert right.error("lock", theirs, "r", 10, 10) == ""
    assert right.error("lock", theirs, "w", 10, 10) == "EAGAIN"
    left.ask("lock", mine, "u", 0, 0)
    assert right.error("lock", theirs, "w", 10, 10) == ""
    left.ask("close", mine)
    right.ask("close", theirs)


def test_who_waits_for_a_lock_gets_it(left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "first")
    mine, theirs = (actor.ask("open", f"{name}/file", "O_RDWR") for actor in (left, right))
    left.ask("lock", mine, "w", 0, 0)
    right.begin("lock", theirs, "w", 0, 0, True)
    left.ask("pwrite", mine, "after", 0)
    left.ask("fsync", mine)
    left.ask("lock", mine, "u", 0, 0)
    right.answer()
    assert right.ask("pread", theirs, 5, 0) == "after"
    left.ask("close", mine)
    right.ask("close", theirs)


def test_the_locks_of_a_program_end_with_it(shown: ShownTree, left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "x")
    other = shown.actor(left.name)
    other.ask("lock", other.ask("open", f"{name}/file", "O_RDWR"), "w", 0, 0)
    file = right.ask("open", f"{name}/file", "O_RDWR")
    assert right.error("lock", file, "w", 0, 0) == "EAGAIN"
    if other.name == HOME:
        os.kill(other.pid, 9)
    else:
        shown.guests[other.name].run(f"kill -9 {other.pid}")
    right.ask("lock", file, "w", 0, 0, True)
    right.ask("close", file)


def test_flock_excludes_between_nodes(left: Actor, right: Actor, name: str) -> None:
    if HOME in (left.name, right.name) and left.name != right.name:
        pytest.skip("not promised: the home's flock and a node's are strangers; use fcntl")
    left.ask("put", f"{name}/file", "x")
    mine, theirs = (actor.ask("open", f"{name}/file", "O_RDWR") for actor in (left, right))
    left.ask("flock", mine, "w")
    assert right.error("flock", theirs, "w") == "EAGAIN"
    left.ask("flock", mine, "u")
    assert right.error("flock", theirs, "w") == ""
    left.ask("close", mine)
    right.ask("close", theirs)


def test_no_update_under_a_lock_is_lost(left: Actor, right: Actor, name: str) -> None:
    assert at_once(left, right, "add_under_a_lock", f"{name}/number", 150) == ["", ""]
    assert int(left.ask("get", f"{name}/number")) == int(right.ask("get", f"{name}/number")) == 300


# --- Appending, writing side by side


def test_lines_that_one_appends_are_seen_by_who_opens_after_that(left: Actor, right: Actor, name: str) -> None:
    for number in range(1, 21):
        left.ask("append_lines", f"{name}/log", "left", 1, False)
        assert right.ask("get", f"{name}/log").count("\n") == number


def test_lines_that_two_append_under_a_lock_are_all_there(left: Actor, right: Actor, name: str) -> None:
    left.begin("append_lines", f"{name}/log", "left ", 100, True)
    right.begin("append_lines", f"{name}/log", "right", 100, True)
    left.answer()
    right.answer()
    lines = left.ask("get", f"{name}/log").splitlines()
    assert sorted(lines) == sorted(f"{word} {number:8d}" for word in ("left ", "right") for number in range(100))


def test_lines_that_two_append_without_a_lock_are_not_promised(left: Actor, right: Actor, name: str) -> None:
    """The documents tell users so; this says whether they have to."""
    left.begin("append_lines", f"{name}/log", "left ", 300, False)
    right.begin("append_lines", f"{name}/log", "right", 300, False)
    left.answer()
    right.answer()
    lines = left.ask("get", f"{name}/log").splitlines()
    expected = {f"{word} {number:8d}" for word in ("left ", "right") for number in range(300)}
    # Of equal length, so none is torn. One machine loses none.
    assert set(lines) <= expected
    assert left.name != right.name or set(lines) == expected


@pytest.mark.parametrize("size", [4096, 65536])
def test_whole_blocks_need_no_locks(left: Actor, right: Actor, name: str, size: int) -> None:
    left.begin("write_blocks", f"{name}/file", "l", size, 0, 2, 50)
    right.begin("write_blocks", f"{name}/file", "r", size, 1, 2, 50)
    left.answer()
    right.answer()
    assert left.ask("get", f"{name}/file") == right.ask("get", f"{name}/file") == ("l" * size + "r" * size) * 50


def test_other_blocks_that_two_write_without_locks_are_not_promised(left: Actor, right: Actor, name: str) -> None:
    """Of 47 008 bytes, which end within a page: a node writes whole pages, also its neighbour's part of them."""
    left.begin("write_blocks", f"{name}/file", "l", 47008, 0, 2, 50)
    right.begin("write_blocks", f"{name}/file", "r", 47008, 1, 2, 50)
    left.answer()
    right.answer()
    content = left.ask("get", f"{name}/file")
    assert set(content) <= set("lr\0")
    assert left.name != right.name or content == ("l" * 47008 + "r" * 47008) * 50


# --- Sizes


def test_a_size_that_one_sets_is_the_other_s(left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "0123456789")
    assert right.ask("get", f"{name}/file") == "0123456789"
    left.ask("truncate", f"{name}/file", 4)
    assert right.ask("get", f"{name}/file") == "0123"
    right.ask("truncate", f"{name}/file", 6)
    assert left.ask("get", f"{name}/file") == "0123\0\0"
    file = left.ask("open", f"{name}/file", "O_WRONLY|O_TRUNC")
    left.ask("close", file)
    assert right.ask("get", f"{name}/file") == ""
    file = right.ask("open", f"{name}/file", "O_WRONLY")
    right.ask("pwrite", file, "end", 1 << 20)
    right.ask("close", file)
    assert left.ask("get", f"{name}/file") == "\0" * (1 << 20) + "end"


def test_a_file_that_is_open_is_looked_at_anew_under_a_lock(left: Actor, right: Actor, name: str) -> None:
    """And not without one: a node may go on with what it has read."""
    left.ask("put", f"{name}/file", "first")
    file = right.ask("open", f"{name}/file", "O_RDWR")
    assert right.ask("pread", file, 5, 0) == "first"
    left.ask("put", f"{name}/file", "after")
    right.ask("lock", file, "r", 0, 0)
    assert right.ask("pread", file, 5, 0) == "after"
    right.ask("close", file)


def test_stat_of_what_another_node_writes_may_be_old_until_the_file_is_opened(
    left: Actor, right: Actor, name: str
) -> None:
    """So may that of a file that it has removed."""
    left.ask("put", f"{name}/file", "x")
    right.ask("stat", f"{name}/file")
    left.ask("unlink", f"{name}/file")
    assert right.error("stat", f"{name}/file") in ("", "ENOENT")
    assert right.error("open", f"{name}/file") == "ENOENT"
    assert right.error("stat", f"{name}/file") == "ENOENT"
    left.ask("put", f"{name}/file", "x")
    for size in range(2, 12):
        assert right.ask("stat", f"{name}/file")["size"] in range(1, size)
        left.ask("put", f"{name}/file", "x" * size)
        right.ask("close", right.ask("open", f"{name}/file"))
        assert right.ask("stat", f"{name}/file")["size"] == size


# --- Reaching the home


def test_what_was_synced_is_at_the_home(shown: ShownTree, left: Actor, name: str) -> None:
    file = left.ask("open", f"{name}/file", "O_WRONLY|O_CREAT")
    for number in range(20):
        left.ask("pwrite", file, f"{number:4d}", 4 * number)
        left.ask("fsync", file)
        assert (shown.tree / name / "file").read_text() == "".join(f"{earlier:4d}" for earlier in range(number + 1))
    left.ask("pwrite", file, "more", 80)
    left.ask("syncfs", name)
    assert (shown.tree / name / "file").read_text().endswith("more")
    left.ask("close", file)


# --- Mappings


def test_a_mapping_is_seen_by_who_opens_after_it_was_synced(left: Actor, right: Actor, name: str) -> None:
    left.ask("put", f"{name}/file", "." * 10000)
    for number in range(10):
        file = left.ask("open", f"{name}/file", "O_RDWR")
        mapping = left.ask("map", file, 10000)
        assert left.ask("map_read", mapping, 5000, 1) == ("." if number == 0 else str(number - 1))
        left.ask("map_write", mapping, 5000, str(number))
        left.ask("map_sync", mapping)
        left.ask("unmap", mapping)
        left.ask("close", file)
        file = right.ask("open", f"{name}/file", "O_RDONLY")
        assert right.ask("pread", file, 1, 5000) == str(number)
        right.ask("close", file)


# --- The capacity


def test_a_full_tree_says_so_and_space_comes_back(left: Actor, right: Actor, name: str) -> None:
    before = right.ask("free")
    file = left.ask("open", f"{name}/ballast", "O_WRONLY|O_CREAT")
    assert left.ask("write_until_full", file, 8 << 20) == "ENOSPC"
    # NFS may tell once more at the end what it has told.
    assert left.error("close", file) in ("", "ENOSPC")
    assert right.ask("free") < 8 << 20
    right.ask("unlink", f"{name}/ballast")
    wait_for(lambda: bool(left.ask("free") > before - (8 << 20)), "the space to come back")
    left.ask("put", f"{name}/file", "x" * (8 << 20))
    assert len(right.ask("get", f"{name}/file")) == 8 << 20
    left.ask("unlink", f"{name}/file")


def test_a_folder_of_many_files_is_listed_whole(left: Actor, right: Actor, name: str) -> None:
    left.ask("mkdir", f"{name}/many")
    left.ask("make_files", f"{name}/many", 2000)
    assert right.ask("names", f"{name}/many") == sorted(map(str, range(2000)))
    right.ask("run", "rm", "-r", f"{name}/many")
    assert left.error("stat", f"{name}/many") == "ENOENT"


# --- Programs


def test_programs_find_what_they_need(left: Actor, right: Actor, name: str) -> None:
    """tar, git, make and SQLite with a rollback journal: one node makes, the other reads and goes on."""
    left.ask("run", "sh", "-ec", f"cd {name}; mkdir src; for i in 1 2 3 4 5 6 7 8; do echo $i > src/$i; done")
    right.ask("run", "sh", "-ec", f"cd {name}; tar cf all.tar src; mkdir copy; tar xf all.tar -C copy")
    left.ask("run", "diff", "-r", f"{name}/src", f"{name}/copy/src")
    git = "git -c user.name=a -c user.email=a@b -c safe.directory=*"
    left.ask("run", "sh", "-ec", f"cd {name}/src; git init -q; git add .; {git} commit -qm first")
    right.ask("run", "sh", "-ec", f"cd {name}; {git} clone -q src clone; cd clone; {git} fsck; git log | grep first")
    rules = "all: $(patsubst src/%,made/%,$(wildcard src/[0-9]))\nmade/%: src/%\n\tcat $< $< > $@\n"
    left.ask("put", f"{name}/Makefile", rules)
    left.ask("run", "sh", "-ec", f"cd {name}; mkdir made; make -s -j2")
    assert "Nothing to be done" in right.ask("run", "make", "-C", name)
    add = (
        "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1], timeout=60)\n"
        "base.execute('create table if not exists t (n)')\n"
        "for n in range(20):\n with base: base.execute('insert into t values (1)')\n"
        "print(base.execute('pragma integrity_check').fetchone()[0])"
    )
    left.ask("run", "python3", "-c", add, f"{name}/base")
    for actor in (left, right):
        actor.begin("run", "python3", "-c", add, f"{name}/base")
    assert (left.answer(), right.answer()) == ("ok\n", "ok\n")
    rows = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('select sum(n) from t').fetchone()[0])"
    assert right.ask("run", "python3", "-c", rows, f"{name}/base") == "60\n"
