# SPDX-License-Identifier: Apache-2.0
"""A user does what they like with the stage's process: it costs the manager and other users nothing.

A program stands in for the stage. What it does, the path of its job says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forebay.manager.jobs import FilesJob
from forebay.manager.records import StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.stages import stage_run
from forebay.workflows.manager.core.stages.stage_findings import stage_findings
from forebay.workflows.manager.core.stages.stage_process import StageProcess
from forebay.workflows.manager.core.stages.stage_settings import StageSettings
from forebay.workflows.manager.core.stages.stuck_processes import StuckProcess
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor

DONE = json.dumps({"event": "done", "result": {"target": "/x", "files": 0, "copied": 0, "kept": 0}})
PROGRAM = f"""#!{os.path.realpath(sys.executable)} -SE
import json, os, signal, sys, time
path = json.loads(sys.argv[4])["path"]
folder = os.path.dirname(os.path.realpath(__file__))
def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
if path == "done":
    say('{DONE}')
elif path == "fifo":
    say(json.dumps({{"event": "done", "result": {{"receipt": folder + "/fifo", "target": "/x"}}}}))
elif path == "link":
    say(json.dumps({{"event": "done", "result": {{"receipt": folder + "/link", "target": "/x"}}}}))
elif path == "endless":
    for _ in range(200):
        os.write(1, b"x" * (1 << 20))
elif path == "complaints":
    for _ in range(30):
        os.write(2, b"y" * (1 << 20))
    say('{DONE}')
elif path == "notes":
    for number in range(150):
        say(json.dumps({{"event": "note", "text": str(number) + "n" * 60000}}))
    say('{DONE}')
elif path == "rows":
    row = {{"path": "p" * 1000, "size_bytes": 1, "crc32c": "00000000"}}
    for _ in range(1000):
        say(json.dumps({{"event": "files", "files": [row] * 50}}))
    say('{DONE}')
elif path == "nonsense":
    say(json.dumps({{"event": "files", "files": [{{"path": 1}}]}}))
    time.sleep(600)
elif path == "child":
    if os.fork() == 0:
        os.setsid()
        open(folder + "/child", "w").write(str(os.getpid()))
        time.sleep(600)
    while not os.path.exists(folder + "/child"):
        time.sleep(0.001)
    say('{DONE}')
elif path == "broken":
    sys.exit("Fatal Python error: cannot read its library")
elif path == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(json.dumps({{"event": "note", "text": "here"}}))
    time.sleep(600)
