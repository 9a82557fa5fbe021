# SPDX-License-Identifier: Apache-2.0
"""Up, down, and what becomes of reservations when server and manager are killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.cli.failures import ExitStatus
from forebay.errors import DisconnectedError
from forebay.manager import client
from forebay.workflows.manager.instance import instance_control
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.randomness import TEST_SEED, times
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance

KILLS = times(4)


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    """An instance that is up, of the test's own."""
    with CommandLineInstance(tmp_path / "root") as running:
        monkeypatch.setenv("FOREBAY_ROOT", str(running.root))
        yield running


def names(instance: CommandLineInstance) -> set[str]:
    return {info["name"] for info in instance.ask("ls")["reservations"]}


def write(address: str, retention: str = "all") -> None:
    with forebay.open(address, "w", retention=retention) as stream, stream.step() as step:
        step["T"] = np.zeros(10)


def test_an_instance_leaves_the_server_alone_that_the_environment_names(tmp_path: Path) -> None:
    """``$FOREBAY_SOCKET`` may be left over from another one."""
    with StagingServer(tmp_path / "other", capacity="64MiB") as other:
        socket_path = (other.root / "endpoint").read_text().strip()
        with forebay.Admin(socket_path) as admin:
            admin.create("run1", "8MiB")
        ours = CommandLineInstance(tmp_path / "root", capacity="32MiB")
        ours.environment["FOREBAY_SOCKET"] = socket_path
        with ours:
            assert ours.up()["server"]["root"] == str(ours.root)
            assert "export FOREBAY_ROOT=" + str(ours.root) + " FOREBAY_SOCKET=\n" in ours.run("up").stdout
            environment = ours.ask("--root", str(ours.root), "env")
            assert (environment["FOREBAY_ROOT"], environment["FOREBAY_SOCKET"]) == (str(ours.root), "")
            assert ours.ask("create", "run2", "--capacity", "8MiB")["reservation"]["name"] == "run2"
            assert {info["name"] for info in ours.ask("--root", str(ours.root), "ls")["reservations"]} == {"run2"}
            assert ours.ask("down")["destroyed"] == ["run2"]
        with forebay.Admin(socket_path) as admin:
            assert [reservation.name for reservation in admin.reservations()] == ["run1"]


def test_down_keeps_what_is_persistent_and_its_data(instance: CommandLineInstance) -> None:
    instance.ask("create", "kept", "--capacity", "16MiB", "--persistent")
    instance.ask("create", "scratch", "--capacity", "16MiB")
    write("kept/flow")
    told = instance.ask("down")
    assert (told["was_running"], told["destroyed"], told["killed"]) == (True, ["scratch"], False)
    assert instance.ask("down")["was_running"] is False
    told = instance.up()
    assert told["server_started"]
    assert told["manager_started"]
    assert names(instance) == {"kept"}
    assert [step["number"] for step in instance.ask("steps", "kept/flow")["steps"]] == [0]
    assert instance.ask("doctor")["clean"] is True


def test_down_does_not_lose_precious_steps_unasked(instance: CommandLineInstance) -> None:
    instance.ask("create", "scratch", "--capacity", "16MiB")
    # Before and after it in the order of names.
    for name in ("first", "zoo"):
        instance.ask("create", name, "--capacity", "16MiB")
        write(f"{name}/flow")
    write("scratch/flow", retention="precious:1")
    refused = instance.run("down")
    assert refused.returncode == ExitStatus.ERROR
    assert "nothing was destroyed: scratch/flow has 1 precious steps" in refused.stderr
    assert names(instance) == {"first", "scratch", "zoo"}
    assert instance.ask("down", "--force")["destroyed"] == ["first", "scratch", "zoo"]
    instance.up()
    assert names(instance) == set()


def test_down_destroys_nothing_while_one_is_written(instance: CommandLineInstance) -> None:
    for name in ("idle", "used"):
        instance.ask("create", name, "--capacity", "16MiB")
    with forebay.open("used/flow", "w") as stream:
        stream.write("T", np.zeros(10))
        refused = instance.run("down")
        assert refused.returncode == ExitStatus.ERROR
        assert "nothing was destroyed: used/flow is being written" in refused.stderr
        assert names(instance) == {"idle", "used"}
    assert instance.ask("down")["destroyed"] == ["idle", "used"]


def test_down_after_both_were_killed_dooms_what_is_not_persistent(instance: CommandLineInstance) -> None:
    instance.ask("create", "kept", "--capacity", "16MiB", "--persistent")
    instance.ask("create", "scratch", "--capacity", "16MiB")
    instance.kill_manager()
    instance.kill_server()
    told = instance.ask("down")
    assert (told["destroyed"], told["to_destroy"]) == ([], ["scratch"])
    instance.up()
    assert names(instance) == {"kept"}
    assert instance.ask("doctor")["clean"] is True


