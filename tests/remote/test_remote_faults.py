# SPDX-License-Identifier: Apache-2.0
"""Clients and server die while bytes are on their way between nodes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from tests.remote.blocks import temperature
from tests.remote.programs import Programs, both_transports, finish
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
        finish(again)
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
        assert "abort_step" in errors or "lost" in errors
    assert committed(server) >= len(output.split())
    with programs.writer(STEPS, token("write")) as again:
        finish(again)
    assert committed(server) == STEPS
    check_clean(server)


# crash-matrix: read a step from another node | the reader, at `client.data.before_get` | its cursor: the next of its name goes on there
@both_transports
@pytest.mark.parametrize("passing", [1, 9])
def test_reader_is_killed_while_it_asks(programs: Programs, token: TokenMaker, passing: int) -> None:
    with programs.writer(STEPS, token("write")) as writer:
        finish(writer)
    with programs.python_reader(token("read"), fail_point=f"client.data.before_get:{passing}=kill") as reader:
        for _ in range(STEPS):
            reader.tell()
        status, output, _ = reader.finish()
        assert status == -signal.SIGKILL
    with programs.python_reader(token("read")) as again:
        for _ in range(STEPS):
            again.tell()
        seen = finish(again).split()
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
        finish(writer)
    server.stop()
    server.start(fail_point=f"server.data.before_send:{passing}=kill")
    with programs.python_reader(token("read")) as reader:
        for _ in range(STEPS):
            reader.tell()
        assert server.wait() == -signal.SIGKILL
        server.start()
        assert finish(reader).split() == [*map(str, range(STEPS)), "end"]
    check_clean(server)