"""

Started = Callable[[], contextlib.AbstractAsyncContextManager[StageSupervisor]]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    """A supervisor whose stages are run by the program; all of its children end with it."""
    program = tmp_path / "stage"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "secret").write_text("root's")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    monkeypatch.setattr("sys.executable", str(program))
    # Other users are only other numbers here.
    monkeypatch.setattr("forebay.workflows.manager.core.stages.stage_process._identity", lambda _row: {})
    module = "forebay.workflows.manager.core.stages.supervisor"
    monkeypatch.setattr(f"{module}.stage_environment", lambda *_: dict(os.environ))

    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[StageSupervisor]:
        with contextlib.closing(Database(tmp_path / "manager.sqlite")) as database:
            supervisor = StageSupervisor(database, tmp_path, StageSettings(receipts_bytes_max=1 << 20))
            await supervisor.start()
            try:
                yield supervisor
            finally:
                await supervisor.stop()

    return start


def with_supervisor(started: Started, work: Callable[[StageSupervisor], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with started() as supervisor, asyncio.timeout(60):
            await work(supervisor)

    asyncio.run(run())


async def submit(supervisor: StageSupervisor, what: str, uid: int = 1) -> int:
    return (await supervisor.submit(FilesJob("run1", what, "/x", inward=False), uid, uid, 0o22)).id


async def until(supervisor: StageSupervisor, stage: int, holds: Callable[[StageRow], bool]) -> StageRow:
    while True:
        seen = supervisor.version(stage)
        if holds(row := await supervisor.stage(stage)):
            return row
        await supervisor.wait_for_change(stage, seen, 10.0)


def is_over(row: StageRow) -> bool:
    return row.state.is_final


@pytest.mark.parametrize("what", ["fifo", "link"])
def test_root_opens_no_path_that_a_stage_hands_back(started: Started, what: str) -> None:
    async def work(supervisor: StageSupervisor) -> None:
        row = await until(supervisor, await submit(supervisor, what), is_over)
        assert row.state is StageState.SUCCEEDED
        receipt = supervisor.receipts.find(row.id, None)
        assert receipt is not None
        # The checksum is that of the manager's own file.
        assert receipt.path.parent.parent == supervisor.receipts._folder
        assert receipt.row.files == 0

    with_supervisor(started, work)


@pytest.mark.parametrize("what", ["endless", "complaints"])
def test_what_a_stage_writes_without_end_is_not_kept(started: Started, what: str) -> None:
    async def work(supervisor: StageSupervisor) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        row = await until(supervisor, await submit(supervisor, what), is_over)
        if what == "endless":
            assert row.failure is not None
            assert "a message of more than 64 KiB" in row.failure["what"]
        else:
            assert row.state is StageState.SUCCEEDED
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10  # KiB; of 200 and 30 MiB

    with_supervisor(started, work)


def test_of_a_stages_notes_a_hundred_are_kept_and_each_is_cut(started: Started) -> None:
    async def work(supervisor: StageSupervisor) -> None:
        row = await until(supervisor, await submit(supervisor, "notes"), is_over)
        assert row.state is StageState.SUCCEEDED
        assert [note.rstrip("n") for note in row.notes] == [str(number) for number in range(50, 150)]
        assert {len(note) for note in row.notes} == {500}

    with_supervisor(started, work)


def test_rows_go_to_disk_up_to_a_size_that_the_error_names(started: Started) -> None:
    async def work(supervisor: StageSupervisor) -> None:
        row = await until(supervisor, await submit(supervisor, "rows"), is_over)
        assert row.state is StageState.FAILED
        assert row.failure is not None
        assert "receipts of user 1 take" in row.failure["what"]
        assert "receipts_max allows 1 MiB" in row.failure["what"]
        assert [*supervisor.receipts.of(None)] == []
        assert not any(path.name.startswith(".") for path in (supervisor.receipts._folder / "1").iterdir())

    with_supervisor(started, work)


def test_a_stage_that_speaks_nonsense_is_ended_at_once(started: Started) -> None:
    async def work(supervisor: StageSupervisor) -> None:
        row = await until(supervisor, await submit(supervisor, "nonsense"), is_over)
        assert row.failure is not None
        assert "said what no Forebay says" in row.failure["what"]

    with_supervisor(started, work)


def test_a_process_that_a_stage_leaves_does_not_hold_it_up(started: Started, tmp_path: Path) -> None:
    """It has the pipe still, in a session of its own."""

    async def work(supervisor: StageSupervisor) -> None:
        row = await until(supervisor, await submit(supervisor, "child"), is_over)
        assert row.state is StageState.SUCCEEDED
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)

    with_supervisor(started, work)


def test_cancelling_frees_the_place_at_once(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four stages of one user that do not heed SIGTERM held up everybody."""
    monkeypatch.setattr(stage_run, "_STOP_SECONDS", 600.0)

    async def work(supervisor: StageSupervisor) -> None:
        deaf = [await submit(supervisor, "deaf") for _ in range(4)]
        waiting = await submit(supervisor, "done")
        others = [await submit(supervisor, "done", uid) for uid in (2, 3)]
        for stage in others:  # they have a reserve
            assert (await until(supervisor, stage, is_over)).state is StageState.SUCCEEDED
        for stage in deaf:
            await until(supervisor, stage, lambda row: bool(row.notes))
            await supervisor.cancel(stage)
        # Another user has all four places now, although the four processes live still.
        again = [await submit(supervisor, "done", 2) for _ in range(8)]
        for stage in again:
            assert (await until(supervisor, stage, is_over)).state is StageState.SUCCEEDED
        runs = [supervisor._runs[stage] for stage in deaf]
        assert not any(run.process.has_ended for run in runs)
        # To their own user they count until they have ended.
        assert (await supervisor.stage(waiting)).state is StageState.QUEUED
        for stage, run in zip(deaf, runs, strict=True):
            run.kill()
            assert (await until(supervisor, stage, is_over)).state is StageState.CANCELLED
        assert (await until(supervisor, waiting, is_over)).state is StageState.SUCCEEDED

    with_supervisor(started, work)


def test_the_next_manager_remembers_processes_that_do_not_end(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_run, "_STOP_SECONDS", 0.0)
    monkeypatch.setattr(stage_run, "_KILLED_SECONDS_MAX", 0.0)
    unkillable: list[StageProcess] = []
    monkeypatch.setattr(StageProcess, "signal", lambda process, _number: unkillable.append(process))
    first: list[StageSupervisor] = []

    async def leave_some(supervisor: StageSupervisor) -> None:
        for _ in range(4):
            stage = await submit(supervisor, "deaf")
            await until(supervisor, stage, lambda row: bool(row.notes))
            await supervisor.cancel(stage)
            await until(supervisor, stage, is_over)
        first.append(supervisor)

    async def go_on(supervisor: StageSupervisor) -> None:
        assert supervisor.stuck == left
        mine, others = await submit(supervisor, "done"), await submit(supervisor, "done", 2)
        assert (await until(supervisor, others, is_over)).state is StageState.SUCCEEDED
        assert (await supervisor.stage(mine)).state is StageState.QUEUED
        for process in {process.pid: process for process in unkillable}.values():
            os.kill(process.pid, signal.SIGKILL)
            process._process.wait()
            process.close()
        assert (await until(supervisor, mine, is_over)).state is StageState.SUCCEEDED
        assert supervisor.stuck == []

    with_supervisor(started, leave_some)
    left = first[0].stuck
    assert [stuck.uid for stuck in left] == [1] * 4
    with_supervisor(started, go_on)

    async def start_with_a_number_that_is_anothers(supervisor: StageSupervisor) -> None:
        assert supervisor.stuck == []
        gone = StuckProcess("boot/1/1", 1, 1, False, os.getpid(), 1)
        supervisor._stuck._write_down(gone)

    with_supervisor(started, start_with_a_number_that_is_anothers)
    with_supervisor(started, start_with_a_number_that_is_anothers)