@pytest.mark.parametrize("force", [False, True])
def test_down_without_a_server_loses_precious_steps_only_if_forced(instance: CommandLineInstance, force: bool) -> None:
    instance.ask("create", "scratch", "--capacity", "16MiB")
    write("scratch/flow", retention="precious:1")
    instance.kill_manager()
    instance.kill_server()
    assert instance.ask("down", *["--force"] * force)["to_destroy"] == ["scratch"]
    instance.up()
    assert names(instance) == (set() if force else {"scratch"})
    assert instance.ask("doctor")["clean"] is True


def test_down_without_a_manager_starts_one(instance: CommandLineInstance) -> None:
    instance.ask("create", "scratch", "--capacity", "16MiB")
    instance.kill_manager()
    assert instance.ask("down")["destroyed"] == ["scratch"]


def test_down_replaces_a_manager_that_hangs(instance: CommandLineInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.ask("create", "scratch", "--capacity", "16MiB")
    # In this process, so that it need not wait for as long as a user's command would.
    monkeypatch.setattr(client, "_TIMEOUT_SECONDS", 10.0)
    monkeypatch.setattr(instance_control, "_STOP_SECONDS_MAX", 3.0)
    for name, value in instance.environment.items():
        monkeypatch.setenv(name, value)
    hanging = os.pidfd_open(instance.manager_pid())
    signal.pidfd_send_signal(hanging, signal.SIGSTOP)
    done = instance_control.InstanceControl(instance.files).down(force=False)
    assert done["destroyed"] == ["scratch"]
    assert select.select([hanging], [], [], 0)[0]  # It has ended.
    os.close(hanging)


def test_doctor_misses_a_dead_manager(instance: CommandLineInstance) -> None:
    instance.kill_manager()
    done = instance.run("doctor", "--json")
    assert done.returncode == ExitStatus.ERROR
    told = json.loads(done.stdout)
    assert told["clean"] is False
    assert any(finding["where"] == "manager" and "forebay up" in finding["what"] for finding in told["findings"])
    instance.up()
    assert instance.ask("doctor")["clean"] is True


def test_doctor_tells_of_a_reservation_that_vanished(instance: CommandLineInstance) -> None:
    instance.ask("create", "gone", "--capacity", "16MiB", "--persistent")
    with forebay.Admin() as admin:
        admin.destroy("gone", force=True)
    instance.kill_manager()
    instance.up()
    done = instance.run("doctor")
    assert done.returncode == ExitStatus.ERROR
    assert "forebay destroy gone" in done.stdout
    instance.ask("destroy", "gone")
    assert instance.ask("doctor")["clean"] is True


def test_the_manager_serves_although_who_started_it_is_gone(instance: CommandLineInstance) -> None:
    instance.kill_manager()
    reading, writing = os.pipe()
    os.close(reading)
    manager = subprocess.Popen(
        [sys.executable, "-m", "forebay.workflows.manager", "--root", str(instance.root), "--ready-fd", str(writing)],
        pass_fds=[writing],
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert manager.stderr is not None
    while "serving" not in (line := manager.stderr.readline()):
        assert line, "the manager ended"
    assert instance.ask("stages") == {"stages": []}
    manager.terminate()
    _, log = manager.communicate(timeout=seconds(60))
    assert manager.returncode == 0, log


@pytest.mark.timeout(300)
def test_many_ups_and_downs_at_once_agree(instance: CommandLineInstance) -> None:
    commands = [instance.start("up") for _ in range(3)]
    for command in commands:
        _, errors = command.communicate(timeout=seconds(120))
        assert command.returncode == 0, errors
    commands = [instance.start("down") for _ in range(3)]
    for command in commands:
        _, errors = command.communicate(timeout=seconds(120))
        assert command.returncode == 0, errors
    instance.up()


def test_the_daemons_leave_the_terminal_alone(instance: CommandLineInstance) -> None:
    for pid in (instance.server_pid(), instance.manager_pid()):
        assert os.getsid(pid) == pid
        for descriptor in (0, 1, 2):
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            assert target == "/dev/null" or target.startswith(str(instance.root / "log"))


def test_a_server_that_cannot_start_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_ROOT", str(tmp_path / "root"))
    broken = CommandLineInstance(tmp_path / "root")
    broken.root.mkdir()
    (broken.root / "endpoint").mkdir()
    done = broken.run("up")
    assert done.returncode == ExitStatus.ERROR
    assert "forebayd ended with status" in done.stderr
    assert "log/forebayd.log" in done.stderr
    assert broken.ask("down")["was_running"] is False
    shutil.rmtree(broken.root)
    broken.root.write_text("a file")
    done = broken.run("up")
    assert done.returncode == ExitStatus.ERROR
    assert "another with --root" in done.stderr


def test_the_pid_of_somebody_else_is_not_killed(instance: CommandLineInstance) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        instance.kill_manager()
        identity = json.loads(instance.files.manager_identity.read_text())
        instance.files.manager_identity.write_text(json.dumps(identity | {"pid": bystander.pid}))
        instance.kill_server()
        server = json.loads(instance.files.server_identity.read_text())
        instance.files.server_identity.write_text(json.dumps(server | {"pid": bystander.pid}))
        instance.ask("down")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.timeout(400)
# crash-matrix: the manager's work | manager and server, at random moments between creations and removals | after `forebay up` both know the same reservations; doctor finds nothing
def test_kills_during_create_and_destroy_leave_what_one_start_repairs(instance: CommandLineInstance) -> None:
    chance = random.Random(TEST_SEED)
    for round_number in range(KILLS):
        stop = threading.Event()
        outcomes: list[object] = []

        def churn(stop: threading.Event = stop, seed: int = round_number, outcomes: list[object] = outcomes) -> None:
            chance = random.Random(TEST_SEED + seed)
            while not stop.is_set():
                name = chance.choice("abc")
                try:
                    with instance.manager() as manager:
                        if chance.random() < 0.5:
                            manager.create(name, "8MiB", persistent=True)
                        else:
                            manager.destroy(name, force=False)
                    outcomes.append("done")
                except DisconnectedError:
                    return
                except BaseException as error:
                    outcomes.append(error)
                    return

        worker = threading.Thread(target=churn)
        worker.start()
        wanted = chance.randrange(1, 30)

        def is_at_work(
            wanted: int = wanted, worker: threading.Thread = worker, outcomes: list[object] = outcomes
        ) -> bool:
            return len(outcomes) >= wanted or not worker.is_alive()

        until(is_at_work, "it is at work")
        victims = chance.choice([["manager"], ["server"], ["manager", "server"]])
        for victim in victims:
            (instance.kill_manager if victim == "manager" else instance.kill_server)()
        stop.set()
        worker.join(60)
        assert not worker.is_alive()
        assert outcomes, f"seed {TEST_SEED}, round {round_number}"
        assert set(outcomes) == {"done"}, f"seed {TEST_SEED}, round {round_number}: {outcomes[-1]!r}"
        instance.up()
        assert instance.ask("doctor", "--read-data")["clean"] is True, f"seed {TEST_SEED}, round {round_number}"
        with instance.manager() as manager, forebay.Admin() as admin:
            assert {row.name for row in manager.reservations()} == {info.name for info in admin.reservations()}, (
                f"seed {TEST_SEED}, round {round_number}"
            )


def test_nonsense_on_the_managers_socket_harms_nobody(instance: CommandLineInstance) -> None:
    path = instance.files.manager_endpoint.read_text().strip()
    for garbage in (
        b"\0" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /stages HTTP/1.1\r\nContent-Length: 5\r\n\r\n{oops",
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            while connection.recv(4096):
                pass
    with instance.manager() as manager:
        assert manager.health().server_pid == instance.server_pid()
        with pytest.raises(forebay.InvalidArgumentError, match="no stage"):
            manager._ask("POST", "/stages", body={"job": {"kind": "steps", "nonsense": 1}})
        with pytest.raises(forebay.InvalidArgumentError, match=r"body\.name: .*body\.capacity: "):
            manager._ask("POST", "/reservations", body={"name": 5})


def test_a_stopped_manager_ends_its_stages_and_takes_them_up_later(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    instance.ask("create", "kept", "--capacity", "64MiB", "--persistent")
    stream = forebay.open("kept/flow", "w")
    with stream.step() as step:
        step["T"] = np.zeros(10)
    number = instance.ask("stage-out", "kept/flow", str(tmp_path / "out"), "--follow", "--no-wait")["stage"]["id"]
    with instance.manager() as manager:
        seen = -1
        while manager.stage(number, seen=seen, wait_seconds=5).progress.get("items_done") != 1:
            seen = manager.stage(number).version
    os.kill(instance.manager_pid(), signal.SIGTERM)
    while instance.run("stages").returncode == 0:
        pass
    instance.up()
    stream.close()
    with instance.manager() as manager:
        seen = -1
        while (row := manager.stage(number, seen=seen, wait_seconds=5)).finished_ns is None:
            seen = row.version
    assert row.state == "succeeded"
    assert row.result is not None
    assert row.result["kept"] == [0]
