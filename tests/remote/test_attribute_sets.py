# SPDX-License-Identifier: Apache-2.0
"""Large attributes of remote writers and readers travel once, not with each step."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from tests.remote.large_attributes import CHANGE_AT, table
from tests.remote.nodes import Nodes
from tests.remote.programs import Programs, both_transports
from tests.remote.test_remote_faults import check_clean
from tests.support.staging_server import StagingServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes-attributes")]

TokenMaker = Callable[..., Path]
MIB = 2**20
STEPS = 2 * CHANGE_AT


@both_transports
def test_large_attributes_travel_once(
    programs: Programs, token: TokenMaker, server: StagingServer, nodes: Nodes
) -> None:
    before = nodes.received_bytes("consumer")
    reading = programs.small("read", STEPS, token("read"), program="large_attributes.py")
    writing = programs.small("write", STEPS, token("write"), program="large_attributes.py")
    with reading as reader, writing as writer:
        for number in range(STEPS):
            assert writer.line() == str(number)
            assert reader.line() == str(number)
            writer.tell()
        reader.succeed()
        writer.succeed()
    # Two tables of 2 MiB, once for the follower and once for the stream's reader of steps by number.
    assert nodes.received_bytes("consumer") - before < 10 * MIB
    with forebay.Admin(server.root) as admin:
        assert admin.reservation("run1").used_bytes < 7 * MIB
    with forebay.open("run1/flow", instance=server.root) as stream:
        assert all((stream[number].attributes["table"] == table(number)).all() for number in range(STEPS))
    check_clean(server)


# crash-matrix: write a step with new large attributes from another node | the server, at `server.commit.after_append` | step and attributes; the writer goes on
@pytest.mark.parametrize("place", ["server.part.received", "server.commit.after_append", "server.commit.before_answer"])
def test_server_is_killed_while_new_attributes_commit(
    programs: Programs, token: TokenMaker, server: StagingServer, place: str
) -> None:
    server.stop()
    server.start(fail_point=f"{place}:{CHANGE_AT + 1}=kill")
    with programs.small("write", STEPS, token("write"), program="large_attributes.py") as writer:
        for _ in range(STEPS):
            writer.tell()
        assert server.wait() == -signal.SIGKILL
        server.start()
        assert writer.succeed().split() == [str(number) for number in range(STEPS)]
    with forebay.open("run1/flow", instance=server.root) as stream:
        assert all((stream[number].attributes["table"] == table(number)).all() for number in range(STEPS))
    check_clean(server)
