# SPDX-License-Identifier: Apache-2.0
"""The driver of a site's own commands, with a stand-in that records its calls and mounts a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.errors import (
    DeadlineExceededError,
    ForebayError,
    InvalidArgumentError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from forebay.manager.process_identity import process_identity
from forebay.mounts import MOUNTS
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.commands.site_mounts import SiteMounts, SiteWanted
from forebay.workflows.files.engines import FilesEngines
from forebay.workflows.files.mounts import mount_at
from forebay.workflows.files.node_mounts import NodeMounts, Wanted
from forebay.workflows.files.settings import FilesSettings
from tests.support.site_engine import SiteEngine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")

_ID = "5b25bf15-3fd4-42c1-84d2-f10c33f12f0e"
_CAPACITY = 1 << 30
#: Not of this machine.
_NODES = {"n1": "198.51.100.1", "n2": "198.51.100.2"}
_ALWAYS = {"PATH", "LC_ALL", "PWD", "_", "SHLVL", "OLDPWD"}


@pytest.fixture
def site(tmp_path: Path) -> SiteEngine:
    return SiteEngine(tmp_path / "site")


@pytest.fixture
def tree(tmp_path: Path, site: SiteEngine) -> Iterator[Path]:
    """files/ of a reservation, as the server makes it."""
    folder = tmp_path / "files"
    folder.mkdir(mode=0o750)
    os.chown(folder, 0, 12345)
    yield folder
    site.unmount_all(folder)


@pytest.fixture
def engines(tmp_path: Path, site: SiteEngine) -> FilesEngines:
    return made_engines(tmp_path, site)


def made_engines(tmp_path: Path, site: SiteEngine, seconds: float = 20.0) -> FilesEngines:
    settings = FilesSettings(address="127.0.0.1", operation_seconds_max=seconds, commands=site.commands(seconds))
    made = FilesEngines(tmp_path / "drivers", settings)
    made.begin()
    return made


@pytest.fixture
def mounts(tmp_path: Path, site: SiteEngine) -> Iterator[NodeMounts]:
    """Those of a node."""
    made = NodeMounts(tmp_path / "node", node="n1", commands=site.commands())
    made.prepare()
    yield made
    site.unmount_all(made.place(_ID))


def wanted(way: str = "n1.1", incarnation: int = 1, state: str = "port 17\n") -> Wanted:
    return Wanted(_ID, way, 0, SiteWanted(incarnation, _CAPACITY, way, state))


def soon() -> float:
    return time.monotonic() + 20


def test_the_whole_path_of_a_reservation(
    engines: FilesEngines, tree: Path, site: SiteEngine, mounts: NodeMounts
) -> None:
    engines.make_tree(_ID, tree, _CAPACITY)
    assert (tree.stat().st_gid, tree.stat().st_mode & 0o777) == (12345, 0o750)
    (tree / "staged").write_text("in")
    admitted = engines.open(_ID, tree, _NODES)
    assert {node: mount.source for node, mount in admitted.items()} == {"n1": "n1.1", "n2": "n2.2"}
    mounts.mount(wanted(admitted["n1"].source, engines.incarnation, engines.site_state(_ID)), soon())
    assert (mounts.place(_ID) / "staged").read_text() == "in"
    (mounts.place(_ID) / "made").write_text("out")
    assert mounts.unmount(_ID, soon()) == ""
    engines.stop(_ID, ["n1"])
    engines.check_tree(_ID)
    assert (tree / "made").read_text() == "out"
    assert engines.reservations() == []
    engines.close(_ID)
    assert (tree / "made").exists()
    engines.forget(_ID)
    assert mount_at(tree) is None
    assert not engines.has(_ID)
    assert site.operations() == [
        *("prepare", "start", "ready", "mount", "admit n1", "admit n2"),
        *("mount", "unmount", "release n1", "fence n2", "unmount", "stop", "destroy"),
    ]


def test_commands_are_told_values_by_a_minimal_environment(
    engines: FilesEngines, tree: Path, site: SiteEngine, mounts: NodeMounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "a name; rm -rf /")
    monkeypatch.setenv("DW_JOB_STRIPED", "/somebody's")
    engines.make_tree(_ID, tree, _CAPACITY)
    engines.open(_ID, tree, {"n1": "198.51.100.1"})
    engines.fence(_ID, ["n1"])
    mounts.mount(wanted(), soon())
    mounts.unmount(_ID, soon())
    common = {
        *_ALWAYS,
        *("FOREBAY_OPERATION", "FOREBAY_RESERVATION_ID", "FOREBAY_INCARNATION", "FOREBAY_CAPACITY_BYTES"),
        *("FOREBAY_STATE", "FOREBAY_NODE"),
    }
    for call in site.calls():
        assert call[""] == ""  # the arguments are the site's alone
        assert (call["FOREBAY_RESERVATION_ID"], call["FOREBAY_CAPACITY_BYTES"]) == (_ID, str(_CAPACITY))
        more = set(call) - common - {""}
        match call["FOREBAY_OPERATION"]:
            case "prepare" | "start" | "ready":
                assert more == set()
            case "admit" | "fence":
                assert more == {"FOREBAY_NODE_ADDRESS", "FOREBAY_WAY_IN"}
                assert (call["FOREBAY_NODE"], call["FOREBAY_WAY_IN"]) == ("n1", "n1.1")
            case "mount" | "unmount":
                assert {"FOREBAY_MOUNT_POINT", "FOREBAY_LAZY"} <= more
    on_node = site.calls()[-2]
    assert (on_node["FOREBAY_NODE"], on_node["FOREBAY_MOUNT_POINT"]) == ("n1", str(mounts.place(_ID)))


def test_what_the_commands_keep_at_the_home_reaches_those_on_a_node(
    engines: FilesEngines, tree: Path, mounts: NodeMounts
) -> None:
    engines.make_tree(_ID, tree, _CAPACITY)
    assert engines.site_state(_ID) == "port 17\n"
    mounts.mount(wanted(state=engines.site_state(_ID)), soon())
    kept = mounts.folder / ".answers" / f"{_ID}.state"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("port 17\n", 0o600)
    mounts.unmount(_ID, soon())
    assert [path.name for path in kept.parent.iterdir()] == ["commands.log"]


def test_a_command_is_killed_at_its_deadline_with_all_that_it_has_started(
    tmp_path: Path, tree: Path, site: SiteEngine
) -> None:
    engines = made_engines(tmp_path, site)
    engines.make_tree(_ID, tree, _CAPACITY)
    engines.open(_ID, tree, _NODES)
    site.set("hang.fence")
    hurried = FilesEngines(
        tmp_path / "drivers",
        FilesSettings(address="127.0.0.1", commands=replace(site.commands(), seconds={"fence": 0.5})),
    )
    with pytest.raises(DeadlineExceededError, match="fence was not done in time, and was killed"):
        hurried.fence(_ID, ["n1"])
    for name in ("leader", "child"):
        assert process_identity(int((site.folder / name).read_text())) is None
    site.set("hang.fence", on=False)
    made_engines(tmp_path, site).stop(_ID)
    assert site.operations()[-2:] == ["fence n1", "fence n2"]


def test_an_older_incarnation_does_nothing(tmp_path: Path, tree: Path, site: SiteEngine, mounts: NodeMounts) -> None:
    older = made_engines(tmp_path, site)
    older.make_tree(_ID, tree, _CAPACITY)
    newer = made_engines(tmp_path, site)
    newer.open(_ID, tree, _NODES)
    site.forget_calls()
    calls: list[Callable[[], None]] = [
        lambda: older.fence(_ID, ["n1"]),
        lambda: older.release(_ID, ["n1"]),
        lambda: older.stop(_ID),
        lambda: older.forget(_ID),
        lambda: older.make_tree(_ID, tree, _CAPACITY),
    ]
    for call in calls:
        with pytest.raises(RefusedError, match="newer manager"):
            call()
    assert site.operations() == []
    mounts.mount(wanted(incarnation=2), soon())
    with pytest.raises(RefusedError, match="newer manager"):
        mounts.mount(wanted("n1.9", incarnation=1), soon())
    assert site.operations() == ["mount"]


# crash-matrix: An operation of a files driver that a site's commands carry out | the operation, while its command runs | the next one ends that command with all that it has started, and succeeds
@pytest.mark.parametrize("operation", ["prepare", "start", "ready", "mount", "admit"])
@pytest.mark.instance
def test_an_operation_that_is_killed_with_its_command_is_repeated(
    tmp_path: Path, tree: Path, site: SiteEngine, operation: str
) -> None:
    kill_and_repeat(tmp_path, site, operation, lambda engines: shown(engines, tree))
    assert (tree / "here").read_text() == "yes"


@pytest.mark.parametrize("operation", ["release", "fence", "unmount", "stop", "destroy"])
@pytest.mark.instance
def test_an_end_that_is_killed_with_its_command_is_repeated(
    tmp_path: Path, tree: Path, site: SiteEngine, operation: str
) -> None:
    shown(made_engines(tmp_path, site), tree)
    kill_and_repeat(tmp_path, site, operation, end)
    assert mount_at(tree) is None
    assert not (tmp_path / "drivers" / _ID).exists()
    assert site.operations()[-1] == "destroy"


def end(engines: FilesEngines) -> None:
    engines.stop(_ID, ["n1"])
    engines.forget(_ID)


def shown(engines: FilesEngines, tree: Path) -> None:
    engines.make_tree(_ID, tree, _CAPACITY)
    (tree / "here").write_text("yes")
    engines.open(_ID, tree, _NODES)


def kill_and_repeat(tmp_path: Path, site: SiteEngine, operation: str, call: Callable[[FilesEngines], None]) -> None:
    """The operation's process is killed while its command runs, whose processes are left; then all is repeated."""
    site.set(f"hang.{operation}")
    child = os.fork()
    if child == 0:
        try:
            call(made_engines(tmp_path, site))
        finally:
            os._exit(1)
    while not (site.folder / "leader").exists():
        time.sleep(0.02)
    leader = int((site.folder / "leader").read_text())
    parent = int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    os.waitpid(child, 0)
    assert process_identity(leader) is not None
    site.set(f"hang.{operation}", on=False)
    call(made_engines(tmp_path, site))
    for name in ("leader", "child"):
        assert process_identity(int((site.folder / name).read_text())) is None


