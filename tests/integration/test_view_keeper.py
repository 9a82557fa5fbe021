# SPDX-License-Identifier: Apache-2.0
"""Who keeps a view, and when it ends: holders, closes, release, killed keepers, and folders of others."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli import root
from forebay.errors import NotFoundError, PermissionDeniedError
from forebay.views.checks import check, heal
from forebay.views.folder import SOCKET, ViewFolder, ViewRecord, ViewsFolder
from forebay.views.holder import calling_process, holder_of
from forebay.views.keeper import Keeper, listening
from forebay.views.keeping import hand_over, keeper_runs, release, start_keeper
from forebay.views.left_over import remove_without_holder
from tests.support.load import until
from tests.support.time_limits import seconds
from tests.support.views import write_every_kind

HOUR = 3600.0


class Clock:
    """The time, as a test sets it."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ViewsFolder]:
    monkeypatch.setenv("FOREBAY_VIEWS", str(tmp_path / "views"))
    # As the keeper does: who opens a file that is just asked for a lease sends it.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with ViewsFolder.open(tmp_path / "views", create=True) as opened:
        yield opened
    signal.signal(signal.SIGIO, before)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that lives until it is killed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def make(folder: ViewsFolder, holder: int | None) -> ViewFolder:
    """A view with a file, for this process."""
    with folder.turn():
        view = folder.make()
    file = os.open("flow@0.h5", os.O_WRONLY | os.O_CREAT, 0o400, dir_fd=view.descriptor)
    os.close(file)
    identity = ""
    if holder is not None:
        found = holder_of(holder)
        identity = found.identity
        os.close(found.descriptor)
    view.write_record(ViewRecord("flow@0.h5", identity))
    return view


def pid_of_keeper(folder: ViewsFolder) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"/proc/self/fd/{folder._descriptor}/{SOCKET}")
        return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)


def holder_has_ended(pid: int) -> bool:
    try:
        found = holder_of(pid)
    except NotFoundError:
        return True
    os.close(found.descriptor)
    return not found.identity


def test_a_view_ends_with_its_process(folder: ViewsFolder, process: subprocess.Popen[bytes]) -> None:
    with listening(folder) as listener:
        keeper = Keeper(folder, listener)
        view = make(folder, process.pid)
        view.close()
        with folder.turn():
            keeper.adopt()
        keeper.round(0)
        assert keeper.views == [view.name]
        process.kill()
        keeper.round(seconds(60))
        assert keeper.views == []
        assert folder.names() == []


def test_a_view_ends_an_hour_after_its_last_close(folder: ViewsFolder, process: subprocess.Popen[bytes]) -> None:
    clock = Clock()
    with listening(folder) as listener:
        keeper = Keeper(folder, listener, now=clock)
        view = make(folder, process.pid)
        path = folder.path_of(view, "flow@0.h5")
        view.close()
        with folder.turn():
            keeper.adopt()
        clock.time = HOUR - 1
        path.read_bytes()
        keeper.round(0)
        clock.time = 2 * HOUR - 2
        keeper.round(0)
        assert path.exists()
        # Whoever has it open, or mapped, keeps it, however long.
        with path.open("rb"):
            keeper.round(0)
            clock.time = 9 * HOUR
            keeper.round(0)
            keeper.round(0)
            assert path.exists()
        keeper.round(0)
        clock.time = 10 * HOUR - 1
        keeper.round(0)
        assert path.exists()
        clock.time = 10 * HOUR + 1
        keeper.round(0)
        assert not path.exists()
        assert folder.names() == []


def test_a_view_that_somebody_removes_is_no_longer_kept(folder: ViewsFolder, process: subprocess.Popen[bytes]) -> None:
    with listening(folder) as listener:
        keeper = Keeper(folder, listener)
        views = [make(folder, process.pid), make(folder, process.pid)]
        for view in views:
            view.close()
        with folder.turn():
            keeper.adopt()
        shutil.rmtree(folder.path / views[0].name)
        keeper.round(seconds(60))
        assert keeper.views == [views[1].name]
        folder.path_of(views[1], "flow@0.h5").unlink()
        keeper.round(seconds(60))
        assert keeper.views == []
        assert folder.names() == []


def test_a_keeper_ends_with_its_last_view(folder: ViewsFolder, process: subprocess.Popen[bytes]) -> None:
    first, second = make(folder, process.pid), make(folder, process.pid)
    holder = holder_of(process.pid)
    with folder.turn():
        hand_over(folder, first, holder)
        hand_over(folder, second, holder)
        keeper = pid_of_keeper(folder)
    os.close(holder.descriptor)
    path = folder.path_of(first, "flow@0.h5")
    first.close()
    second.close()
    assert check(folder.path) == []
    release(path)
    assert folder.names() == [second.name]
    with pytest.raises(NotFoundError):
        release(path)
    process.kill()
    until(lambda: holder_has_ended(keeper), "the end of the keeper")
    assert folder.names() == []
    with folder.turn():
        assert not keeper_runs(folder)


