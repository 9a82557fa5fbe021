# SPDX-License-Identifier: Apache-2.0
"""The driver `nfs` at the home, with a real Ganesha, over an image; clients are libnfs, which knows NFS 4.0 alone, so
the server of these tests has that version, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.errors import DeadlineExceededError, RefusedError, StorageError
from forebay.files.open_writers import is_being_written
from forebay.workflows.files import nfs
from forebay.workflows.files.daemons import end_daemons, find_daemons
from forebay.workflows.files.engines import FilesEngines
from forebay.workflows.files.nfs import NfsDriver
from forebay.workflows.files.settings import FilesSettings
from forebay.workflows.files.state_file import STATE_NAME
from tests.slurm.cluster import wait_for
from tests.support.cgroups import cgroups_below, job_cgroup, why_no_cgroups
from tests.support.mounted import mounted
from tests.support.other_user import as_user
from tests.support.time_limits import seconds

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Ganesha serves any user's files"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("nfs-cp") is None, reason="needs libnfs-utils; ./run test files installs it"),
]

_ID = "5b25bf15-3fd4-42c1-84d2-f10c33f12f0e"
_NODES = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
_MORE = {**_NODES, "n3": "127.0.0.3"}
_NOBODY = 65534
#: Opens a file by libnfs, writes, and closes it when its input has ended.
_HOLDER = """
import ctypes, os, sys
url, name = (text.encode() for text in sys.argv[1:])
nfs = ctypes.CDLL("libnfs.so.13")
for call in (nfs.nfs_init_context, nfs.nfs_parse_url_dir):
    call.restype = ctypes.c_void_p
nfs.nfs_get_error.restype = ctypes.c_char_p
context = ctypes.c_void_p(nfs.nfs_init_context())
where = ctypes.cast(nfs.nfs_parse_url_dir(context, url), ctypes.POINTER(ctypes.c_char_p))
file = ctypes.c_void_p()
def must(status):
    assert status >= 0, nfs.nfs_get_error(context)
must(nfs.nfs_mount(context, ctypes.c_char_p(where[0]), ctypes.c_char_p(where[1])))
must(nfs.nfs_open2(context, name, os.O_WRONLY | os.O_CREAT, 0o644, ctypes.byref(file)))
must(nfs.nfs_write(context, file, ctypes.c_uint64(5), b"water"))
print("open", flush=True)
sys.stdin.read()
must(nfs.nfs_close(context, file))
print("closed", flush=True)
"""
_SIGKILL_BIT = 1 << (signal.SIGKILL - 1)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "files", 300, "xfs") as folder:
        folder.chmod(0o777)
        yield folder


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Path]:
    """The folder of drivers' states; no daemon outlives it."""
    folder = tmp_path / "drivers"
    yield folder
    for name in ("ganesha.conf", "bus.conf"):
        end_daemons(folder / _ID / name, time.monotonic() + 30)
    shutil.rmtree(Path("/run/forebay-files") / _ID, ignore_errors=True)


@pytest.fixture
def engines(drivers: Path, tree: Path) -> FilesEngines:
    """Operations as the manager starts them."""
    made = FilesEngines(drivers, FilesSettings(address="127.0.0.1"))
    made.begin()
    return made


@pytest.fixture
def driver(drivers: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], NfsDriver]:
    """Operations in this process, with a server that libnfs can speak to and that serves the two nodes."""
    monkeypatch.setattr(nfs, "_MINOR_VERSIONS", "0, 1, 2")

    def make() -> NfsDriver:
        return NfsDriver(drivers / _ID, _ID, 1, time.monotonic() + 30)

    make().prepare(tree, "127.0.0.1", range(20490, 20999))
    make().start()
    make().ready()
    make().admit(_NODES)
    return make


def url(drivers: Path, export: str, path: str) -> str:
    port = json.loads((drivers / _ID / STATE_NAME).read_text())["port"]
    return f"nfs://127.0.0.1/{export}/{path}?nfsport={port}&version=4"


def put(drivers: Path, export: str, source: Path) -> bool:
    """A client at 127.0.0.1 writes a file; it is root's, and so has a privileged port."""
    command = ["nfs-cp", str(source), url(drivers, export, source.name)]
    return subprocess.run(command, capture_output=True, timeout=seconds(60), check=False).returncode == 0


