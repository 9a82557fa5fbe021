# SPDX-License-Identifier: Apache-2.0
"""Stages through the manager: waiting, cancelling, surviving kills of stager, manager and server."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.cli.failures import ExitStatus
from forebay.manager.records import StageRow
from tests.support.instance import CommandLineInstance
from tests.support.randomness import TEST_SEED, times
from tests.support.staged_output import check_destination, read_bp5, receipt_entries, stray_names
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance

KILLS = times(8)
STEPS = 40


def field(number: int) -> NDArray[np.float64]:
    return np.arange(50_000, dtype=np.float64) + number


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineInstance]:
    """An instance with an ended stream `run1/flow` of 40 steps."""
    with (
        CommandLineInstance(tmp_path_factory.mktemp("manager") / "root") as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("FOREBAY_ROOT", str(running.root))
        running.ask("create", "run1", "--capacity", "128MiB", "--persistent")
        write(STEPS, "run1/flow")
        yield running


def write(count: int, address: str) -> None:
    with forebay.open(address, "w") as stream:
        for _ in range(count):
            with stream.step() as step:
                step["T"] = field(stream.next_step)


def submit(instance: CommandLineInstance, *arguments: str) -> int:
    number: int = instance.ask("stage-out", *arguments, "--no-wait")["stage"]["id"]
    return number


def wait_until(instance: CommandLineInstance, number: int, holds: Callable[[StageRow], bool]) -> StageRow:
    """The stage once it is as wanted; woken by its changes."""
    deadline = time.monotonic() + 90
    seen = -1
    while time.monotonic() < deadline:
        with instance.manager() as manager:
            row = manager.stage(number, seen=seen, wait_seconds=5)
        if holds(row):
            return row
        seen = row.version
    raise AssertionError(f"stage {number} is still {row}")


def test_a_rule_of_a_reservation_copies_chosen_steps_while_they_are_written(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    rule = f"stream=live every=2 destination={tmp_path}/out"
    asked = ["create", "ruled", "--capacity", "64MiB", "--stage-out", rule]
    (number,) = instance.ask(*asked)["stages"]
    assert instance.ask(*asked)["stages"] == [number]  # begun once, however often it is created
    write(5, "ruled/live")
    stage = wait_until(instance, number, lambda stage: stage.state == "succeeded")
    assert stage.job["follow"]
    assert sorted(receipt_entries(tmp_path / "out")) == [0, 2, 4]
    for wrong in ("every=2 destination=/x", "stream=other/flow destination=/x", "stream=flow destination=%d/x"):
        assert instance.run("create", "ruled", "--capacity", "64MiB", "--stage-out", wrong).returncode != 0
    instance.ask("destroy", "ruled", "--force")


def is_over(row: StageRow) -> bool:
    return row.state in ("succeeded", "failed", "cancelled")


def at_least(steps: int) -> Callable[[StageRow], bool]:
    """True once so many steps are done, or the stage is over or has been begun again."""
    return lambda row: is_over(row) or row.progress.get("items_done", 0) >= steps or row.attempts > 1


def check_all_staged(out: Path) -> None:
    assert sorted(receipt_entries(out)) == list(range(STEPS))
    check_destination(out)
    assert stray_names(out) == set()
    for number in (0, STEPS // 2, STEPS - 1):
        np.testing.assert_array_equal(read_bp5(out / f"flow.{number:06d}.bp", "T"), field(number))


def test_waiting_tells_where_the_receipt_is(instance: CommandLineInstance, tmp_path: Path) -> None:
    done = instance.run("stage-out", "run1/flow", str(tmp_path / "out"), "--every", "10")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"4 steps staged out; receipt: {tmp_path}/out/receipt.json\n"
    told = instance.ask("stage-out", "run1/flow", str(tmp_path / "out"), "--every", "10")["stage"]
    assert told["state"] == "succeeded"
    assert told["result"]["kept"] == [0, 10, 20, 30]
    shown = instance.run("stages", "show", str(told["id"])).stdout
    assert "succeeded" in shown
    assert str(tmp_path / "out" / "receipt.json") in shown
    # The manager's own names the files, also those that were there already.
    rows = instance.ask("receipt", str(tmp_path / "out"))["files"]
    assert {row["step"] for row in rows} == {0, 10, 20, 30}
    for row in rows:
        content = (tmp_path / "out" / row["path"]).read_bytes()
        assert (row["size_bytes"], row["crc32c"]) == (len(content), f"{forebay.crc32c(content):08x}")
    assert told["id"] in {row["id"] for row in instance.ask("stages")["stages"]}


def test_files_go_in_and_out(instance: CommandLineInstance, tmp_path: Path) -> None:
    source = tmp_path / "inputs"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "mesh").write_bytes(os.urandom(100_000))
    (source / "link").symlink_to("deep/mesh")
    os.utime(source / "deep" / "mesh", ns=(1_000_000_000, 1_234_567_890))
    for copied, kept in ((1, 0), (0, 1)):
        result = instance.ask("stage-in", str(source), "run1:inputs")["stage"]["result"]
        assert (result["copied"], result["kept"]) == (copied, kept)
    files = Path(instance.ask("show", "run1")["reservation"]["files_path"])
    assert (files / "inputs" / "link").readlink() == Path("deep/mesh")
    assert (files / "inputs" / "deep" / "mesh").stat().st_mtime_ns == 1_234_567_890
    instance.ask("stage-out", "run1:inputs/deep/mesh", f"{tmp_path}/back/")
    instance.ask("stage-out", "forebay://run1/files/inputs", str(tmp_path / "tree"))
    for back in (tmp_path / "back" / "mesh", tmp_path / "tree" / "deep" / "mesh"):
        assert back.read_bytes() == (source / "deep" / "mesh").read_bytes()
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["mesh"]
    assert subprocess.run(["diff", "-r", source, tmp_path / "tree"], check=False).returncode == 0


def test_a_receipt_is_kept_beside_the_database_and_shown_by_number_and_by_path(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    source = tmp_path / "\u202esource"
    source.mkdir()
    (source / "a\x1b[31m").write_bytes(b"a" * 1000)
    (source / "b").write_bytes(b"b")
    stage = instance.ask("stage-in", str(source), "run1:kept", "--receipt", str(tmp_path / "sidecar"))["stage"]
    number = str(stage["id"])
    lines = [json.loads(line) for line in (tmp_path / "sidecar").read_text().splitlines()]
    assert [row["path"] for row in lines[1:-1]] == ["a\x1b[31m", "b"]
    assert lines[1]["crc32c"] == f"{forebay.crc32c(b'a' * 1000):08x}"
    assert (lines[-1]["files"], lines[-1]["size_bytes"]) == (2, 1001)
    whole = b"".join((tmp_path / "sidecar").read_bytes().splitlines(keepends=True)[:-1])
    assert lines[-1]["crc32c"] == f"{forebay.crc32c(whole):08x}"
    shown = [instance.run("receipt", what).stdout for what in (number, "run1:kept", "run1:kept/b")]
    assert shown[0] == shown[1] == shown[2]
    assert "a\\x1b[31m" in shown[0]
    assert "\\u202esource" in shown[0]
    assert instance.ask("receipt", number)["files"] == lines[1:-1]
    # What the manager remembers of stages is another thing.
    with instance.manager() as manager:
        assert manager.receipts("run1:kept")[0].stage == stage["id"]
    assert instance.ask("receipt", number, "--remove")["removed"]
    gone = instance.run("receipt", number)
    assert "there is no receipt of stage" in gone.stderr


def test_a_following_stage_is_cancelled_and_taken_up_again(instance: CommandLineInstance, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with forebay.open("run1/live", "w") as stream:
        with stream.step() as step:
            step["T"] = field(0)
        number = submit(instance, "run1/live", str(out), "--follow")
        wait_until(instance, number, lambda row: row.progress.get("items_done") == 1)
        for _ in range(2):
            instance.ask("stages", "cancel", str(number))
        assert wait_until(instance, number, is_over).state == "cancelled"
        assert instance.stagers() == []
    done = instance.ask("stage-out", "run1/live", str(out), "--follow")["stage"]
    assert done["result"]["kept"] == [0]


def test_ctrl_c_while_waiting_cancels(instance: CommandLineInstance, tmp_path: Path) -> None:
    before = {row["id"] for row in instance.ask("stages")["stages"]}
    with forebay.open("run1/live", "w"):
        waiting = instance.start("stage-out", "run1/live", str(tmp_path / "out"), "--follow")
        while not (new := {row["id"] for row in instance.ask("stages")["stages"]} - before):
            assert waiting.poll() is None
        (number,) = new
        wait_until(instance, number, lambda row: row.state == "running")
        waiting.send_signal(signal.SIGINT)
        _, errors = waiting.communicate(timeout=seconds(60))
        assert waiting.returncode == ExitStatus.CTRL_C
        assert "was cancelled" in errors
        assert wait_until(instance, number, is_over).state == "cancelled"


def test_following_an_interrupted_stream_has_an_exit_status_of_its_own(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    stream = forebay.open("run1/broken", "w", grace=0.1)
    with stream.step() as step:
        step["T"] = field(0)
    stream.abandon()
    done = instance.run("stage-out", "run1/broken", str(tmp_path / "out"), "--follow")
    assert done.returncode == ExitStatus.INTERRUPTED_STREAM
    assert "writer group was lost" in done.stderr
    assert sorted(receipt_entries(tmp_path / "out")) == [0]


@pytest.mark.timeout(300)
# crash-matrix: stages | stager, at random moments | the manager starts it again; every step is staged
def test_killed_stagers_are_started_again_and_complete(instance: CommandLineInstance, tmp_path: Path) -> None:
    chance = random.Random(TEST_SEED)
    kills = 0
    # On a busy machine a stage may be over before this looks at it: then the next one.
    for attempt in range(20):
        out = tmp_path / f"out{attempt}"
        number = submit(instance, "run1/flow", str(out))
        while kills < KILLS and not is_over(wait_until(instance, number, at_least(chance.randrange(0, 6)))):
            kills += instance.kill_stagers()
        if kills:
            break
    assert kills
    row = wait_until(instance, number, is_over)
    assert row.state in ("succeeded", "failed"), f"seed {TEST_SEED}: {row}"
    if row.state == "failed":
        # So many deaths without progress are given up; the user runs it again.
        assert row.failure is not None
        assert "died of signal 9" in row.failure["what"]
        instance.ask("stage-out", "run1/flow", str(out))
    check_all_staged(out)


@pytest.mark.timeout(300)
# crash-matrix: stages | manager, at random moments | the next one goes on; every step is staged
def test_a_killed_manager_takes_up_its_stages(instance: CommandLineInstance, tmp_path: Path) -> None:
    chance = random.Random(TEST_SEED)
    outs = []
    for round_number in range(max(2, KILLS // 4)):
        out = tmp_path / f"out{round_number}"
        outs.append(out)
        number = submit(instance, "run1/flow", str(out))
        wait_until(instance, number, at_least(chance.randrange(0, STEPS)))
        ended = []
        for pid in instance.stagers():
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                ended.append(os.pidfd_open(pid))
        instance.kill_manager()
        # No stage outlives its manager.
        for process in ended:
            assert select.select([process], [], [], 30)[0]
            os.close(process)
        instance.up()
        row = wait_until(instance, number, is_over)
        assert row.state == "succeeded", f"seed {TEST_SEED}: {row}"
        assert row.result is not None
        assert sorted(row.result["staged"] + row.result["kept"]) == list(range(STEPS))
    for out in outs:
        check_all_staged(out)
    assert instance.ask("doctor")["clean"] is True


def test_a_waiting_command_outlives_the_manager(instance: CommandLineInstance, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = {row["id"] for row in instance.ask("stages")["stages"]}
    waiting = instance.start("stage-out", "run1/flow", str(out))
    while not {row["id"] for row in instance.ask("stages")["stages"]} - before:
        assert waiting.poll() is None
    instance.kill_manager()
    instance.up()
    printed, errors = waiting.communicate(timeout=seconds(90))
    assert waiting.returncode == 0, errors
    assert "receipt" in printed
    check_all_staged(out)


# crash-matrix: stages | server, when some steps are staged | the stage waits for it; every step is staged
def test_a_killed_server_is_waited_for(instance: CommandLineInstance, tmp_path: Path) -> None:
    out = tmp_path / "out"
    number = submit(instance, "run1/flow", str(out))
    wait_until(instance, number, lambda row: is_over(row) or row.progress.get("items_done", 0) >= 3)
    instance.kill_server()
    told = instance.up()
    assert told["server_started"]
    assert not told["manager_started"]
    assert wait_until(instance, number, is_over).state == "succeeded"
    check_all_staged(out)
    with forebay.Admin() as admin:
        assert all(step.staged for step in admin.steps("run1/flow"))