def test_the_next_manager_kills_what_ran_when_its_predecessor_was_killed(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_run, "_STOP_SECONDS", 0.0)

    async def work(supervisor: StageSupervisor) -> None:
        done, deaf = await submit(supervisor, "done"), await submit(supervisor, "deaf")
        await until(supervisor, done, is_over)
        await until(supervisor, deaf, lambda row: bool(row.notes))
        process = supervisor._runs[deaf].process
        # As it finds the database.
        with (
            contextlib.closing(sqlite3.connect(tmp_path / "manager.sqlite")) as source,
            contextlib.closing(sqlite3.connect(tmp_path / "next.sqlite")) as target,
        ):
            source.backup(target)
        with contextlib.closing(Database(tmp_path / "next.sqlite")) as database:
            successor = StageSupervisor(database, tmp_path)
            sent = []
            with monkeypatch.context() as unkillable:
                unkillable.setattr(signal, "pidfd_send_signal", lambda _descriptor, number: sent.append(number))
                await successor.start()
            assert sent == [signal.SIGKILL]
            assert [(stuck.stage, stuck.uid, stuck.pid) for stuck in successor.stuck] == [(deaf, 1, process.pid)]
            (told,) = stage_findings(successor.stuck)
            assert f"its process {process.pid} of user 1 does not end" in told.what
            process.signal(signal.SIGKILL)
            await asyncio.wait(successor._stuck._waits)
            assert successor.stuck == []
            await successor.stop()
            assert successor._stuck._rows() == []

    with_supervisor(started, work)


def test_a_process_that_does_not_end_when_killed_counts_for_its_user_and_doctor_names_it(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_run, "_STOP_SECONDS", 0.0)
    monkeypatch.setattr(stage_run, "_KILLED_SECONDS_MAX", 0.0)
    unkillable: list[StageProcess] = []
    send = StageProcess.signal
    monkeypatch.setattr(StageProcess, "signal", lambda process, _number: unkillable.append(process))

    async def work(supervisor: StageSupervisor) -> None:
        deaf = [await submit(supervisor, "deaf") for _ in range(4)]
        for stage in deaf:
            await until(supervisor, stage, lambda row: bool(row.notes))
            await supervisor.cancel(stage)
            assert (await until(supervisor, stage, is_over)).state is StageState.CANCELLED
        mine, others = await submit(supervisor, "done"), await submit(supervisor, "done", 2)
        assert (await until(supervisor, others, is_over)).state is StageState.SUCCEEDED
        assert (await supervisor.stage(mine)).state is StageState.QUEUED
        told = stage_findings(supervisor.stuck)
        assert [finding.where for finding in told] == [f"stage {stage}" for stage in deaf]
        pids = {process.pid for process in unkillable}
        assert {str(pid) for pid in pids} <= set(" ".join(finding.what for finding in told).split())
        for process in unkillable:
            send(process, signal.SIGKILL)
        assert (await until(supervisor, mine, is_over)).state is StageState.SUCCEEDED
        assert supervisor.stuck == []

    with_supervisor(started, work)


def test_stages_of_one_user_do_not_keep_others_waiting(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_run, "_STOP_SECONDS", 0.0)

    async def work(supervisor: StageSupervisor) -> None:
        many = [await submit(supervisor, "deaf") for _ in range(12)]
        other = await submit(supervisor, "done", 2)
        assert (await until(supervisor, other, is_over)).state is StageState.SUCCEEDED
        rows = [await supervisor.stage(stage) for stage in many]
        assert [row.state for row in rows].count(StageState.QUEUED) == 8

    with_supervisor(started, work)


def test_a_stage_that_its_user_cannot_run_says_what_and_who(started: Started, tmp_path: Path) -> None:
    (tmp_path / "stage").chmod(0o600)

    async def work(supervisor: StageSupervisor) -> None:
        row = await until(supervisor, await submit(supervisor, "done"), is_over)
        assert row.state is StageState.FAILED
        assert row.failure is not None
        assert f"user 1 may not execute {tmp_path}/stage" in row.failure["what"]
        assert "installs Forebay where all users can read it" in row.failure["what"]

    with_supervisor(started, work)


def test_a_stage_whose_program_ends_at_once_says_what_and_who(started: Started) -> None:
    async def work(supervisor: StageSupervisor) -> None:
        row = await until(supervisor, await submit(supervisor, "broken"), is_over)
        assert row.failure is not None
        assert row.failure["what"] == (
            "the stage's process of user 1 ended with status 1: Fatal Python error: cannot read its library"
        )

    with_supervisor(started, work)