# crash-matrix: An operation of a files driver that a site's commands carry out | showing files, killed at `files.commands.mounting`, or after any of its commands | the same operation again succeeds; the tree is mounted once
@pytest.mark.parametrize(
    "point",
    [
        "files.prepare.state",
        "files.commands.prepare",
        "files.commands.mounting",
        "files.commands.mount",
        "files.admit.state",
        "files.commands.admit",
    ],
)
@pytest.mark.instance
def test_an_operation_that_is_killed_between_its_steps_is_repeated(
    tmp_path: Path, tree: Path, site: SiteEngine, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("FOREBAY_FAIL_POINT", point)
    with pytest.raises(StorageError, match="status -9"):
        shown(made_engines(tmp_path, site), tree)
    monkeypatch.delenv("FOREBAY_FAIL_POINT")
    shown(made_engines(tmp_path, site), tree)
    assert (tree / "here").read_text() == "yes"
    assert len(subprocess.run(["findmnt", "-n", str(tree)], capture_output=True, check=True).stdout.splitlines()) == 1


# crash-matrix: An operation of a files driver that a site's commands carry out | its end, killed at `files.destroy.state`, `files.destroy.unmounted`, or after any of its commands | the same operation again succeeds; every node was fenced or released, and nothing is left
@pytest.mark.parametrize(
    "point",
    [
        "files.stop.state",
        "files.commands.release",
        "files.commands.fence",
        "files.destroy.state",
        "files.commands.unmount",
        "files.destroy.unmounted",
        "files.commands.stop",
        "files.commands.destroy",
    ],
)
@pytest.mark.instance
def test_an_end_that_is_killed_between_its_steps_is_repeated(
    tmp_path: Path, tree: Path, site: SiteEngine, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    shown(made_engines(tmp_path, site), tree)
    monkeypatch.setenv("FOREBAY_FAIL_POINT", point)
    with pytest.raises(StorageError, match="status -9"):
        end(made_engines(tmp_path, site))
    monkeypatch.delenv("FOREBAY_FAIL_POINT")
    end(made_engines(tmp_path, site))
    assert mount_at(tree) is None
    assert not (tmp_path / "drivers" / _ID).exists()
    assert {"release n1", "fence n2", "stop", "destroy"} <= set(site.operations())


def test_a_failed_command_says_why_and_nothing_counts_as_fenced(
    engines: FilesEngines, tree: Path, site: SiteEngine
) -> None:
    shown(engines, tree)
    site.set("fail.fence")
    with pytest.raises(StorageError, match="command fence failed: cannot fence: the engine says no"):
        engines.stop(_ID, ["n1"])
    assert engines.reservations() == [_ID]
    with pytest.raises(StorageError):
        engines.forget(_ID)
    assert mount_at(tree) is not None
    site.set("fail.fence", on=False)
    engines.stop(_ID)
    assert [call for call in site.operations() if call.startswith("fence")] == ["fence n2"]


def test_a_node_that_was_fenced_comes_back_by_another_way(engines: FilesEngines, tree: Path, site: SiteEngine) -> None:
    shown(engines, tree)
    engines.fence(_ID, ["n1"])
    engines.fence(_ID, ["n1"])
    assert site.operations().count("fence n1") == 1
    assert engines.open(_ID, tree, _NODES)["n1"].source == "n1.3"
    assert site.operations()[-1] == "admit n1"


def test_the_home_as_a_node_is_never_fenced(engines: FilesEngines, tree: Path, site: SiteEngine) -> None:
    engines.make_tree(_ID, tree, _CAPACITY)
    engines.open(_ID, tree, {"here": "127.0.0.1"})
    engines.stop(_ID)
    assert engines.reservations() == []
    assert not any(call.startswith("fence") for call in site.operations())


def test_a_tree_that_is_not_mounted_any_more_is_found_and_mounted_again(
    engines: FilesEngines, tree: Path, site: SiteEngine
) -> None:
    shown(engines, tree)
    assert engines.ended() == []
    site.unmount_all(tree)
    assert (tree.stat().st_uid, tree.stat().st_mode & 0o777) == (0, 0)
    assert engines.ended() == [_ID]
    with pytest.raises(StorageError, match="not mounted here"):
        engines.check_tree(_ID)
    engines.start_ended()
    engines.check_tree(_ID)
    assert (tree / "here").exists()


def test_an_engine_that_cannot_be_started_is_not_tried_all_the_time(
    engines: FilesEngines, tree: Path, site: SiteEngine
) -> None:
    shown(engines, tree)
    site.unmount_all(tree)
    site.set("fail.mount")
    site.forget_calls()
    engines.start_ended()
    engines.start_ended()
    assert site.operations() == ["start", "ready", "unmount"]


def test_files_that_no_other_node_would_see_are_no_tree(engines: FilesEngines, tree: Path, site: SiteEngine) -> None:
    (tree / "mine").touch()
    with pytest.raises(RefusedError, match="no other node would see"):
        engines.make_tree(_ID, tree, _CAPACITY)
    assert site.operations() == []
    engines.forget(_ID)
    assert not engines.has(_ID)


# crash-matrix: The tree of a site's engine at the home | its destruction, killed or failed half way | nobody mounts it again until it is made anew
@pytest.mark.parametrize("point", ["files.destroy.unmounted", "files.commands.stop", "files.commands.destroy"])
def test_a_tree_that_is_being_destroyed_is_not_mounted_again(
    engines: FilesEngines, tree: Path, site: SiteEngine, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines.make_tree(_ID, tree, _CAPACITY)
    with monkeypatch.context() as killed:
        killed.setenv("FOREBAY_FAIL_POINT", point)
        with pytest.raises(StorageError):
            engines.forget(_ID)
    site.forget_calls()
    engines.start_ended()
    assert site.operations() == engines.ended() == []
    with pytest.raises(StorageError, match="not mounted here"):
        engines.check_tree(_ID)
    engines.make_tree(_ID, tree, _CAPACITY)
    assert site.operations() == ["prepare", "start", "ready", "mount"]
    assert tree.stat().st_gid == 12345
    engines.forget(_ID)
    assert not engines.has(_ID)


def test_a_tree_whose_reservation_is_gone_is_destroyed(engines: FilesEngines, tree: Path, site: SiteEngine) -> None:
    shown(engines, tree)
    engines.forget_all_but([_ID])
    assert engines.has(_ID)
    engines.forget_all_but([])
    assert not engines.has(_ID)
    assert site.operations()[-1] == "destroy"


def test_a_mount_of_another_way_in_goes_first(mounts: NodeMounts, site: SiteEngine) -> None:
    mounts.mount(wanted("n1.1"), soon())
    mounts.mount(wanted("n1.1"), soon())
    assert site.operations() == ["mount"]
    mounts.mount(wanted("n1.2"), soon())
    assert site.operations() == ["mount", "unmount", "mount"]
    assert site.calls()[1]["FOREBAY_LAZY"] == "1"


def test_a_mount_that_somebody_has_replaced_is_not_what_the_job_began_with(
    mounts: NodeMounts, site: SiteEngine
) -> None:
    mounts.mount(wanted(), soon())
    assert mounts.what_changed(_ID) == ""
    site.unmount_all(mounts.place(_ID))
    assert "not mounted as it was" in mounts.what_changed(_ID)
    subprocess.run(["mount", "-t", "tmpfs", "forebay-test", str(mounts.place(_ID))], check=True)
    assert "not mounted as it was" in mounts.what_changed(_ID)


def test_a_node_whose_unmount_fails_is_not_clean_and_is_taken_away_lazily(mounts: NodeMounts, site: SiteEngine) -> None:
    mounts.mount(wanted(), soon())
    site.set("fail.unmount")
    assert "cannot unmount: the engine says no" in mounts.unmount(_ID, soon())
    assert mounts.is_there(_ID)
    site.set("fail.unmount", on=False)
    mounts.detach(_ID, soon())
    assert not mounts.is_there(_ID)
    assert not mounts.place(_ID).exists()


def test_a_mount_command_that_mounts_nothing_has_failed(tmp_path: Path) -> None:
    lists = dict.fromkeys(("mount", "unmount", "fence", "destroy"), ("/bin/true",))
    mounts = SiteMounts(tmp_path, "n1", SiteCommands(lists), MOUNTS)
    told = wanted().site
    assert told is not None
    with pytest.raises(StorageError, match="nothing is mounted"):
        mounts.mount(_ID, tmp_path / "place", told, soon())


def test_a_program_that_another_user_may_change_is_refused_by_name(tmp_path: Path, site: SiteEngine) -> None:
    assert site.commands().problems() == {}
    site.program.chmod(0o775)
    problems = site.commands().problems()
    assert isinstance(problems["fence"], StorageError)
    assert "[files.commands] fence: another user may change this program" in str(problems["fence"])
    with pytest.raises(StorageError, match="another user"):
        made_engines(tmp_path, site).check("commands")
    site.program.chmod(0o755)
    os.chown(site.program, 12345, 0)
    assert site.commands().problems()
    os.chown(site.program, 0, 0)
    site.folder.chmod(0o777)
    assert site.commands().problems()


def test_a_script_among_the_arguments_is_looked_at_too(site: SiteEngine) -> None:
    site.program.chmod(0o777)
    commands = SiteCommands({"fence": ("/bin/sh", str(site.program))})
    with pytest.raises(StorageError, match="another user"):
        commands.check("fence")


@pytest.mark.parametrize(("mode", "words"), [(None, "there is no program"), (0o644, "not executable")])
def test_a_program_that_cannot_be_run_is_named(site: SiteEngine, mode: int | None, words: str) -> None:
    commands = site.commands()
    if mode is None:
        site.program.unlink()
    else:
        site.program.chmod(mode)
    with pytest.raises(UnsupportedError, match=rf"\[files.commands\] mount: .*{words}"):
        commands.check("mount")


_WHOLE = {name: [f"/opt/{name}"] for name in ("mount", "unmount", "fence", "destroy")}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"mount": ["/opt/mount"]}, "lacks unmount, fence, destroy"),
        (_WHOLE | {"mount": "/opt/mount -v"}, "mount must be a list"),
        (_WHOLE | {"mount": ["mount"]}, "whole path"),
        (_WHOLE | {"mount": []}, "must be a list"),
        (_WHOLE | {"remount": ["/opt/mount"]}, "no command remount"),
        (_WHOLE | {"seconds_max": {"fence": 0}}, "above 0"),
        (_WHOLE | {"seconds_max": {"fences": 1}}, "seconds by operation"),
        ([], "is no table"),
    ],
)
def test_a_table_that_means_nothing_is_refused(table: object, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        FilesSettings.from_configuration({"files": {"commands": table}}, Path("forebay.toml"))


def test_a_command_has_the_deadline_of_all_or_its_own() -> None:
    table = _WHOLE | {"seconds_max": {"fence": 300}}
    settings = FilesSettings.from_configuration(
        {"files": {"operation_seconds_max": 20.0, "commands": table}}, Path("forebay.toml")
    )
    assert settings is not None
    assert settings.commands is not None
    assert (settings.commands.seconds_max("fence"), settings.commands.seconds_max("mount")) == (300.0, 20.0)


def test_a_site_without_commands_is_told_so(tmp_path: Path, tree: Path) -> None:
    engines = FilesEngines(tmp_path / "drivers", FilesSettings(address="127.0.0.1"))
    with pytest.raises(ForebayError, match=r"\[files.commands\]"):
        engines.check("commands")