def nothing_is_left(drivers: Path) -> bool:
    marks = [drivers / _ID / name for name in ("ganesha.conf", "bus.conf")]
    there = (drivers / _ID).exists() or (Path("/run/forebay-files") / _ID).exists()
    cgroups = any(place.name == _ID for place in cgroups_below("forebay"))
    return not there and not cgroups and not any(map(find_daemons, marks))


def test_a_node_uses_its_own_export_by_a_privileged_port_alone(
    driver: Callable[[], NfsDriver], drivers: Path, tree: Path, tmp_path: Path
) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"water")
    assert put(drivers, "n1.1", source)
    assert (tree / "data").read_bytes() == b"water"
    assert (tree / "data").stat().st_uid == _NOBODY  # root is nobody there
    assert not put(drivers, "n2.2", source)  # that of 127.0.0.2


def reached(port: int, count: int) -> int:
    """How many of so many connections to it are made within a second."""
    poll = select.poll()
    made = {}
    for _ in range(count):
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
        made[each.fileno()] = each
        poll.register(each, select.POLLOUT)
    end = time.monotonic() + 1
    there: set[int] = set()
    while (left := end - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            poll.unregister(number)
            if not made[number].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                there.add(number)
    return len(there)


def test_ordinary_users_do_not_crowd_at_the_server(
    driver: Callable[[], NfsDriver], drivers: Path, tree: Path, tmp_path: Path
) -> None:
    """It takes 1024 connections, and gives none of them up: no node could mount, and Slurm would drain it."""
    source = tmp_path / "data"
    source.write_bytes(b"water")
    port = json.loads((drivers / _ID / STATE_NAME).read_text())["port"]
    assert as_user(_NOBODY, lambda: reached(port, 300)) == 0
    driver().fence(["n2"])  # it is started anew
    assert as_user(_NOBODY, lambda: reached(port, 300)) == 0
    assert put(drivers, "n1.1", source)


def test_numbers_of_exports_go_on_after_the_engine_has_ended(
    driver: Callable[[], NfsDriver], engines: FilesEngines, drivers: Path, tree: Path
) -> None:
    driver().destroy()
    assert engines.open(_ID, tree, {"n1": "127.0.0.1"})["n1"].source == "127.0.0.1:/n1.3"
    engines.close(_ID)
    engines.forget_all_but({_ID})
    assert engines.open(_ID, tree, {"n1": "127.0.0.1"})["n1"].source == "127.0.0.1:/n1.4"
    engines.forget(_ID)
    assert nothing_is_left(drivers)
    assert engines.open(_ID, tree, {"n1": "127.0.0.1"})["n1"].source == "127.0.0.1:/n1.1"
    engines.close(_ID)
    engines.forget_all_but(set())
    assert list(drivers.glob("*.exports")) == []


# crash-matrix: Files of a job on a node | the node, cut off or hung | fencing takes its export and no other's; nothing that it sends can land
def test_a_fenced_node_writes_nothing_and_others_go_on(
    driver: Callable[[], NfsDriver], drivers: Path, tree: Path, tmp_path: Path
) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"water")
    driver().fence(["n2", "n3"])
    assert put(drivers, "n1.1", source)
    driver().fence(["n1"])
    (tree / "data").unlink()
    assert not put(drivers, "n1.1", source)
    assert list(tree.iterdir()) == []
    # What was fenced comes back only under another number.
    driver().start()
    driver().ready()
    assert driver().admit({"n1": "127.0.0.1"})["mounts"]["n1"]["source"] == "127.0.0.1:/n1.3"
    assert not put(drivers, "n1.1", source)
    assert put(drivers, "n1.3", source)


