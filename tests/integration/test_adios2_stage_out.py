# SPDX-License-Identifier: Apache-2.0
"""A rule for stage-out that comes with a stream: `StageOutRule` of the ADIOS2 engine, carried out by the manager."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adios2
import numpy as np
import pytest

import forebay
import forebay.adios2
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.processes import PythonProcess, is_stopped
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    running = CommandLineInstance(tmp_path / "root")
    with running:
        running.ask("create", "run1", "--capacity", "64MiB")
        monkeypatch.setenv("FOREBAY_ROOT", str(running.root))
        yield running


def write(rule: str, count: int, mode: str = "w", **parameters: Any) -> None:
    """Steps whose array has their number, behind those that there are."""
    io = adios2.Adios().declare_io("flow")
    forebay.adios2.configure(io, "run1/flow", StageOutRule=rule, **parameters)
    with adios2.Stream(io, "flow", mode) as stream:
        for number in range(count):
            stream.begin_step()
            stream.write("T", np.full((4, 4), float(number)), [4, 4], [0, 0], [4, 4])
            stream.end_step()


def stages(instance: CommandLineInstance) -> list[dict[str, Any]]:
    rows = instance.ask("stages")["stages"]
    assert isinstance(rows, list)
    return rows


def wait_until_staged(instance: CommandLineInstance, count: int) -> None:
    until(lambda: [row["state"] for row in stages(instance)] == ["succeeded"] * count, "the stages to succeed")


def staged(folder: Path) -> dict[int, float]:
    """The first value of each staged step, by its number."""
    found = {}
    for output in sorted(folder.glob("*.bp")):
        with adios2.FileReader(str(output)) as reader:
            found[int(output.stem.rsplit("-", 1)[-1].rsplit(".", 1)[-1])] = float(reader.read("T")[0, 0])
    return found


def test_the_manager_copies_the_chosen_steps_out(instance: CommandLineInstance, tmp_path: Path) -> None:
    even, some = tmp_path / "even", tmp_path / "some"
    write(f"every=2 destination={even} format=bp5; steps=1:3 destination={some} format=bp5", 5)
    wait_until_staged(instance, 2)
    assert staged(even) == {0: 0.0, 2: 2.0, 4: 4.0}
    assert staged(some) == {1: 1.0, 2: 2.0}
    # The stream goes on: so does the stage.
    write(f"every=2 destination={even} format=bp5", 3, "a")
    wait_until_staged(instance, 3)
    assert staged(even) == {0: 0.0, 2: 2.0, 4: 4.0, 6: 1.0}


def stopped_stagers(instance: CommandLineInstance) -> list[int]:
    """Processes of stages that have stopped themselves."""
    return [pid for pid in instance.stagers() if is_stopped(pid)]


# crash-matrix: Opening a stream that comes with a rule | its stage of before, at `stage.steps.ended`: it has seen the end of the stream, and still writes the last steps | the stage begins again behind them
def test_a_stream_that_goes_on_while_its_stage_finishes_is_followed(
    instance: CommandLineInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.kill_manager()
    with monkeypatch.context() as environment:
        environment.setenv("FOREBAY_FAIL_POINT", "stage.steps.ended=stop")
        instance.up()
    rule = f"every=1 destination={tmp_path}/out format=bp5"
    write(rule, 2)
    until(lambda: bool(stopped_stagers(instance)), "the stage to have seen the end")
    write(rule, 2, "a")

    def succeeded() -> bool:
        for pid in stopped_stagers(instance):
            os.kill(pid, signal.SIGCONT)
        return [row["state"] for row in stages(instance)] == ["succeeded"]

    until(succeeded, "the stage to succeed")
    assert staged(tmp_path / "out") == {0: 0.0, 1: 1.0, 2: 0.0, 3: 1.0}


def test_a_relative_destination_lies_where_the_program_runs(
    instance: CommandLineInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write("every=1 destination=steps format=bp5", 1)
    wait_until_staged(instance, 1)
    assert staged(tmp_path / "here" / "steps") == {0: 0.0}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("every=0 destination=/tmp/x", "every"),
        ("every=2", "destination"),
        ("stream=other destination=/tmp/x", "stream"),
        (";", "there are 0 rules"),
    ],
)
def test_a_wrong_rule_is_told_before_anything_is_replaced(instance: CommandLineInstance, rule: str, told: str) -> None:
    write("", 2)
    with pytest.raises(ValueError, match=told):
        write(rule, 1)
    assert len(forebay.open("run1/flow", timeout=0).steps()) == 2
    assert stages(instance) == []


# crash-matrix: Opening a stream that comes with a rule | manager, killed before | Open waits, and the rule is carried out when the manager is back
def test_a_writer_waits_for_the_manager(instance: CommandLineInstance, tmp_path: Path) -> None:
    instance.kill_manager()
    with pytest.raises(RuntimeError, match=r"manager of .* cannot be reached"):
        write(f"every=1 destination={tmp_path}/steps", 1, ReconnectTimeoutSecs=0.3)
    with pytest.raises(forebay.StreamNotFoundError):
        forebay.open("run1/flow", timeout=0)
    instance.up()
    write(f"every=1 destination={tmp_path}/steps format=bp5", 1)
    wait_until_staged(instance, 1)


WAITING = """
    import sys, threading, adios2, forebay.adios2
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, "run1/flow", StageOutRule=f"every=1 destination={sys.argv[1]} format=bp5")
    main = threading.main_thread().ident
    def tell():
        while sys._current_frames()[main].f_code.co_name != "open":
            pass
        print("waiting", flush=True)
    threading.Thread(target=tell).start()
    io.open("flow", adios2.bindings.Mode.Write)
"""


@pytest.mark.parametrize("manager", ["gone", "stopped"])
def test_ctrl_c_ends_the_wait_for_the_manager(instance: CommandLineInstance, tmp_path: Path, manager: str) -> None:
    if manager == "gone":
        instance.kill_manager()
    else:
        os.kill(instance.manager_pid(), signal.SIGSTOP)
    try:
        with PythonProcess(WAITING, str(tmp_path / "out")) as process:
            assert process.line() == "waiting"
            begin = time.monotonic()
            process.send(signal.SIGINT)
            status, _, errors = process.finish(timeout=seconds(30))
        assert status != 0
        assert time.monotonic() - begin < 10
        # It asks the server where the manager is, and the manager.
        assert "interrupted while waiting for the" in errors or "KeyboardInterrupt" in errors
    finally:
        if manager == "gone":
            instance.up()
        else:
            os.kill(instance.manager_pid(), signal.SIGCONT)
