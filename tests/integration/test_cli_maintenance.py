# SPDX-License-Identifier: Apache-2.0
"""`forebay stream`, `forebay consumer` and `forebay tail` against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.cli import root
from forebay.cli.failures import ExitStatus

STEPS = 6

Told = Callable[..., dict[str, Any]]


@pytest.fixture
def flow(reservation: str) -> str:
    """An ended stream of six steps, of which the consumer `render` has passed three."""
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:
        for number in range(STEPS):
            with stream.step() as step:
                step["T"] = np.arange(4.0) + number
                step["time"] = 0.5 * number
                if number == 0:
                    step["mesh"] = np.arange(3)
    with forebay.open(address) as ended, ended.follow(consumer="render", ack="manual") as follower:
        for passed in follower:
            if passed.number == 3:
                break
            passed.ack()
    return address


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def ask(*arguments: str) -> dict[str, Any]:
        assert root.run([*arguments, "--json"]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return ask


def position(address: str, consumer: str = "render") -> int:
    with forebay.Admin() as admin:
        return next(known.position for known in admin.stream(address).consumers if known.name == consumer)


def test_a_consumer_is_moved_back_and_forth(flow: str, told: Told) -> None:
    assert position(flow) == 3
    moved = told("consumer", "reset", flow, "render")
    assert (moved["position_before"], moved["consumer"]["position"], moved["consumer"]["lag_steps"]) == (3, 0, STEPS)
    assert told("consumer", "seek", flow, "render", "5")["consumer"]["position"] == 5
    with forebay.open(flow) as stream:
        assert next(stream.follow(consumer="render")).number == 5


def test_a_consumer_is_moved_to_the_oldest_kept_step(flow: str, told: Told) -> None:
    told("stream", "retention", flow, "last:2")
    assert told("consumer", "reset", flow, "render")["consumer"]["position"] == STEPS - 2


def test_a_consumer_in_use_is_neither_moved_nor_removed(
    flow: str, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    with forebay.open(flow) as stream, stream.follow(consumer="render") as follower:
        assert next(follower).number == 3
        for command in (["reset", flow, "render"], ["seek", flow, "render", "0"], ["remove", flow, "render"]):
            assert root.run(["consumer", *command]) == ExitStatus.ERROR
            assert "process" in capsys.readouterr().err
    assert position(flow) == 3


def test_a_removed_consumer_is_gone(flow: str, told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told("stream", "retention", flow, "consumers:render")
    assert root.run(["consumer", "remove", flow, "rendr"]) == 0
    assert "there was no consumer rendr; did you mean render?" in capsys.readouterr().out
    assert root.run(["consumer", "remove", flow, "render"]) == 0
    assert "the retention still names it" in capsys.readouterr().out
    with forebay.Admin() as admin:
        assert admin.stream(flow).consumers == ()
    assert told("consumer", "remove", flow, "render")["existed"] is False


def test_retention_is_changed_and_takes_hold_at_once(flow: str, told: Told) -> None:
    assert told("stream", "retention", flow, "last:2") == {"stream": flow, "retention": "last:2", "before": "all"}
    with forebay.open(flow) as stream:
        assert [step.number for step in stream.steps()] == [4, 5]


def test_precious_steps_stay(flow: str, told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert told("stream", "precious", flow, "0,2:4")["steps"] == [0, 2, 3]
    told("stream", "retention", flow, "last:1")
    with forebay.open(flow) as stream:
        assert [step.number for step in stream.steps()] == [0, 2, 3, 5]
    assert root.run(["stream", "remove", flow]) == ExitStatus.ERROR
    assert "precious steps that are not staged out yet: 3" in capsys.readouterr().err
    # Those that were never there are no mistake where the mark is taken away.
    assert told("stream", "precious", flow, "0:4", "--not-precious")["steps"] == [0, 2, 3]
    assert told("stream", "remove", flow)["existed"] is True


def test_removing_a_stream_is_idempotent_and_tells_of_misspelt_names(flow: str, told: Told) -> None:
    typo = f"{flow[:-4]}flwo"
    assert told("stream", "remove", typo) == {"removed": typo, "existed": False, "near": ["flow"]}
    assert told("stream", "remove", flow) == {"removed": flow, "existed": True, "near": []}
    assert told("stream", "remove", flow)["existed"] is False


def test_a_stream_that_is_written_is_removed_only_by_force(
    reservation: str, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"{reservation}/live"
    writer = forebay.open(address, mode="w")
    writer.write("T", np.zeros(4))
    assert root.run(["stream", "remove", address]) == ExitStatus.ERROR
    assert "is being written" in capsys.readouterr().err
    assert told("stream", "remove", address, "--force")["existed"] is True
    with pytest.raises(forebay.ForebayError):
        writer.close()


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert root.run(["tail", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_tail_prints_a_line_for_each_step(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = lines(capsys, flow)
    assert [line.split()[0] for line in printed] == [str(number) for number in range(STEPS)]
    assert printed[2].endswith("T=2..5  time=1")
    assert printed[0].endswith("T=0..3  time=0  mesh=0..2")


def test_tail_shows_chosen_variables_of_the_last_steps(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = lines(capsys, flow, "--last", "2", "--variables", "mesh,T", "--no-follow")
    assert [line.split()[0] for line in printed] == ["4", "5"]
    assert printed[1].endswith("mesh=-  T=5..8")
    documents = [json.loads(line) for line in lines(capsys, flow, "--last", "1", "--variables", "mesh,time", "--json")]
    assert [document["step"] for document in documents] == [5]
    assert documents[0]["variables"] == {"mesh": None, "time": {"value": 2.5}}


def test_tail_follows_a_stream_until_it_ends(reservation: str) -> None:
    address = f"{reservation}/live"
    with forebay.open(address, mode="w") as stream:
        stream.write("T", np.arange(3.0))
        command = [sys.executable, "-m", "forebay", "tail", address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            assert tail.stdout.readline().endswith("T=0..2\n")
            stream.write("T", np.arange(3.0) + 1)
            assert tail.stdout.readline().endswith("T=1..3\n")
            stream.close()
            assert tail.stdout.readline() == ""
            assert tail.wait(60) == 0


def test_tail_of_an_interrupted_stream_says_so(reservation: str) -> None:
    address = f"{reservation}/lost"
    script = f"""
import os, forebay, numpy
stream = forebay.open({address!r}, mode="w", grace=0)
stream.write("T", numpy.zeros(3))
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "tail", address], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ExitStatus.INTERRUPTED_STREAM
    assert done.stdout.endswith("T=0..0\n")
    assert done.stderr.startswith("error: the writer group was lost")
