# SPDX-License-Identifier: Apache-2.0
"""Prolog and epilog of a node that mounts jobs' files: with a table of mounts and a manager that stand in for real
ones. tests/files has the real ones.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from forebay.errors import BusyError, DisconnectedError, PermissionDeniedError, StorageError
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.manager.pool_membership import PoolMembership
from forebay.manager.records import NodeAnswer, NodeReported
from forebay.mounts import MOUNTS
from forebay.workflows.files.mounts import mount_at, mounts_below
from forebay.workflows.files.node_mounts import NodeMounts, Wanted
from forebay.workflows.files.settings import FilesSettings
from forebay.workflows.slurm.node_files import NodeFiles, _server_here
from tests.support.mounted import mounted

FIRST = "5b25bf15-3fd4-42c1-84d2-f10c33f12f0e"
SECOND = "6c25bf15-3fd4-42c1-84d2-f10c33f12f0e"


_HURRIED = FilesSettings(server="10.0.0.1:7460", begin_seconds_max=0.01, end_seconds_max=0.01)


class Kernel:
    """A table of mounts, and what changes it."""

    def __init__(self, folder: Path) -> None:
        self.table = folder / "mountinfo"
        self.calls: list[str] = []
        self.not_served: set[str] = set()
        self.is_busy = False
        self.is_written = True
        self._write({})

    @property
    def mounted(self) -> dict[str, str]:
        """Source, by place; it outlives the process that mounted."""
        lines = [line.split() for line in self.table.read_text().splitlines()[1:]]
        return {words[4]: words[8] for words in lines}

    def mount(self, wanted: Wanted, place: Path, _deadline: float) -> None:
        if wanted.id in self.not_served:
            raise StorageError("the server does not answer: it is not mounted in time", str(place))
        self.calls.append(f"mount {wanted.source}")
        self._write(self.mounted | {str(place.resolve()): wanted.source})

    def unmount(self, place: Path, lazy: bool, _deadline: float) -> str:
        self.calls.append("detach" if lazy else "unmount")
        if self.is_busy and not lazy:
            return "target is busy"
        self._write({other: source for other, source in self.mounted.items() if other != str(place.resolve())})
        return ""

    def seal(self, place: Path, _deadline: float) -> bool:
        self.calls.append("seal")
        if not self.is_written:
            self.table.write_text(self.table.read_text().replace(f"{place.resolve()} rw", f"{place.resolve()} ro"))
        return not self.is_written

    def _write(self, mounted: dict[str, str]) -> None:
        lines = [f"30 1 0:30 / {place} rw - nfs4 {source} rw\n" for place, source in mounted.items()]
        self.table.write_text("".join(["1 0 8:1 / / rw - ext4 /dev/root rw\n", *lines]))


class Manager:
    """What it answers, and what it is told."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any] | Exception] = []
        self.reports: list[tuple[str, int, str, str, str]] = []

    def files_on_node(self, job: str, node: str) -> NodeAnswer:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return NodeAnswer.from_native(answer)

    def report_node(self, job: str, run: int, node: str, state: str, reason: str = "") -> NodeReported:
        self.reports.append((job, run, node, state, reason))
        return NodeReported(fenced=False)

    def close(self) -> None:
        pass


def mounts_answer(job_run: int = 1, reservation: str = FIRST, source: str = "10.0.0.1:/n1.1") -> dict[str, Any]:
    mount = {"id": reservation, "source": source, "port": 20490, "tree": "/nowhere"}
    return {
        "state": "mount",
        "run": job_run,
        "uid": os.getuid(),
        "gid": os.getgid(),
        "striped": reservation,
        "mounts": [mount],
    }


@pytest.fixture(autouse=True)
def no_alarm() -> Iterator[None]:
    yield
    signal.alarm(0)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def node(tmp_path: Path, kernel: Kernel, manager: Manager) -> NodeFiles:
    asked = {"mounter": kernel.mount, "unmounter": kernel.unmount, "sealer": kernel.seal}
    file_systems = tmp_path / "filesystems"
    file_systems.write_text("nodev\tproc\nnodev\tnfs4\n")
    mounts = NodeMounts(tmp_path / "node", **asked, table=kernel.table, file_systems=file_systems)  # type: ignore[arg-type]
    settings = FilesSettings(server="10.0.0.1:7460", begin_seconds_max=30.0, end_seconds_max=30.0)
    return NodeFiles("n1", mounts, settings, "/nonexistent/scontrol", lambda: cast(ManagerClient, manager), None)


