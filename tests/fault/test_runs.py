# SPDX-License-Identifier: Apache-2.0
"""Readers that wait for the writer of their run while the server is killed."""

from __future__ import annotations

import re

import pytest

import forebay
from tests.support.processes import PythonProcess
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

READER = """
    import sys, forebay
    wait = sys.argv[2] == "living writer"
    # For ever: else a writer that gives up, as those of wait_until_it_waits() do, would end the wait.
    with forebay.open(sys.argv[1], run=None if wait else "tuesday", wait_for_writer=wait, timeout=None) as stream:
        print([int(step["n"]) for step in stream.follow(timeout=60)])
"""


def write(address: str, *values: int, run: str, mode: str = "a", readers: int = 0) -> None:
    """A writer of one rank, from Open to Close."""
    with forebay.open(address, mode=mode, run=run, rendezvous_readers=readers) as stream:  # type: ignore[call-overload]
        for value in values:
            with stream.step() as step:
                step["n"] = value


def wait_until_it_waits(address: str) -> None:
    """Returns when the server counts one reader that waits for a group of this run."""
    came = ""
    while came != "1":
        with pytest.raises(forebay.DeadlineExceededError) as late:
            forebay.open(address, mode="a", run="tuesday", rendezvous_readers=2, timeout=0.05)
        told = re.search(r"(\d+) came", str(late.value))
        assert told is not None, late.value
        came = told[1]


# crash-matrix: recovering | server, while a reader waits for its writer | the reader goes on waiting, and takes no step of another run
@pytest.mark.parametrize("by", ["run", "living writer"])
def test_wait_for_a_writer_survives_the_server(
    by: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StagingServer(tmp_path_factory.mktemp("restarted") / "root") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("res", "64MiB", persistent=True)
        write("res/flow", 0, 1, run="monday")
        with PythonProcess(READER, "res/flow", by) as reader:
            for _ in range(2):
                wait_until_it_waits("res/flow")
                server.kill()
                server.start()
            wait_until_it_waits("res/flow")
            write("res/flow", 10, 11, run="tuesday", readers=1)
            assert reader.succeed() == "[10, 11]\n"


# crash-matrix: recovering | server, after several runs have written a stream | which step belongs to which run
def test_runs_are_known_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StagingServer(tmp_path_factory.mktemp("restarted") / "root") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("res", "64MiB", persistent=True)
        write("res/flow", 0, 1, run="monday")
        write("res/flow", 10, 11, run="tuesday")
        write("res/flow", 20, run="")
        with forebay.open("res/flow", run="monday") as monday, forebay.open("res/flow", run="tuesday") as tuesday:
            following = monday.follow(timeout=seconds(30))
            assert int(next(following)["n"]) == 0
            for kill in (True, False):
                if kill:
                    server.kill()
                else:
                    server.stop()
                server.start()
                assert [int(step["n"]) for step in tuesday] == [10, 11]
                with forebay.open("res/flow", run="tuesday") as again:
                    assert [int(step["n"]) for step in again.follow(timeout=seconds(30))] == [10, 11]
            # A reader that was in the middle of its run ends with it.
            assert [int(step["n"]) for step in following] == [1]


# crash-matrix: recovering | server, while its writer has a reader that waited for it | both go on, and older steps stay unseen
def test_reader_that_waited_for_its_writer_resumes_with_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StagingServer(tmp_path_factory.mktemp("restarted") / "root") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("res", "64MiB", persistent=True)
        write("res/flow", 0, 1, run="monday")
        with (
            forebay.open("res/flow", mode="a") as writer,
            forebay.open("res/flow", wait_for_writer=True) as stream,
            stream.follow(timeout=seconds(30)) as following,
        ):
            server.kill()
            server.start()
            with writer.step() as step:
                step["n"] = 2
            assert int(next(following)["n"]) == 2
            server.kill()
            server.start()
            assert [summary.number for summary in stream.steps()] == [2]
            with pytest.raises(forebay.StepNotFoundError, match="older than the writer group"):
                stream[1]
            # A reader that comes now finds the writer once it is back.
            with writer.step() as step:
                step["n"] = 3
            with forebay.open("res/flow", wait_for_writer=True) as late:
                assert [summary.number for summary in late.steps()] == [2, 3]
