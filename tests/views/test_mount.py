# SPDX-License-Identifier: Apache-2.0
"""`forebay mount`: a stream as a folder, the rules of a read-only file system, dropped steps, and killed processes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import forebay
from forebay.cli import root
from forebay.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from forebay.files.open_writers import is_being_written
from forebay.views import mounting
from forebay.views.checks import check, heal
from forebay.views.formats import format_names
from forebay.views.mounting import dead_mounts, mount, unmount
from tests.support.load import until
from tests.support.processes import processes_where
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds
from tests.support.users import Users
from tests.support.views import can_mount, write_every_kind

if not can_mount():
    pytest.skip("forebay was built without libfuse3, or this user may not mount by FUSE", allow_module_level=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FOREBAY_VIEWS", str(tmp_path / "views"))
    made = tmp_path / "stream mounted here"
    made.mkdir()
    yield made
    if is_mounted(made):
        unmount(made)


def is_mounted(folder: Path) -> bool:
    return str(folder).replace(" ", "\\040") in Path("/proc/self/mountinfo").read_text()


def processes(folder: Path) -> list[int]:
    """Those of the mount: ours, and fusermount3's."""
    return processes_where(lambda process: str(folder).encode() in (process / "cmdline").read_bytes())


def process_of(folder: Path) -> int:
    """Ours."""
    (found,) = (pid for pid in processes(folder) if b"forebay.views.mounting" in command_of(pid))
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def leave_dead(folder: Path) -> None:
    """Kills both processes; fusermount3 first, for it unmounts when the other one goes."""
    ours = process_of(folder)
    for pid in (*(pid for pid in processes(folder) if pid != ours), ours):
        os.kill(pid, signal.SIGKILL)
    until(lambda: dead_mounts() == [str(folder)], "the dead mount")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def number_of(call: Callable[[], object]) -> int | None:
    """The errno that a call fails with."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


def test_a_mount_shows_every_step_in_every_format(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow", steps=2)
    mount(f"{reservation}/flow", folder, format_names(), None)
    tops = {f"flow@{number}{ending}" for number in (0, 1, "latest") for ending in ("", ".h5", ".nc", ".vti")}
    assert set(os.listdir(folder)) == tops
    assert os.readlink(folder / "flow@latest.h5") == "flow@1.h5"
    with forebay.open(f"{reservation}/flow") as stream, stream[1] as step:
        with h5py.File(folder / "flow@latest.h5") as file:
            for name in ("slabs", "columns", "joined", "holes", "letters", "small", "large/complex", "time"):
                np.testing.assert_array_equal(file[name], step[name][...])
        variables = folder / "flow@1"
        assert set(os.listdir(variables / "local")) == {"block_000000.npy", "block_000001.npy"}
        for name in ("slabs", "columns", "large/complex", "small"):
            np.testing.assert_array_equal(np.load(variables / f"{name}.npy", mmap_mode="r"), step[name][...])
        found = (variables / "slabs.npy").stat()
        assert found.st_size == 4096 + step["slabs"].nbytes
        assert found.st_mtime_ns == step.time_ns
    assert number_of((folder / "flow@7.h5").stat) == errno.ENOENT
    assert number_of((folder / "flow@01.h5").stat) == errno.ENOENT
    assert number_of((variables / "text.npy").stat) == errno.ENOENT
    unmount(folder)
    assert os.listdir(folder) == []
    until(lambda: not processes(folder), "the end of the mount's processes")


def test_nobody_can_tell_who_writes_a_file_of_a_mount(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow", steps=1)
    mount(f"{reservation}/flow", folder, format_names(), None)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert is_being_written(descriptor, "flow@0.h5") is None
    finally:
        os.close(descriptor)


def test_each_part_of_a_file_reads_the_same(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    mount(f"{reservation}/flow", folder, ["h5", "npy"], None)
    for path in (folder / "flow@0.h5", folder / "flow@0" / "columns.npy"):
        whole = path.read_bytes()
        assert len(whole) == path.stat().st_size
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            for offset in range(0, len(whole) + 4096, 4096 * 3):
                assert os.pread(descriptor, 4096 * 2, offset) == whole[offset : offset + 4096 * 2]
            assert os.pread(descriptor, 1 << 20, len(whole)) == b""
        finally:
            os.close(descriptor)


def test_a_mount_follows_a_live_stream(reservation: str, folder: Path) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        mount(f"{reservation}/flow", folder, ["npy"], None)
        assert os.listdir(folder) == []
        for number in range(3):
            with stream.step() as step:
                step["T"] = np.full(1000, number)
            assert np.load(folder / "flow@latest" / "T.npy")[0] == number
        assert sorted(os.listdir(folder)) == ["flow@0", "flow@1", "flow@2", "flow@latest"]


def test_the_rules_of_a_read_only_file_system(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    mount(f"{reservation}/flow", folder, ["h5"], None)
    file = folder / "flow@0.h5"
    new = folder / "new"
    changes: list[Callable[[], object]] = [
        lambda: os.open(file, os.O_WRONLY),
        lambda: os.open(file, os.O_RDWR),
        lambda: os.open(file, os.O_RDONLY | os.O_TRUNC),
        lambda: os.open(new, os.O_WRONLY | os.O_CREAT),
        lambda: os.truncate(file, 0),
        lambda: os.unlink(file),
        lambda: os.rename(file, new),
        lambda: os.link(file, new),
        lambda: os.symlink("x", new),
        lambda: os.mkdir(new),
        lambda: os.mkfifo(new),
        lambda: os.chmod(file, 0o600),
        lambda: os.chown(file, 1, 1),
        lambda: os.utime(file),
        lambda: os.setxattr(file, "user.x", b"1"),
    ]
    assert [number_of(change) for change in changes] == [errno.EROFS] * len(changes)
    assert os.statvfs(folder).f_flag & os.ST_RDONLY
    assert not os.access(file, os.W_OK)
    assert os.access(file, os.R_OK)
    assert stat_is_steady(file)


def stat_is_steady(file: Path) -> bool:
    first, second = file.stat(), file.stat()
    return first == second and first.st_mode & 0o777 == 0o444


def test_an_open_file_keeps_its_bytes_when_the_step_is_dropped(reservation: str, folder: Path) -> None:
    """The stream has space for few steps, so that what is dropped is written again at once."""
    with forebay.open(f"{reservation}/flow", "w", retention="last:2") as stream:
        for number in range(2):
            with stream.step() as step:
                step["T"] = np.full(500_000, number, "f8")
        mount(f"{reservation}/flow", folder, ["npy"], None)
        path = folder / "flow@0" / "T.npy"
        with path.open("rb") as file:
            assert np.load(file)[0] == 0
            for number in range(2, 20):
                with stream.step() as step:
                    step["T"] = np.full(500_000, number, "f8")
            # What the kernel keeps of the file must not answer.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            assert (np.load(file) == 0).all()
        until(lambda: number_of(path.stat) == errno.ENOENT, "the end of the name")


def test_a_replaced_step_is_another_file(reservation: str, folder: Path) -> None:
    for value in (1, 2):
        with forebay.open(f"{reservation}/flow", "w") as stream, stream.step() as step:
            step["T"] = np.full(1000, value)
        if value == 1:
            mount(f"{reservation}/flow", folder, ["npy"], None)
            assert np.load(folder / "flow@0" / "T.npy")[0] == 1
    until(lambda: bool(np.load(folder / "flow@0" / "T.npy")[0] == 2), "the new step")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_unmounts(reservation: str, folder: Path, number: signal.Signals) -> None:
    write_every_kind(f"{reservation}/flow")
    mount(f"{reservation}/flow", folder, ["h5"], None)
    os.kill(process_of(folder), number)
    until(lambda: not is_mounted(folder) and not processes(folder), "the end of the mount")


def test_a_folder_is_unmounted_by_another_path(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    link = folder.parent / "link"
    link.symlink_to(folder)
    mount(f"{reservation}/flow", link, ["h5"], None)
    assert (folder / "flow@0.h5").exists()
    unmount(link)
    assert not is_mounted(folder)


# crash-matrix: mounted stream | the mount's process killed (`kill -9`) | fusermount3 unmounts, or leaves it to `doctor --heal`; the folder is as it was before
def test_a_killed_process_leaves_no_dead_mount(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    mount(f"{reservation}/flow", folder, ["h5"], None)
    os.kill(process_of(folder), signal.SIGKILL)
    until(lambda: not is_mounted(folder) or dead_mounts() == [str(folder)], "the end of the process")
    # fusermount3 may look too early: then it takes the mount for one that lives.
    heal(folder.parent)
    assert not is_mounted(folder)
    assert os.listdir(folder) == []


# crash-matrix: mounted stream | the mount's process and fusermount3 killed together | `doctor` names the dead mount, `doctor --heal` unmounts it
def test_doctor_finds_and_heals_a_dead_mount(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    mount(f"{reservation}/flow", folder, ["h5"], None)
    leave_dead(folder)
    (finding,) = check(folder.parent)
    assert finding.where == str(folder)
    heal(folder.parent)
    assert not is_mounted(folder)
    assert check(folder.parent) == []


def test_a_dead_mount_makes_way_for_a_new_one(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    mount(f"{reservation}/flow", folder, ["h5"], None)
    leave_dead(folder)
    mount(f"{reservation}/flow", folder, ["h5"], None)
    assert (folder / "flow@0.h5").exists()
    assert dead_mounts() == []


def test_cp_cmp_and_tar_work_on_a_mount(reservation: str, folder: Path) -> None:
    write_every_kind(f"{reservation}/flow", steps=2)
    mount(f"{reservation}/flow", folder, ["h5", "npy"], None)
    copied = folder.parent / "copied"
    unpacked = folder.parent / "unpacked"
    unpacked.mkdir()
    commands: list[list[str | Path]] = [
        ["cp", "-r", f"{folder}/.", copied],
        ["cmp", folder / "flow@1.h5", copied / "flow@1.h5"],
        ["tar", "-C", folder, "-cf", folder.parent / "all.tar", "."],
        ["tar", "-C", unpacked, "-xf", folder.parent / "all.tar"],
        ["diff", "-r", copied, unpacked],
    ]
    for command in commands:
        subprocess.run(command, check=True, timeout=seconds(60))
    with h5py.File(unpacked / "flow@1.h5") as file:
        assert file["time"][()] == 0.5


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests of this file have run as an ordinary user")
def test_an_ordinary_user_mounts(place: Path, users: Users, python: Path) -> None:
    """In a mount namespace whose FUSE device is for everybody, with an instance of the user's own."""
    ada = users("ada")
    device = place / "fuse"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(10, 229))
    device.chmod(0o666)
    script = f'mount --bind {device} /dev/fuse && exec setpriv --reuid {ada.uid} --regid {ada.gid} --clear-groups "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", python, "-c", _AS_A_USER],
        env=dict(ada.environment),
        cwd=ada.home,
        capture_output=True,
        text=True,
        timeout=seconds(120),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == "whole"