# crash-matrix: sealed view | its keeper killed (`kill -9`) while views are open | `doctor` names the views; the next keeper, or `doctor --heal`, keeps those whose process lives and removes the others
def test_a_killed_keeper_leaves_nothing_that_is_not_found(
    folder: ViewsFolder, process: subprocess.Popen[bytes]
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        views = [make(folder, process.pid), make(folder, other.pid)]
        with folder.turn():
            start_keeper(folder)
            for view, pid in zip(views, (process.pid, other.pid), strict=True):
                holder = holder_of(pid)
                hand_over(folder, view, holder)
                os.close(holder.descriptor)
                view.close()
            keeper = pid_of_keeper(folder)
        os.kill(keeper, signal.SIGKILL)
        until(lambda: holder_has_ended(keeper), "the end of the keeper")
        other.kill()
    (finding,) = check(folder.path)
    assert "2 views that nobody keeps" in finding.what
    heal(folder.path)
    assert folder.names() == [views[0].name]
    assert check(folder.path) == []
    second = pid_of_keeper(folder)
    process.kill()
    until(lambda: holder_has_ended(second), "the end of the second keeper")
    assert folder.names() == []


# crash-matrix: sealed view | `forebay path` killed while it copies | the file without a path is removed by the next `forebay path` or `doctor --heal`
def test_what_a_killed_command_was_making_is_removed(folder: ViewsFolder) -> None:
    child = os.fork()
    if child == 0:
        make(folder, os.getpid())
        os._exit(0)
    os.waitpid(child, 0)
    with folder.turn():
        folder_without_lock = folder.make()
        os.unlink(".view", dir_fd=folder_without_lock.descriptor)
    folder_without_lock.close()
    assert len(folder.names()) == 2
    with folder.turn():
        assert remove_without_holder(folder) == 2
    assert folder.names() == []


def test_sigterm_ends_all_views(folder: ViewsFolder, process: subprocess.Popen[bytes]) -> None:
    view, holder = make(folder, process.pid), holder_of(process.pid)
    with folder.turn():
        hand_over(folder, view, holder)
        keeper = pid_of_keeper(folder)
    os.close(holder.descriptor)
    view.close()
    os.kill(keeper, signal.SIGTERM)
    until(lambda: holder_has_ended(keeper), "the end of the keeper")
    assert folder.names() == []


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    for path in (planted, tmp_path / "link"):
        with pytest.raises(PermissionDeniedError, match="FOREBAY_VIEWS"):
            ViewsFolder.open(path, create=True)
    if os.geteuid() == 0:
        planted.chmod(0o700)
        os.chown(planted, 12345, 12345)
        with pytest.raises(PermissionDeniedError, match="uid 12345"):
            ViewsFolder.open(planted, create=True)


def test_a_shell_that_forks_itself_is_passed_over() -> None:
    # The subshell has another command to run, so that it stays while Python runs.
    script = "import os; from forebay.views.holder import calling_process; print(os.getppid(), calling_process().pid)"
    told = subprocess.run(
        ["bash", "-c", f'echo $$; echo $({sys.executable} -c "{script}"; true)'],
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds(60),
    ).stdout.split()
    shell, parent, found = map(int, told)
    assert parent != shell
    assert found == shell


def test_the_caller_is_the_parent() -> None:
    found = calling_process()
    os.close(found.descriptor)
    assert found.pid > 1


def test_path_prints_a_read_only_file_and_releases_it(
    reservation: str, folder: ViewsFolder, process: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    write_every_kind(f"{reservation}/flow", steps=2)
    views = [f"{reservation}/flow@0.h5", f"{reservation}/flow@latest/slabs.npy"]
    paths = []
    for view in views:
        assert root.run(["path", view, "--for", str(process.pid)]) == 0
        paths.append(Path(capsys.readouterr().out.rstrip("\n")))
    assert [path.name for path in paths] == ["flow@0.h5", "flow@1-slabs.npy"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o400, 0o400]
    assert root.run(["path", "--release", str(paths[0])]) == 0
    assert not paths[0].exists()
    assert paths[1].exists()
    keeper = pid_of_keeper(folder)
    process.kill()
    until(lambda: holder_has_ended(keeper), "the end of the keeper")
    assert not paths[1].parent.exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "/", "run1/flow@2.h5", ""])
def test_what_is_no_view_is_not_released(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["path", "--release", path]) != 0
    told = capsys.readouterr().err
    assert "this is no path that `forebay path` printed" in told or not path
    assert "remove it" not in told


def test_path_leaves_nothing_after_an_error(
    reservation: str, folder: ViewsFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    write_every_kind(f"{reservation}/flow")
    wrong = {
        f"{reservation}/flow@7.h5": "step",
        f"{reservation}/flow@0.doc": "there are no views of format .doc",
        f"{reservation}/flow@0/none.npy": "no variable 'none'",
        f"{reservation}/other@0.h5": "",
        "": "name either the view of a step",
    }
    for view, text in wrong.items():
        assert root.run(["path", *([view] if view else [])]) == 1
        printed = capsys.readouterr()
        assert text in printed.err
        assert printed.out == ""
    assert folder.names() == []
    assert root.run(["path", "--release", "/etc/x/passwd"]) == 1
