# SPDX-License-Identifier: Apache-2.0
"""`forebay advise RES/STREAM`: what it says of a real stream, and that its lines help."""

from __future__ import annotations

import json
import shlex
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.cli.failures import ExitStatus
from forebay.cli.root import run
from forebay.records import WaitKind
from tests.support.load import until
from tests.support.processes import PythonProcess

WRITER = """
    import sys, numpy, forebay
    with forebay.open(sys.argv[1], "a", block_timeout=None) as stream:
        print("opened", flush=True)
        while True:
            with stream.step() as step:
                step["T"] = numpy.zeros(4 << 20, "u1")
            print(step.number, flush=True)
"""


def advised(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What the command prints for programs."""
    assert run(["advise", *arguments, "--json"]) == ExitStatus.OK
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_writer_that_waits_for_space_goes_on_by_the_line(
    reservation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{reservation}/flow"
    with forebay.open(path, "w", retention="consumers:plot") as stream, stream.step() as step:
        step["T"] = np.zeros(4 << 20, "u1")
    with (
        forebay.Admin() as admin,
        forebay.open(path) as reading,
        reading.follow("plot", ack="manual") as follower,
        PythonProcess(WRITER, path) as writer,
    ):
        next(follower).release()
        assert writer.line() == "opened"
        until(
            lambda: any(wait.kind is WaitKind.SPACE for wait in admin.stream(path).waits), "the writer waits for space"
        )
        answer = advised(capsys, path, "--seconds", "0.2")
        assert answer["gain_max"] == 1.0
        assert answer["verdict"].startswith("Worth doing: in 100 % of the looks a rank waited")
        action = answer["actions"][0]
        assert (action["rule"], action["what"][:48]) == (21, "Keep the newest steps only, for consumer plot is")
        assert "of space" in action["because"]
        newest = admin.stream(path).committed
        assert newest is not None
        assert run(shlex.split(action["lines"][0])[1:]) == ExitStatus.OK
        until(lambda: (admin.stream(path).committed or 0) > newest, "the writer goes on")


def test_an_ended_stream_is_judged_by_what_is_kept(reservation: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{reservation}/flow"
    with forebay.open(path, "w", checksums=False) as stream:
        for _ in range(3):
            with stream.step() as step:
                step["T"] = np.zeros(1000)
                step["U"] = np.zeros(10)
    answer = advised(capsys, f"forebay://{path}")
    assert answer["rules"] == [27]
    facts = answer["facts"]
    assert (facts["steps_written"], facts["blocks"], facts["small_blocks"]) == (3, 2, 1)
    assert (facts["waiting_share"], facts["blocks_without_checksum"]) == (None, 2)
    assert run(["advise", path]) == ExitStatus.OK
    text = capsys.readouterr().out
    assert text.startswith("Worth a look: nobody writes now")
    assert '  <parameter key="Checksums" value="true"/>\n' in text


def test_a_stream_without_a_step_has_nothing_to_judge(reservation: str, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(f"{reservation}/flow", "w"):
        answer = advised(capsys, f"{reservation}/flow", "--seconds", "0")
    assert (answer["rules"], answer["gain_max"]) == ([], 0.0)


def test_what_is_neither_a_log_nor_a_stream_is_an_error(reservation: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", f"{reservation}/flo"]) == ExitStatus.ERROR
    assert "flo" in capsys.readouterr().err
    assert run(["advise", reservation]) == ExitStatus.ERROR
    assert "a stream is named RES/STREAM" in capsys.readouterr().err
