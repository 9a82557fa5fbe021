# SPDX-License-Identifier: Apache-2.0
"""Which bytes a remote reader gets: no more than it asked for, and never those of a later step."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from tests.remote.blocks import temperature
from tests.remote.nodes import Nodes
from tests.remote.programs import Programs, both_transports
from tests.support.load import until
from tests.support.processes import is_stopped
from tests.support.staging_server import StagingServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes-reading")]

TokenMaker = Callable[..., Path]
MIB = 2**20


@both_transports
def test_part_of_a_variable_does_not_fetch_its_whole_block(
    programs: Programs, token: TokenMaker, nodes: Nodes, transport: str
) -> None:
    with programs.writer(1, token("write")) as writer:
        writer.succeed()
    with programs.reader("slicer.py", token("read")) as reader:
        assert reader.line() == "(1536, 1536)"
        before = nodes.received_bytes("consumer")
        reader.tell()
        assert reader.succeed().strip() == "right"
    # By libfabric each request moves memory of 1 MiB at most; the block has 18 MiB.
    assert nodes.received_bytes("consumer") - before < (6 if transport == "fabric" else 2) * MIB


# crash-matrix: read a step from another node | the reader, stopped at `client.data.receiving`, while the step's space is used again | an error, never bytes of a later step
@pytest.mark.parametrize(
    ("transport", "place"),
    [("tcp", "client.data.receiving:1"), ("fabric", "client.fabric.after_offer:6")],
    indirect=["transport"],
)
def test_bytes_of_a_later_step_are_never_shown(
    programs: Programs, token: TokenMaker, server: StagingServer, place: str
) -> None:
    # A step is larger than a quarter of the reservation: readers without a name cannot hold it.
    with forebay.open("other/flow", "w", instance=server.root, retention="last:1") as stream:

        def write(number: int) -> None:
            with stream.step() as step:
                step["T"] = temperature(number)

        write(0)
        # It stops itself when the first bytes of the variable have come.
        reading = token("read", reservation="other")
        with programs.reader("whole_reader.py", reading, "other/flow", f"{place}=stop") as reader:
            until(lambda: is_stopped(reader.pid), "the reader stands still in the middle")
            for number in range(1, 8):
                write(number)
            reader.send(signal.SIGCONT)
            assert reader.succeed().strip() == "StepGoneError"