_AS_A_USER = """
import errno, os, pathlib, numpy, forebay
from forebay.cli import root
home = pathlib.Path.home()
os.environ["FOREBAY_ROOT"] = str(home / "forebay")
assert root.run(["up", "--capacity", "64MiB"]) == 0
try:
    assert root.run(["create", "run1", "--capacity", "32MiB"]) == 0
    with forebay.open("run1/flow", "w") as stream, stream.step() as step:
        step["T"] = numpy.arange(5000.0)
    (home / "flow").mkdir()
    assert root.run(["mount", "run1/flow", str(home / "flow"), "--format", "npy"]) == 0
    try:
        assert (numpy.load(home / "flow/flow@latest/T.npy", mmap_mode="r") == numpy.arange(5000.0)).all()
        try:
            (home / "flow/new").touch()
        except OSError as error:
            assert error.errno == errno.EROFS
        else:
            raise AssertionError("a mount takes files")
    finally:
        assert root.run(["unmount", str(home / "flow")]) == 0
    assert os.listdir(home / "flow") == []
finally:
    assert root.run(["down"]) == 0
print("whole")
"""


def test_only_mounts_of_this_user_are_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Somebody else's might never answer. What other file systems say of themselves is no matter of ours."""
    ours, other = os.geteuid(), os.geteuid() + 1
    listed = tmp_path / "mountinfo"
    listed.write_text(
        f"1 0 0:1 / /a\\040b ro shared:1 - fuse.forebay forebay:x/y ro,user_id={ours},group_id=0\n"
        f"2 0 0:2 / /c ro - fuse.forebay forebay:x/y ro,user_id={other},group_id=0\n"
        f"3 0 0:3 / /d ro - fuse.other a ro,user_id={ours}\n"
        "4 0 0:4 / /e rw - odd  rw,name=with space,more\n"
    )
    monkeypatch.setattr(mounting, "_MOUNTS", listed)
    asked: list[str] = []

    def never_dead(folder: str) -> None:
        asked.append(folder)

    monkeypatch.setattr(os, "statvfs", never_dead)
    assert dead_mounts() == []
    assert asked == ["/a b"]