def test_a_job_is_mounted_linked_and_both_go_again(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [{"state": "wait"}, mounts_answer()]
    link = node.mounts.folder / "17"
    assert node.begin("17") == [str(link)]
    assert os.readlink(link) == f"{node.mounts.folder}/.mounts/{FIRST}/17"
    assert node.begin("17") == [str(link)]  # again
    assert kernel.calls == ["mount 10.0.0.1:/n1.1"]
    assert node.end("17") == [str(link)]
    assert node.end("17") == []
    assert kernel.mounted == {}
    assert [report[3:] for report in manager.reports] == [("mounted", ""), ("mounted", ""), ("clean", "")]
    assert sorted(path.name for path in node.mounts.folder.rglob("*")) == [".answers", ".mounts", ".private"]
    assert (node.mounts.folder / ".answers").stat().st_mode & 0o777 == 0o700


def test_private_scratch_is_this_nodes_own_behind_the_same_path(node: NodeFiles, manager: Manager) -> None:
    manager.answers = [mounts_answer() | {"private": True}]
    private = node.mounts.folder / ".private" / "17"
    assert node.begin("17") == [str(node.mounts.folder / "17"), str(private)]
    assert os.readlink(private) == f"{node.mounts.folder}/.mounts/{FIRST}/private/n1"
    assert node.end("17") == [str(node.mounts.folder / "17"), str(private)]
    assert list(private.parent.iterdir()) == []


def test_a_job_without_files_needs_nothing(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [{"state": "none"}]
    assert node.begin("17") == []
    assert node.end("17") == []
    assert not node.mounts.folder.exists()
    assert manager.reports == []


def test_a_number_that_comes_back_meets_its_own_mount(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [mounts_answer()]
    node.begin("17")
    manager.answers = [mounts_answer(2, SECOND, "10.0.0.1:/n1.2")]  # the first run's epilog never ran
    node.begin("17")
    assert os.readlink(node.mounts.folder / "17") == f"{node.mounts.folder}/.mounts/{SECOND}/17"
    assert list(kernel.mounted.values()) == ["10.0.0.1:/n1.2"]


def test_what_another_export_showed_is_replaced(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [mounts_answer()]
    node.begin("17")
    manager.answers = [mounts_answer(source="10.0.0.1:/n1.7")]
    node.begin("17")
    assert kernel.calls == ["mount 10.0.0.1:/n1.1", "detach", "mount 10.0.0.1:/n1.7"]


def test_a_mount_that_another_job_uses_stays(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [mounts_answer()]
    node.begin("17")
    node.begin("18")
    node.end("17")
    assert len(kernel.mounted) == 1
    assert manager.reports[-1][3] == "clean"
    node.end("18")
    assert kernel.mounted == {}


# crash-matrix: The epilog of a node with a job's files | programs that hold them open | in bounded time the node says that it is unclean, and lets go of the mount
def test_a_busy_mount_is_reported_before_it_is_taken_away(
    node: NodeFiles,
    kernel: Kernel,
    manager: Manager,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager.answers = [mounts_answer()]
    node.begin("17")
    kernel.is_busy = True
    monkeypatch.setattr(NodeMounts, "sync", lambda *_arguments: "")
    replace(node, settings=_HURRIED).end("17")
    assert manager.reports[-1] == ("17", 1, "n1", "unclean", "it cannot be unmounted: target is busy")
    assert kernel.calls[-1] == "detach"
    assert kernel.mounted == {}
    assert "was not clean" in capsys.readouterr().err


# crash-matrix: The epilog of a node with a job's files | programs that keep the mount alive and write nothing | it is made read-only, synced and taken from its place; the node is clean
def test_a_busy_mount_that_nobody_writes_is_sealed(
    node: NodeFiles, kernel: Kernel, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.answers = [mounts_answer()]
    node.begin("17")
    kernel.is_busy, kernel.is_written = True, False

    def sync(*_arguments: object) -> str:
        kernel.calls.append("sync")
        return ""

    monkeypatch.setattr(NodeMounts, "sync", sync)
    node.end("17")
    assert manager.reports[-1] == ("17", 1, "n1", "clean", "")
    assert kernel.calls == ["mount 10.0.0.1:/n1.1", "sync", "unmount", "seal", "sync", "detach"]
    assert kernel.mounted == {}


def test_a_sealed_mount_is_not_used_again(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [mounts_answer()]
    node.begin("17")
    kernel.is_written = False
    assert kernel.seal(node.mounts.place(FIRST), 0)  # by an epilog that was killed then
    node.begin("18")
    assert kernel.calls[-2:] == ["detach", "mount 10.0.0.1:/n1.1"]


# crash-matrix: The prolog of a node with a job's files | manager, away | it fails in bounded time, unless Slurm says that the job has no burst buffer
@pytest.mark.parametrize(("burst_buffer", "fails"), [("#DW jobdw capacity=1GiB", True), ("(null)", False)])
def test_a_prolog_does_not_wait_for_ever(
    node: NodeFiles, manager: Manager, tmp_path: Path, burst_buffer: str, fails: bool
) -> None:
    manager.answers = [DisconnectedError("the manager is away", "")]
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho 'JobId=17 JobName=x BurstBuffer={burst_buffer} Power='\n")
    scontrol.chmod(0o755)
    asking = replace(node, settings=_HURRIED, scontrol=str(scontrol))
    if not fails:
        assert asking.begin("17") == []
        return
    with pytest.raises(StorageError, match="does not get its files on n1 in time"):
        asking.begin("17")


def test_a_node_that_is_refused_mounts_nothing(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [PermissionDeniedError("Slurm did not list node n1 for job 17", "")]
    with pytest.raises(PermissionDeniedError):
        node.begin("17")
    assert kernel.calls == []


def test_root_uses_no_folder_that_others_can_change(node: NodeFiles, manager: Manager, tmp_path: Path) -> None:
    manager.answers = [mounts_answer()]
    (tmp_path / "elsewhere").mkdir()
    node.mounts.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="no folder"):
        node.begin("17")
    node.mounts.folder.unlink()
    node.mounts.folder.mkdir()
    node.mounts.folder.chmod(0o777)
    with pytest.raises(StorageError, match="others may change names"):
        node.begin("17")


@pytest.mark.parametrize("job", ["", "0", "../17", "17/..", "1 7"])
def test_what_is_no_job_is_refused(node: NodeFiles, job: str) -> None:
    with pytest.raises(StorageError, match="no job number"):
        node.begin(job)


def test_mounts_are_read_from_the_table_alone(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    strange = tmp_path / "a b"
    table.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/root rw\n31 1 0:31 / {tmp_path}/a\\040b rw shared:1 - nfs4 h:/x rw\n"
        f"32 1 0:32 /part {tmp_path}/a\\040b rw - nfs4 h:/y rw\n"
    )
    mount = mount_at(strange, table)
    assert mount is not None
    assert (mount.source, mount.root, mount.device) == ("h:/y", "/part", "0:32")
    assert mount_at(tmp_path / "c", table) is None
    assert [mount.source for mount in mounts_below(tmp_path, table)] == ["h:/x", "h:/y"]


def test_the_home_mounts_its_own_tree_without_setuid_programs(tmp_path: Path) -> None:
    with mounted(tmp_path / "tree", 1) as tree:
        mounts = NodeMounts(tmp_path / "node")
        mounts.prepare()
        wanted = Wanted(FIRST, str(tree), 0)
        try:
            for _ in range(2):
                mounts.mount(wanted, time.monotonic() + 30)
                (tree / "file").write_text("here")
                assert (mounts.place(FIRST) / "file").read_text() == "here"
            (line,) = [line for line in MOUNTS.read_text().splitlines() if f" {mounts.place(FIRST)} " in line]
            assert {"nosuid", "nodev"} <= set(line.split()[5].split(","))
            assert mounts.sync(FIRST, os.getuid(), os.getgid(), time.monotonic() + 30) == ""
        finally:
            assert mounts.unmount(FIRST, time.monotonic() + 30) == ""
        assert mounts.reservations() == []


@pytest.fixture
def silent_server() -> Iterator[int]:
    """The port of a server at 127.0.0.1 that takes connections and says nothing, as one without descriptors."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


def two_mounts(first_port: int) -> dict[str, Any]:
    """Of a job with scratch of its own, which lies at FIRST, and a persistent reservation."""
    answer = mounts_answer()
    answer["mounts"][0] |= {"source": "127.0.0.1:/n1.1", "port": first_port}
    answer["mounts"].append({"id": SECOND, "source": "127.0.0.1:/n1.1", "port": 1, "tree": "/nowhere"})
    return answer


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a port below 1024")
def test_a_server_that_users_have_filled_costs_the_job_and_not_the_node(
    node: NodeFiles, kernel: Kernel, manager: Manager, silent_server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    manager.answers = [two_mounts(silent_server)]
    kernel.not_served = {FIRST}
    # An error would have the prolog fail, and Slurm drain the node.
    assert replace(node, settings=_HURRIED).begin("17") == []
    assert list(kernel.mounted) == [str(node.mounts.place(SECOND).resolve())]
    assert not os.path.lexists(node.mounts.folder / "17")
    assert manager.reports[-1][3:] == ("failed", "the server does not answer: it is not mounted in time")
    assert "job 17 does not have all its files on n1" in capsys.readouterr().err
    assert node.end("17") == []
    assert manager.reports[-1][3] == "clean"
    assert kernel.mounted == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a port below 1024")
@pytest.mark.parametrize("lacks", ["the server's node", "NFS"])
def test_a_node_that_cannot_mount_is_drained(
    node: NodeFiles, kernel: Kernel, manager: Manager, silent_server: int, lacks: str, tmp_path: Path
) -> None:
    answer = two_mounts(silent_server)
    kernel.not_served = {FIRST}
    if lacks == "NFS":
        (tmp_path / "filesystems").write_text("nodev\tproc\n")
    else:
        answer["mounts"][0]["source"] = "255.255.255.255:/n1.1"  # of no node
    manager.answers = [answer]
    with pytest.raises(StorageError, match="does not answer"):
        replace(node, settings=_HURRIED).begin("17")


# crash-matrix: Prolog and epilog of a node with a job's files | an NFS server, that another job's prolog waits for | jobs that do not use it begin and end
def test_a_job_does_not_wait_for_what_another_one_mounts(node: NodeFiles, kernel: Kernel, manager: Manager) -> None:
    manager.answers = [mounts_answer(reservation=SECOND)]
    node.mounts.prepare()
    with node.mounts.turn(FIRST, 0.0):
        assert node.begin("18") == [str(node.mounts.folder / "18")]
        node.end("18")
    assert manager.reports[-1][3:] == ("clean", "")
    assert kernel.mounted == {}


def test_a_tree_of_the_home_that_its_user_destroyed_costs_the_job_and_not_the_node(
    node: NodeFiles, manager: Manager, tmp_path: Path
) -> None:
    (tmp_path / "reservations").mkdir()
    answer = mounts_answer()
    answer["mounts"][0] |= {"tree": str(tmp_path / "reservations" / FIRST / "files"), "home": ""}
    manager.answers = [answer]
    mounts = NodeMounts(node.mounts.folder)
    assert replace(node, mounts=mounts, home="").begin("17") == []
    assert manager.reports[-1][3:] == ("failed", "the reservation is gone")


def test_files_that_the_manager_does_not_open_in_time_cost_the_job_and_not_the_node(
    node: NodeFiles, kernel: Kernel, manager: Manager, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other jobs of the same reservation may keep it busy, by programs that stay on their nodes."""
    manager.answers = [{"state": "wait"}]
    assert replace(node, settings=_HURRIED).begin("17") == []
    assert "its exports are not open in time" in capsys.readouterr().err
    assert kernel.calls == []


def test_a_manager_that_has_much_to_do_is_asked_again(node: NodeFiles, manager: Manager) -> None:
    manager.answers = [BusyError("ask again", ""), StorageError("the disk is full", ""), mounts_answer()]
    assert node.begin("17") == [str(node.mounts.folder / "17")]


_BEGIN = ("node.begin.answer", "node.begin.mounted", "node.begin.linked")
_END = ("node.end.synced", "node.end.sealed", "node.end.unmounted", "node.end.reported")


# crash-matrix: Prolog and epilog of a node with a job's files | the prolog, killed at `node.begin.answer`, `node.begin.mounted`, `node.begin.linked` | run again it succeeds; the epilog alone cleans up as well
# crash-matrix: Prolog and epilog of a node with a job's files | the epilog, killed at `node.end.synced`, `node.end.sealed`, `node.end.unmounted`, `node.end.reported` | run again it cleans up, and says that it is not known to be clean; no mount, link or answer is left
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("place", [*_BEGIN, *_END])
def test_a_killed_prolog_or_epilog_is_made_good(
    node: NodeFiles, kernel: Kernel, manager: Manager, place: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.answers = [mounts_answer()]
    if place in _END:
        node.begin("17")
    child = os.fork()
    if not child:
        monkeypatch.setattr("forebay.fail_point._NAME", place)
        node.begin("17") if place in _BEGIN else node.end("17")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if place in _BEGIN and again:
        node.begin("17")
        assert len(kernel.mounted) == 1
    node.end("17")
    assert kernel.mounted == {}
    killed = ("unclean", "an epilog before this one was killed")
    assert manager.reports[-1][3:] == (killed if place in _END else ("clean", ""))
    assert sorted(path.name for path in node.mounts.folder.rglob("*")) == [".answers", ".mounts", ".private"]


def test_a_server_that_has_joined_is_home_by_its_name_whatever_a_manager_has_left_there(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    assert _server_here(instance) is None
    instance.manager_endpoint.write_text("/run/gone\n")
    assert _server_here(instance) == ""
    instance.pool_membership.write_text(PoolMembership("ssd1", "ssd1:7460", "key").text)
    assert _server_here(instance) == ""
    instance.pool_membership.write_text(PoolMembership("ssd2", "ssd2:7460", "key", "ssd1:7460").text)
    assert _server_here(instance) == "ssd2"