# crash-matrix: Files of a job on a node | the node, while a request of it is inside the server | fencing is over when that has landed; other nodes go on
@pytest.mark.parametrize("way", ["fence", "stop"])
def test_a_fence_waits_for_requests_that_are_inside(
    driver: Callable[[], NfsDriver], drivers: Path, tree: Path, tmp_path: Path, way: str
) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"water")
    (server,) = find_daemons(drivers / _ID / "ganesha.conf")
    state = drivers / _ID / STATE_NAME
    subprocess.run(["xfs_freeze", "-f", tree], check=True)
    try:
        client = subprocess.Popen(["nfs-cp", str(source), url(drivers, "n1.1", "data")], stdout=subprocess.DEVNULL)
        wait_for(lambda: _is_held(server), "a request that waits for the disk")
        fence = os.fork()
        if not fence:
            with contextlib.suppress(BaseException):
                driver().fence(["n1"]) if way == "fence" else driver().stop()
                os._exit(0)
            os._exit(1)
        wait_for(lambda: json.loads(state.read_text())["exports"]["n1"]["fenced"], "the fence to begin")
        # It was killed, and is not gone: it has the request inside still.
        wait_for(lambda: _is_dying(server), "the server to be killed")
        assert os.waitpid(fence, os.WNOHANG) == (0, 0)
        assert list(tree.iterdir()) == []
    finally:
        subprocess.run(["xfs_freeze", "-u", tree], check=True)
    assert os.waitstatus_to_exitcode(os.waitpid(fence, 0)[1]) == 0
    after = sorted(path.name for path in tree.iterdir())
    assert "n1" not in json.loads(state.read_text())["exports"] or way == "stop"
    client.kill()
    client.wait()
    assert sorted(path.name for path in tree.iterdir()) == after
    if way == "fence":
        assert find_daemons(drivers / _ID / "ganesha.conf")


