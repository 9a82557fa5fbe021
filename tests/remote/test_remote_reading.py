# SPDX-License-Identifier: Apache-2.0
"""Which bytes a remote reader gets: never those of a later step."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from tests.remote.blocks import temperature
from tests.remote.programs import Programs, finish
from tests.support.load import until
from tests.support.processes import is_stopped
from tests.support.staging_server import StagingServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes")]

TokenMaker = Callable[..., Path]


# crash-matrix: read a step from another node | the reader, stopped at `client.data.receiving`, while the step's space is used again | an error, never bytes of a later step
@pytest.mark.parametrize(
    ("transport", "place"),
    [("tcp", "client.data.receiving:2"), ("fabric", "client.fabric.after_offer:6")],
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
            assert finish(reader).strip() == "StepGoneError"
