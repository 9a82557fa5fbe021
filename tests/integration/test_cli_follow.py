# SPDX-License-Identifier: Apache-2.0
"""`forebay follow RES/STREAM --exec COMMAND`: for which steps the command runs, what passes the cursor, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.support.follow_command import NOTE, follow, start
from tests.support.load import until
from tests.support.time_limits import seconds


@pytest.fixture
def flow(reservation: str) -> str:
    """Six steps of a stream that has ended."""
    write(f"{reservation}/flow", 6)
    return f"{reservation}/flow"


def write(address: str, steps: int) -> None:
    with forebay.open(address, "w") as stream:
        for number in range(steps):
            stream.write("n", number)


def told(*arguments: str) -> dict[str, Any]:
    status, output, errors = follow(*arguments)
    assert status == 0, errors
    document: dict[str, Any] = json.loads(output)
    return document


def position(address: str, consumer: str = "follow") -> int:
    with forebay.open(address, timeout=0) as stream:
        return next(known.position for known in stream.info.consumers if known.name == consumer)


def test_the_command_gets_number_and_address_of_each_step(flow: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    status, output, errors = follow(flow, *NOTE, str(notes), "{step} {address}")
    assert (status, output) == (0, "")
    assert errors == f"{flow}: 6 commands succeeded; consumer follow: passed up to step 5\n"
    assert notes.read_text().splitlines() == [f"{number} forebay://{flow}@{number}" for number in range(6)]
    assert position(flow) == 6


def test_every_and_consumer_and_json(flow: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    document = told(flow, "--every", "4", "--consumer", "plots", "--json", *NOTE, str(notes), "{step}")
    assert document == {"stream": flow, "consumer": "plots", "succeeded": 2, "failed": [], "last": 5}
    assert notes.read_text().split() == ["0", "4"]
    assert position(flow, "plots") == 6


def test_latest_takes_the_newest_step(flow: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert told(flow, "--latest", "--json", *NOTE, str(notes), "{step}")["succeeded"] == 1
    assert notes.read_text().split() == ["5"]


def test_json_keeps_standard_output_for_the_document(flow: str) -> None:
    status, output, errors = follow(flow, "--json", "--exec", "echo", "step", "{step}")
    assert status == 0
    assert json.loads(output)["succeeded"] == 6
    assert errors.splitlines() == [f"step {number}" for number in range(6)]


def test_the_cursor_does_not_pass_a_step_whose_command_failed(flow: str, tmp_path: Path) -> None:
    script = f"echo {{step}} >> {tmp_path}/notes; test {{step}} -ne 3 -o -e {tmp_path}/mended || exit 7"
    status, _, errors = follow(flow, "--exec", "sh", "-c", script)
    assert status == 1
    assert errors.startswith("error: step 3: sh ended with status 7; ")
    assert position(flow) == 3
    (tmp_path / "mended").touch()
    assert follow(flow, "--exec", "sh", "-c", script)[0] == 0
    assert (tmp_path / "notes").read_text().split() == ["0", "1", "2", "3", "3", "4", "5"]
    assert position(flow) == 6


def test_jobs_run_at_once_and_the_cursor_keeps_the_order(flow: str, tmp_path: Path) -> None:
    """Step 1 ends only after step 2 has begun, and fails: the cursor stays there although step 2 succeeds."""
    script = (
        f"touch {tmp_path}/{{step}}; test {{step}} -ne 1 && exit 0; "
        f"until test -e {tmp_path}/2; do sleep 0.01; done; exit 1"
    )
    status, _, errors = follow(flow, "--jobs", "2", "--exec", "sh", "-c", script)
    assert status == 1
    assert "error: step 1: " in errors
    assert position(flow) == 1
    assert told(flow, "--json", "--exec", "true")["succeeded"] == 5


def test_a_stream_that_was_interrupted_is_an_exit_status_of_its_own(reservation: str, tmp_path: Path) -> None:
    code = (
        f"import os, forebay; stream = forebay.open('{reservation}/flow', 'w', grace=0.1); stream.write('n', 0); "
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=seconds(100))
    notes = tmp_path / "notes"
    status, _, errors = follow(f"{reservation}/flow", *NOTE, str(notes), "{step}")
    assert status == 3
    assert "writer group was lost" in errors
    assert notes.read_text().split() == ["0"]
    assert position(f"{reservation}/flow") == 1


def test_no_step_in_time_is_a_failure(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        stream.write("n", 0)
        status, _, errors = follow(f"{reservation}/flow", "--timeout", "0.2", "--exec", "true")
    assert status == 1
    assert "no step came within" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_follower_that_ends_takes_its_command_along(flow: str, tmp_path: Path, number: signal.Signals) -> None:
    follower = start(flow, "--exec", sys.executable, "-c", WAITING, str(tmp_path), "{step}")
    until(lambda: bool((tmp_path / "0").exists() and (tmp_path / "0").read_text()), "the command runs")
    command = int((tmp_path / "0").read_text())
    follower.send_signal(number)
    follower.communicate(timeout=seconds(60))
    assert follower.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    until(lambda: not is_running(command), "the command has ended")
    until(lambda: not is_held(flow), "the server has noticed")
    assert position(flow) == 0


WAITING = """
import os, pathlib, signal, sys
file = pathlib.Path(sys.argv[1], sys.argv[2])
file.write_text(str(os.getpid()))
signal.pause()
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that nobody has waited for yet has ended all the same.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def is_held(address: str) -> bool:
    with forebay.open(address, timeout=0) as stream:
        return any(known.connected for known in stream.info.consumers)


def test_commands_find_the_instance_that_root_names(flow: str) -> None:
    root = os.environ["FOREBAY_ROOT"]
    environment = {**os.environ, "FOREBAY_ROOT": "/nonexistent"}
    line = [sys.executable, "-m", "forebay", "follow", flow, "--root", root, "--exec", sys.executable, "-m", "forebay"]
    done = subprocess.run(
        [*line, "show", "{address}"], env=environment, capture_output=True, text=True, timeout=seconds(100), check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"Stream     {flow}, ended, 6 steps") == 6
