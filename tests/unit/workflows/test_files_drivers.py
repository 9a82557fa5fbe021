# SPDX-License-Identifier: Apache-2.0
"""Drivers of files/ without their daemons: numbers of exports, settings, and whose process is a daemon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import InvalidArgumentError, NoSpaceError
from forebay.workflows.files import daemons
from forebay.workflows.files.daemon_cgroup import NO_CGROUP
from forebay.workflows.files.daemons import end_daemons, find_daemons, start_daemon
from forebay.workflows.files.driver_state import DriverState, Export
from forebay.workflows.files.engines import FilesEngines
from forebay.workflows.files.ganesha_bus import GaneshaBus
from forebay.workflows.files.nfs import _next_number
from forebay.workflows.files.settings import FilesSettings

_MAX = 65535


def state(made: int, *used: int) -> DriverState:
    exports = {f"n{number}": Export(number, "10.0.0.1") for number in used}
    return DriverState("id", 1, "/tree", "uuid", "10.0.0.1", 700, 40, made, exports)


def test_numbers_of_exports_are_used_again_when_all_others_have_been() -> None:
    begun = state(0)
    assert [_next_number(begun) for _ in range(3)] == [1, 2, 3]
    assert _next_number(state(_MAX - 1)) == _MAX
    assert _next_number(state(_MAX, 1, 2)) == 3
    with pytest.raises(NoSpaceError):
        _next_number(state(_MAX, *range(1, _MAX + 1)))


def test_a_bus_is_open_once_it_takes_connections(tmp_path: Path) -> None:
    """A name that nobody listens at yet is none: Ganesha would try once, and have no bus."""
    place = tmp_path / "bus"
    bus = GaneshaBus(place, time.monotonic() + 60)
    assert not bus.is_open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.bind(os.fspath(place))
        assert not bus.is_open()
        daemon.listen()
        assert bus.is_open()


@pytest.mark.parametrize(
    "setting", [{"ports": "20490-20999"}, {"ports": "900-1024"}, {"ports": "0-9"}, {"lease_seconds": 0.4}]
)
def test_settings_that_would_let_others_in_are_refused(setting: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        FilesSettings.from_configuration({"files": setting}, tmp_path)


@pytest.fixture
def named(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(named: list[subprocess.Popen[bytes]], mark: Path, first: str) -> int:
    program = f"import os, signal; {first}; print(flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", program, str(mark)], stdout=subprocess.PIPE)
    named.append(process)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a process with two users")
def test_a_process_that_another_user_may_have_started_is_no_daemon(
    tmp_path: Path, named: list[subprocess.Popen[bytes]]
) -> None:
    mark = tmp_path / "ganesha.conf"
    ours = start(named, mark, "pass")
    start(named, mark, "os.setresuid(65534, 0, 0)")  # as a set-user-id program that user 65534 has started
    assert list(find_daemons(mark)) == [ours]
    end_daemons(mark, time.monotonic() + 30)
    assert find_daemons(mark) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: whoever runs the tests may have another score already")
def test_a_daemon_that_users_make_grow_goes_before_others(tmp_path: Path) -> None:
    mark = tmp_path / "ganesha.conf"
    command = [sys.executable, "-c", "import signal; signal.pause()", str(mark)]
    identity = start_daemon(command, tmp_path / "log", {}, NO_CGROUP, goes_first=True)
    try:
        assert Path(f"/proc/{identity.split('/')[1]}/oom_score_adj").read_text() == "250\n"
    finally:
        end_daemons(mark, time.monotonic() + 30)


def test_the_log_of_a_daemon_that_clients_make_talk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "_LOG_BYTES_MAX", 1000)
    log = tmp_path / "x" / "ganesha.log"
    log.parent.mkdir()
    engines = FilesEngines(tmp_path, FilesSettings())
    with log.open("ab", buffering=0) as written:  # as start_daemon opens it
        for number in range(1000):
            written.write(b"%09d\n" % number)
            engines.start_ended()
            assert log.stat().st_size <= 1010
        assert log.read_bytes().splitlines()[-1] == b"000000999"
    kept = log.with_name("ganesha.log.1").read_bytes() + log.read_bytes()
    assert len(kept) <= 2010
    numbers = [int(line) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 1000))


def test_a_program_that_writes_its_title_anew_is_found(tmp_path: Path) -> None:
    """As juicefs does: all its arguments are one then."""
    mark = tmp_path / "juicefs.log"
    title = f"/usr/bin/juicefs mount --log={mark} --no-syslog"
    command = [title, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert find_daemons(mark) == {process.pid: "juicefs"}
        assert find_daemons(tmp_path / "juicefs") == {}
        end_daemons(mark, time.monotonic() + 30)