def _is_held(pid: int) -> bool:
    """A thread waits in the kernel for a file system that takes no changes."""
    waits = [(task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return any("percpu_rwsem_wait" in wait for wait in waits)


def _is_dying(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", status, re.MULTILINE)
    return any(int(mask, 16) & _SIGKILL_BIT for mask in pending) or "(zombie)" in status


def test_the_home_sees_which_files_a_node_has_open_for_writing(
    driver: Callable[[], NfsDriver], drivers: Path, tree: Path
) -> None:
    """What `--complete closed` and `--wait-closed` ask."""
    folder = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    command = ["/usr/bin/python3", "-c", _HOLDER, url(drivers, "n1.1", ""), "data"]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stdout.readline() == b"open\n"
            assert is_being_written(folder, "data") is True
            client.stdin.close()
            assert client.stdout.readline() == b"closed\n"
        # The server itself opens a file to sync it, and lets go of it after 5 s.
        wait_for(lambda: is_being_written(folder, "data") is False, "the server to close it", 30)
        assert (tree / "data").read_bytes() == b"water"
    finally:
        os.close(folder)


def test_a_folder_is_never_shown(drivers: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    engines = FilesEngines(drivers, FilesSettings(address="127.0.0.1"))
    with pytest.raises(RefusedError, match="no file system of their own"):
        engines.open(_ID, folder, _NODES)
    engines.close(_ID)
    assert nothing_is_left(drivers)


def test_an_older_manager_changes_nothing(engines: FilesEngines, drivers: Path, tree: Path) -> None:
    engines.open(_ID, tree, _NODES)
    newer = FilesEngines(drivers, FilesSettings(address="127.0.0.1"))
    newer.begin()
    before = (drivers / _ID / STATE_NAME).read_text()
    for call in (lambda: engines.open(_ID, tree, {"n3": "127.0.0.3"}), lambda: engines.close(_ID)):
        with pytest.raises(RefusedError, match="newer manager"):
            call()
    assert (drivers / _ID / STATE_NAME).read_text() == before
    newer.close(_ID)
    assert nothing_is_left(drivers)


# crash-matrix: Files of a job on its nodes | the NFS server, killed | it is started again with the exports that are open; what was fenced stays so
def test_a_killed_server_is_started_again_with_what_is_open(engines: FilesEngines, drivers: Path, tree: Path) -> None:
    before = engines.open(_ID, tree, _NODES)
    engines.fence(_ID, ["n1"])
    for pid in find_daemons(drivers / _ID / "ganesha.conf"):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not find_daemons(drivers / _ID / "ganesha.conf"), "the server to be gone")
    engines.start_ended()
    assert "n1." not in (drivers / _ID / "ganesha.conf").read_text()
    assert engines.open(_ID, tree, {"n2": "127.0.0.2"}) == {"n2": before["n2"]}
    engines.close(_ID)
    assert nothing_is_left(drivers)


@pytest.mark.skipif(bool(why_no_cgroups()), reason=why_no_cgroups())
def test_a_server_takes_nothing_from_the_job_in_whose_cgroup_it_was_started(
    engines: FilesEngines, drivers: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_cgroup() as job:
        starter = tmp_path / "python"
        starter.write_text(f'#!/bin/sh\nexec {shlex.join(job.command([sys.executable]))} "$@"\n')
        starter.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(starter))
        for _ in range(2):
            engines.open(_ID, tree, _NODES)
            daemons = {*find_daemons(drivers / _ID / "ganesha.conf"), *find_daemons(drivers / _ID / "bus.conf")}
            own = [pids for place, pids in cgroups_below("forebay").items() if place.name == _ID]
            assert len(own) == len(job.places)
            assert all(set(pids) == daemons for pids in own)
            engines.fence(_ID, ["n1"])  # which starts it again
            own = [pids for place, pids in cgroups_below("forebay").items() if place.name == _ID]
            assert [len(pids) for pids in own] == [2] * len(job.places)
            assert engines.cgroup_problem() == ""
            engines.close(_ID)
            assert nothing_is_left(drivers)


_KILLED = [
    ("open", "files.prepare.state"),
    ("open", "files.start.configured"),
    ("open", "files.start.bus"),
    ("open", "files.start.daemon"),
    ("open", "files.admit.state"),
    ("open", "files.admit.export"),
    ("release", "files.release.state"),
    ("release", "files.release.removed"),
    ("fence", "files.fence.state"),
    ("fence", "files.fence.ended"),
    ("fence", "files.start.bus"),
    ("fence", "files.start.daemon"),
    ("close", "files.stop.state"),
    ("close", "files.destroy.ended"),
]


# crash-matrix: An operation of a files driver | showing files to nodes, killed at `files.prepare.state`, `files.start.configured`, `files.start.bus`, `files.start.daemon`, `files.admit.state`, `files.admit.export` | the same operation again succeeds; there is one server
# crash-matrix: An operation of a files driver | closing or fencing nodes, killed at `files.release.state`, `files.release.removed`, `files.fence.state`, `files.fence.ended`, `files.start.bus`, `files.start.daemon` | the same operation again succeeds; what was fenced stays so, and the others are served
# crash-matrix: An operation of a files driver | ending, killed at `files.stop.state`, `files.destroy.ended` | the same operation again succeeds; no process, port or folder is left
@pytest.mark.parametrize(("operation", "place"), _KILLED)
def test_an_operation_that_is_killed_is_repeated(
    engines: FilesEngines, drivers: Path, tree: Path, operation: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(name: str) -> None:
        if name == "open":
            assert engines.open(_ID, tree, _MORE).keys() == _MORE.keys()
        elif name == "release":
            engines.release(_ID, ["n3"])
        elif name == "fence":
            engines.fence(_ID, ["n1"])
        else:
            engines.close(_ID)

    for name in ("open", "release", "fence", "close"):
        if name == operation:
            monkeypatch.setenv("FOREBAY_FAIL_POINT", place)
            with pytest.raises((StorageError, DeadlineExceededError)):
                carry_out(name)
            monkeypatch.delenv("FOREBAY_FAIL_POINT")
        carry_out(name)
        if name == "open":
            assert len(find_daemons(drivers / _ID / "ganesha.conf")) == 1
            assert len(find_daemons(drivers / _ID / "bus.conf")) == 1
        elif name == "fence":
            engines.start_ended()
            assert len(find_daemons(drivers / _ID / "ganesha.conf")) == 1
            assert json.loads((drivers / _ID / STATE_NAME).read_text())["exports"].keys() == {"n2"}
    assert nothing_is_left(drivers)


def test_two_reservations_have_ports_of_their_own_and_one_ends_alone(
    engines: FilesEngines, drivers: Path, tree: Path, tmp_path: Path
) -> None:
    other = _ID.replace("5b", "6c")
    with mounted(tmp_path / "others", 300, "xfs") as more:
        ports = {engines.open(name, place, _NODES)["n1"].port for name, place in ((_ID, tree), (other, more))}
        assert len(ports) == 2
        engines.close(other)
        assert find_daemons(drivers / _ID / "ganesha.conf")
        assert engines.reservations() == [_ID]
    engines.close(_ID)
