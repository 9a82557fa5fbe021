# SPDX-License-Identifier: Apache-2.0
"""Small steps travel inside messages: no data path is opened for them, and they survive what larger steps do not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from tests.remote.nodes import PORT, Nodes
from tests.remote.programs import Programs, both_transports
from tests.remote.small_blocks import block
from tests.remote.test_remote_faults import check_clean
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes-small")]

TokenMaker = Callable[..., Path]
STEPS = 5


def check_steps(server: StagingServer) -> None:
    """All are there, whole."""
    with forebay.open("run1/flow", instance=server.root, verify="read") as stream:
        assert [summary.number for summary in stream.steps()] == list(range(STEPS))
        for number in range(STEPS):
            assert (stream[number]["T"].read() == block(number)).all()
    check_clean(server)


@both_transports
def test_small_steps_need_no_data_path(programs: Programs, token: TokenMaker, server: StagingServer) -> None:
    # Whoever used one would die.
    reading = programs.small("read", STEPS, token("read"), "client.data.before_get:1=kill")
    writing = programs.small("write", STEPS, token("write"), "client.data.before_write:1=kill")
    with reading as reader, writing as writer:
        for number in range(STEPS):
            assert writer.line() == str(number)
            assert reader.line() == str(number)
            writer.tell()
        reader.succeed()
        writer.succeed()
    check_steps(server)


# crash-matrix: write a small step from another node | the server, at `server.part.received` | the step; the writer reconnects and sends it again
@pytest.mark.parametrize("place", ["server.part.received", "server.commit.after_append", "server.commit.before_answer"])
def test_server_is_killed_while_a_small_step_commits(
    programs: Programs, token: TokenMaker, server: StagingServer, place: str
) -> None:
    server.stop()
    server.start(fail_point=f"{place}:3=kill")
    with (
        programs.small("read", STEPS, token("read")) as reader,
        programs.small("write", STEPS, token("write")) as writer,
    ):
        # Both are there.
        assert (writer.line(), reader.line()) == ("0", "0")
        for _ in range(STEPS):
            writer.tell()
        assert server.wait() == -signal.SIGKILL
        server.start()
        assert writer.succeed().split() == [str(number) for number in range(1, STEPS)]
        assert reader.succeed().split() == [str(number) for number in range(1, STEPS)]
    check_steps(server)


# crash-matrix: write a step from another node | the server, and the writer's process before the server is back | the committed steps; a new writer on the same node goes on at once, without the grace time
def test_new_writer_does_not_wait_for_one_that_is_gone(programs: Programs, nodes: Nodes, tmp_path: Path) -> None:
    patient = StagingServer(
        tmp_path / "patient",
        options=("--listen", f"0.0.0.0:{PORT}", "--restart-grace-ms", "3600000"),
        prefix=nodes.prefix_of("server"),
        capacity="256MiB",
    )
    with patient:
        with forebay.Admin(patient.root) as admin:
            admin.create("run1", "128MiB")
            text = admin.create_token("run1", rights=("write",), lifetime=600)
        file = tmp_path / "patient.token"
        file.touch(0o600)
        file.write_text(text + "\n")
        with programs.small("write", STEPS, file) as first:
            assert first.line() == "0"
            patient.kill()
            first.kill()
        patient.start()
        # Within the test's time, which is shorter than the grace time.
        with programs.small("write", 1, file) as again:
            again.tell()
            again.succeed()
        with forebay.Admin(patient.root) as admin:
            assert admin.stream("run1/flow").steps == 1
        check_clean(patient)


@both_transports
def test_ping_says_path_and_rate(nodes: Nodes, token: TokenMaker, transport: str) -> None:
    command = [sys.executable, "-m", "forebay", "ping", nodes.server, "--size", "4MiB", "--json"]
    environment = {"FOREBAY_TRANSPORT": transport, "FOREBAY_TOKEN_FILE": str(token("write")), "PATH": "/usr/bin"}
    said = json.loads(
        subprocess.run(
            [*nodes.prefix_of("consumer"), *command],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            timeout=seconds(60),
        ).stdout
    )
    assert said["transport"] == transport
    assert said["provider"].startswith("tcp" if transport == "fabric" else "")
    assert bool(said["provider"]) == (transport == "fabric")
    assert 0 < said["latency_least_ns"] <= said["latency_ns"] < 10**9
    assert said["bytes_per_second"] > 2**20