def test_what_is_missing_for_mounts_is_said(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with monkeypatch.context() as without:
        without.setattr(mounting, "_DEVICE", folder / "fuse")
        with pytest.raises(UnsupportedError, match="no FUSE device"):
            mount("run1/flow", folder, ["h5"], None)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(UnsupportedError, match="install it"):
        mount("run1/flow", folder, ["h5"], None)


def test_what_cannot_be_mounted_is_an_error(reservation: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_every_kind(f"{reservation}/flow")
    with pytest.raises(NotFoundError, match="make it first"):
        mount(f"{reservation}/flow", folder / "none", ["h5"], None)
    with pytest.raises(InvalidArgumentError, match="not empty"):
        mount(f"{reservation}/flow", folder.parent, ["h5"], None)
    with pytest.raises(NotFoundError, match="no stream is mounted"):
        unmount(folder)
    assert root.run(["mount", f"{reservation}/none", str(folder)]) == 1
    assert "none" in capsys.readouterr().err
    assert root.run(["mount", f"{reservation}/flow@0", str(folder)]) == 1
    assert "name the stream" in capsys.readouterr().err
    assert root.run(["mount", f"{reservation}/flow", str(folder), "--format", "doc"]) == 1
    assert not is_mounted(folder)


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of `run1` as another node has it, and the root for clients beside the server.

    The environment has a token that allows reading, and no root.
    """
    address = f"127.0.0.1:{free_port()}"
    with StagingServer(tmp_path / "root", options=("--listen", address), capacity="64MiB") as server:
        with forebay.Admin(server.root) as admin:
            admin.create("run1", "48MiB")
            token = admin.create_token("run1", rights=("read",), lifetime=3600)
        file = tmp_path / "token"
        file.touch(0o600)
        file.write_text(token + "\n")
        monkeypatch.setenv("FOREBAY_TOKEN_FILE", str(file))
        yield f"forebay://{address}/run1", server.root


def test_a_stream_on_another_node_is_mounted(far: tuple[str, Path], folder: Path) -> None:
    """The process of the mount knows an address and a token, and fetches what is read."""
    address, root = far
    write_every_kind("run1/flow", steps=2, instance=root)
    with forebay.open("run1/flow", instance=root) as stream:
        expected = {name: stream[1][name][...] for name in ("slabs", "columns", "large/complex")}
    mount(f"{address}/flow", folder, ["h5", "npy"], None)
    for name, values in expected.items():
        np.testing.assert_array_equal(np.load(folder / f"flow@1/{name}.npy"), values)
        with h5py.File(folder / "flow@latest.h5") as view:
            np.testing.assert_array_equal(view[name], values)
    unmount(folder)


def test_a_file_of_another_node_never_has_newer_bytes(far: tuple[str, Path], folder: Path) -> None:
    address, root = far
    with forebay.open("run1/flow", "w", retention="last:2", instance=root) as stream:
        stream.write("T", np.full(500_000, 7, "f8"))
        mount(f"{address}/flow", folder, ["npy"], None)
        with (folder / "flow@0/T.npy").open("rb", buffering=0) as file:
            for number in range(1, 20):
                stream.write("T", np.full(500_000, 100 + number, "f8"))
            found = file.readall()
            assert (np.frombuffer(found[4096:], "f8") == 7).all()
    unmount(folder)
