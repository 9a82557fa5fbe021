# SPDX-License-Identifier: Apache-2.0
"""Where the sockets of an instance lie, and what becomes of its daemons when somebody removes them, or the root."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.workflows.manager.instance.running_daemons import running_daemons
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[CommandLineInstance]:
    with CommandLineInstance(tmp_path / "root") as running:
        yield running


def sockets(instance: CommandLineInstance) -> list[Path]:
    return [instance.root / "forebayd.sock", instance.root / "manager.sock"]


def test_sockets_lie_in_the_root_and_go_with_their_daemons(instance: CommandLineInstance) -> None:
    assert [Path(file.read_text().strip()) for file in (instance.files.endpoint, instance.files.manager_endpoint)] == (
        sockets(instance)
    )
    assert all(path.is_socket() and path.stat().st_mode & 0o777 == 0o666 for path in sockets(instance))
    instance.ask("down", "--keep")
    assert not any(path.exists() for path in sockets(instance))


def test_a_root_may_have_a_long_path(tmp_path: Path) -> None:
    root = tmp_path / ("deep" * 30) / ("er" * 50) / "root"
    with CommandLineInstance(root) as instance:
        instance.ask("create", "run1", "--capacity", "16MiB")
        with forebay.open("run1/flow", "w", instance=root) as stream, stream.step() as step:
            step["T"] = np.arange(3)
        with forebay.open("run1/flow", instance=root) as reader:
            assert reader[0]["T"][...].tolist() == [0, 1, 2]
        assert instance.ask("doctor")["clean"] is True


# crash-matrix: The sockets of an instance | a cleaner, or a logout, removes them | they are made again, and who is connected stays so
def test_sockets_that_somebody_removes_are_made_again(instance: CommandLineInstance) -> None:
    instance.ask("create", "run1", "--capacity", "16MiB")
    pids = [instance.server_pid(), instance.manager_pid()]
    with forebay.open("run1/flow", "w", instance=instance.root) as stream, instance.manager() as manager:
        for path in sockets(instance):
            path.unlink()
        until(lambda: all(path.is_socket() for path in sockets(instance)), "the sockets to be made again")
        with stream.step() as step:
            step["T"] = np.arange(3)
        assert manager.health().server_pid == pids[0]
        with forebay.open("run1/flow", instance=instance.root) as reader:
            assert reader[0]["T"][...].tolist() == [0, 1, 2]
        assert instance.ask("ls")["reservations"][0]["name"] == "run1"
    assert instance.up()["server_started"] is False
    assert [instance.server_pid(), instance.manager_pid()] == pids


# crash-matrix: The root of an instance | `rm -rf` of it under its daemons | they end, and a new instance has its place
def test_daemons_end_when_their_root_is_removed(instance: CommandLineInstance) -> None:
    old = [daemon.pid for daemon in running_daemons(instance.files)]
    assert len(old) == 2
    shutil.rmtree(instance.root)
    until(lambda: running_daemons(instance.files) == [], "the daemons to end")
    assert not instance.root.exists(), "they made something anew"
    instance.up()
    assert not {daemon.pid for daemon in running_daemons(instance.files)} & set(old)


def test_two_pairs_on_one_path_are_told_and_the_old_ones_end_without_harm(instance: CommandLineInstance) -> None:
    old = [daemon.pid for daemon in running_daemons(instance.files)]
    for pid in old:
        os.kill(pid, signal.SIGSTOP)
    try:
        shutil.rmtree(instance.root)
        told = instance.up()
        (note,) = (text for text in told["notes"] if "root that was removed" in text)
        assert all(str(pid) in note for pid in old)
        doctor = instance.run("doctor")
        assert doctor.returncode != 0
        assert "still serve a root that was removed from this path; end them with `kill" in doctor.stdout
    finally:
        for pid in old:
            os.kill(pid, signal.SIGCONT)
    until(lambda: not {daemon.pid for daemon in running_daemons(instance.files)} & set(old), "the old ones to end")
    # They removed nothing that is not theirs.
    assert all(path.is_socket() for path in sockets(instance))
    assert instance.ask("doctor")["clean"] is True


def test_down_finds_its_daemons_by_the_roots_lock(instance: CommandLineInstance) -> None:
    for name in (instance.files.server_identity, instance.files.manager_identity):
        name.unlink()
    instance.ask("down", "--keep")
    assert running_daemons(instance.files) == []


def at_a_terminal(instance: CommandLineInstance, answer: str) -> subprocess.CompletedProcess[str]:
    """`forebay down`, with somebody at the keyboard."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        return subprocess.run(
            instance.command("down"),
            env=os.environ | instance.environment,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=seconds(120),
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)


def test_down_says_what_it_will_destroy_and_asks(instance: CommandLineInstance) -> None:
    instance.ask("create", "short", "--capacity", "16MiB")
    instance.ask("create", "long", "--capacity", "16MiB", "--persistent")
    refused = at_a_terminal(instance, "n")
    assert refused.returncode == 1
    assert "down destroys what is not persistent: short\n" in refused.stderr
    assert "`forebay down --keep`" in refused.stderr
    assert {row["name"] for row in instance.ask("ls")["reservations"]} == {"short", "long"}
    done = at_a_terminal(instance, "y")
    assert done.returncode == 0, done.stderr
    assert "destroyed (not persistent): short" in done.stdout


def test_a_full_pool_is_enlarged_without_loss(instance: CommandLineInstance) -> None:
    refused = instance.run("create", "huge", "--capacity", "10GiB")
    assert refused.returncode != 0
    assert "`forebay down --keep`, then `forebay up` with a larger --capacity" in refused.stderr
    assert "`forebay down`" not in refused.stderr


_NO_SOCKETS = """\
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
int bind(int number, const struct sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_UNIX && strstr(((const struct sockaddr_un*)address)->sun_path, "/root/") != NULL) {
    errno = EPERM;
    return -1;
  }
  return (int)syscall(SYS_bind, number, address, size);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_sockets_lie_elsewhere_where_the_root_cannot_have_them(tmp_path: Path) -> None:
    (tmp_path / "no_sockets.c").write_text(_NO_SOCKETS)
    library = tmp_path / "no_sockets.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "no_sockets.c")], check=True)
    (tmp_path / "run").mkdir()
    instance = CommandLineInstance(tmp_path / "root")
    instance.environment |= {"LD_PRELOAD": str(library), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    with instance:
        found = [Path(file.read_text().strip()) for file in (instance.files.endpoint, instance.files.manager_endpoint)]
        assert [path.parent for path in found] == [tmp_path / "run" / "forebay"] * 2
        instance.ask("create", "run1", "--capacity", "16MiB")
        assert instance.ask("doctor")["clean"] is True
