# SPDX-License-Identifier: Apache-2.0
"""Clients and server die while bytes are on their way between nodes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.remote.blocks import small, temperature
from tests.remote.programs import Programs, both_transports
from tests.support.load import until
from tests.support.processes import is_stopped
from tests.support.staging_server import StagingServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes-faults")]

TokenMaker = Callable[..., Path]
STEPS = 3


def committed(server: StagingServer) -> int:
    """How many steps there are; each is whole."""
    with forebay.open("run1/flow", instance=server.root, verify="read") as stream:
        numbers = [summary.number for summary in stream.steps()]
        for number in numbers:
            assert (stream[number]["T"].read() == temperature(number)).all()
    assert numbers == list(range(len(numbers)))
    return len(numbers)


def check_clean(server: StagingServer) -> None:
    """The server finds nothing wrong, down to every byte."""
    with forebay.Admin(server.root) as admin:
        assert not [finding for finding in admin.audit(read_data=True) if finding.severity == "problem"]


# crash-matrix: write a step from another node | the writer, at `client.data.before_write` | the committed steps, whole; run again, it replaces them
@both_transports
@pytest.mark.parametrize("passing", [1, 14, 23])
def test_writer_is_killed_while_it_sends(
    programs: Programs, token: TokenMaker, server: StagingServer, passing: int
) -> None:
    with programs.writer(STEPS, token("write"), fail_point=f"client.data.before_write:{passing}=kill") as writer:
        status, output, _ = writer.finish()
        assert status == -signal.SIGKILL
    assert committed(server) >= len(output.split())
    with programs.writer(STEPS, token("write")) as again:
        again.succeed()
    assert committed(server) == STEPS
    check_clean(server)


# crash-matrix: write a step from another node | the server, at `server.data.before_write` | the committed steps, whole; the writer's step fails, and run again it replaces them
@both_transports
@pytest.mark.parametrize("passing", [1, 40])
def test_server_is_killed_while_it_writes_what_arrives(
    programs: Programs, token: TokenMaker, server: StagingServer, passing: int
) -> None:
    server.stop()
    server.start(fail_point=f"server.data.before_write:{passing}=kill")
    with programs.writer(STEPS, token("write")) as writer:
        assert server.wait() == -signal.SIGKILL
        server.start()
        status, output, errors = writer.finish()
        assert status != 0
        assert "abort_step, then write the step again" in errors, errors
    assert committed(server) >= len(output.split())
    with programs.writer(STEPS, token("write")) as again:
        again.succeed()
    assert committed(server) == STEPS
    check_clean(server)


@both_transports
@pytest.mark.parametrize("passing", [1, 40])
def test_a_step_that_was_lost_on_its_way_is_written_again_by_the_same_writer(
    programs: Programs, token: TokenMaker, server: StagingServer, passing: int
) -> None:
    server.stop()
    server.start(fail_point=f"server.data.before_write:{passing}=kill")
    with programs.redoing_writer(STEPS, token("write")) as writer:
        assert server.wait() == -signal.SIGKILL
        server.start()
        said = writer.succeed().splitlines()
    assert [line for line in said if not line.startswith("lost")] == ["0", "1", "2"]
    assert any(line.startswith("lost") for line in said)
    assert committed(server) == STEPS
    check_clean(server)


# crash-matrix: read a step from another node | the reader, at `client.data.before_get` | its cursor: the next of its name goes on there
@both_transports
@pytest.mark.parametrize("passing", [1, 9])
def test_reader_is_killed_while_it_asks(programs: Programs, token: TokenMaker, passing: int) -> None:
    with programs.writer(STEPS, token("write")) as writer:
        writer.succeed()
    with programs.python_reader(token("read"), fail_point=f"client.data.before_get:{passing}=kill") as reader:
        for _ in range(STEPS):
            reader.tell()
        status, output, _ = reader.finish()
        assert status == -signal.SIGKILL
    with programs.python_reader(token("read")) as again:
        for _ in range(STEPS):
            again.tell()
        seen = again.succeed().split()
    # A step that was said but not acknowledged comes again.
    assert seen[-1] == "end"
    first = int(seen[0])
    assert max(0, len(output.split()) - 1) <= first <= len(output.split())
    assert seen[:-1] == [str(number) for number in range(first, STEPS)]


# crash-matrix: read a step from another node | the server, at `server.data.before_send` | the steps; the reader waits, reconnects and gets the same bytes
@both_transports
@pytest.mark.parametrize("passing", [1, 30])
def test_server_is_killed_while_it_sends(
    programs: Programs, token: TokenMaker, server: StagingServer, passing: int
) -> None:
    with programs.writer(STEPS, token("write")) as writer:
        writer.succeed()
    must_read_although_it_dies(programs, token, server, passing)


@both_transports
def test_server_is_killed_while_it_sends_metadata(programs: Programs, token: TokenMaker, server: StagingServer) -> None:
    # So many variables that their descriptions do not travel inside a message.
    with forebay.open("run1/flow", "w", instance=server.root, retention="all") as stream:
        for number in range(STEPS):
            with stream.step() as step:
                step["T"], step["small"], step["number"] = temperature(number), small(number), number
                for extra in range(1500):
                    step[f"extra/{extra:04d}"] = extra
    must_read_although_it_dies(programs, token, server, passing=1)


def must_read_although_it_dies(programs: Programs, token: TokenMaker, server: StagingServer, passing: int) -> None:
    """The reader waits for the server, and gets every step as it was."""
    server.stop()
    server.start(fail_point=f"server.data.before_send:{passing}=kill")
    with programs.python_reader(token("read")) as reader:
        for _ in range(STEPS):
            reader.tell()
        assert server.wait() == -signal.SIGKILL
        server.start()
        assert reader.succeed().split() == [*map(str, range(STEPS)), "end"]
    check_clean(server)


# crash-matrix: write a step from another node | the writer, interrupted while it sends blocks | the committed steps; the interrupted one is given up, and the same writer goes on
@both_transports
def test_interrupted_writer_goes_on(programs: Programs, token: TokenMaker, server: StagingServer) -> None:
    # Early in the second step: sockets do not hold what is left of it.
    with programs.interrupted_writer(token("write"), "client.data.before_write:12=stop") as writer:
        assert writer.line() == "0"
        writer.tell()
        until(lambda: is_stopped(writer.pid), "the writer stands still in the middle of its block")
        # So that it has to wait.
        server.send(signal.SIGSTOP)
        writer.send(signal.SIGINT)
        writer.send(signal.SIGCONT)
        assert writer.line() == "interrupted"
        server.send(signal.SIGCONT)
        writer.tell()
        said = writer.line()
        assert "abort_step" in said
        assert "interrupted" in said
        assert writer.succeed().split() == ["1", "2"]
    with forebay.open("run1/flow", instance=server.root, verify="read") as stream:
        assert [step.number for step in stream.steps()] == [0, 1, 2]
        np.testing.assert_array_equal(stream[0]["T"][...], temperature(0))
        np.testing.assert_array_equal(stream[1]["few"][...], small(1))
        np.testing.assert_array_equal(stream[2]["T"][...], temperature(2))
    with forebay.Admin(server.root) as admin:
        assert not [finding for finding in admin.audit(read_data=True) if finding.severity == "problem"]
