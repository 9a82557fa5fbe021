# SPDX-License-Identifier: Apache-2.0
"""`forebay watch` of a reservation and of a stream: rates, lag, and who waits for what since when."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.processes import PythonProcess

pytestmark = pytest.mark.instance

BLOCKED = """
    import numpy, sys, forebay
    with forebay.open("run1/full", "w", retention="consumers:viz", block_timeout=None, rendezvous_readers=1) as stream:
        print("opened", flush=True)
        while True:
            with stream.step() as step:
                step["T"] = numpy.zeros(1 << 20, "u1")
"""
READER = """
    import sys, forebay
    with forebay.open("run1/full", timeout=60) as stream, stream.follow("viz") as follower:
        print("reads", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineInstance]:
    """One with an ended stream, and one whose writer a consumer blocks."""
    with (
        CommandLineInstance(tmp_path_factory.mktemp("watch") / "root") as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("FOREBAY_ROOT", str(running.root))
        running.ask("create", "run1", "--capacity", "16MiB")
        running.ask("create", "empty", "--capacity", "16MiB")
        with forebay.open("run1/done", "w") as stream:
            for number in range(3):
                with stream.step() as step:
                    step["n"] = number
        with PythonProcess(READER) as reader, PythonProcess(BLOCKED) as writer:
            assert (reader.line(), writer.line()) == ("reads", "opened")
            yield running


def blocked_lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    yield from process.stdout


def test_the_streams_of_a_reservation_and_who_waits(instance: CommandLineInstance) -> None:
    """Line by line for pipes, until it is ended."""
    with instance.start("watch", "run1", "--interval", "0.1") as watching:
        try:
            lines = []
            for line in blocked_lines(watching):
                lines.append(line)
                if "of space" in line:
                    break
        finally:
            watching.kill()
    assert any(line.startswith("run1/done ended committed=2") for line in lines)
    assert any(line.startswith("run1/full live") for line in lines)
    assert lines[-1].startswith("run1/full: rank 0, process ")
    assert "consumer viz" in lines[-1]
    assert ", since " in lines[-1]


def test_programs_get_rates_and_waits(instance: CommandLineInstance) -> None:
    """Once: the rates over one interval."""
    with instance.start("watch", "run1", "--interval", "0.1", "--json") as watching:
        try:
            for line in blocked_lines(watching):
                streams = {stream["name"]: stream for stream in json.loads(line)["streams"]}
                if any(wait["kind"] == "space" for wait in streams["full"]["waits"]):
                    break
        finally:
            watching.kill()
    (told,) = [json.loads(line) for line in instance.run("watch", "run1", "--once", "--json").stdout.splitlines()]
    streams = {stream["name"]: stream for stream in told["streams"]}
    assert (told["reservation"], sorted(streams)) == ("run1", ["done", "full"])
    assert streams["done"]["steps_per_second"] == 0.0
    assert streams["full"]["bytes_per_second"] == 0.0
    (wait,) = [wait for wait in streams["full"]["waits"] if wait["kind"] == "space"]
    assert wait["pid"] > 0
    assert wait["since_ns"] > 0


def test_a_reader_of_a_stream_that_nobody_has_made_is_shown(instance: CommandLineInstance) -> None:
    """For pipes and for programs."""
    with (
        PythonProcess("import forebay; forebay.open('empty/typo', timeout=None)") as waiting,
        instance.start("watch", "empty", "--interval", "0.1") as watching,
    ):
        try:
            line = next(blocked_lines(watching))
        finally:
            watching.kill()
        who = f"reader, process {waiting.pid}"
        assert line.startswith(f"empty/typo: {who} waits for a writer to make the stream, since ")
        told = json.loads(instance.run("watch", "empty", "--once", "--json").stdout)
        assert [(stream["name"], stream["waits"][0]["pid"]) for stream in told["awaited"]] == [("typo", waiting.pid)]
        waiting.send(signal.SIGKILL)


def test_people_get_tables(instance: CommandLineInstance) -> None:
    """On a terminal; of a stream likewise."""
    for what, words in (("run1", ("STEPS/S", "RATE", "LAG", "WHO WAITS", "FOR WHAT")), ("empty", ("no streams",))):
        ours, theirs = pty.openpty()
        environment = os.environ | instance.environment | {"COLUMNS": "200", "TERM": "xterm"}
        with subprocess.Popen(instance.command("watch", what, "--once"), env=environment, stdout=theirs) as watching:
            os.close(theirs)
            text = b""
            with open(ours, "rb", buffering=0) as terminal:
                try:
                    while chunk := terminal.read(4096):
                        text += chunk
                except OSError:  # The last process has closed it.
                    pass
            assert watching.wait(60) == 0
        assert all(word in text.decode() for word in words), text.decode()


def test_a_stream_tells_who_waits(instance: CommandLineInstance) -> None:
    with instance.start("watch", "run1/full", "--interval", "0.1") as watching:
        try:
            found = next(line for line in blocked_lines(watching) if "waits for" in line and "of space" in line)
        finally:
            watching.kill()
    assert found.startswith("run1/full: rank 0, process ")


def test_a_name_that_is_no_reservation_is_told(instance: CommandLineInstance) -> None:
    done = instance.run("watch", "run2", "--once")
    assert done.returncode == 1
    assert "did you mean run1?" in done.stderr


def test_why_tells_what_the_writers_of_a_stream_wait_for(instance: CommandLineInstance) -> None:
    until(lambda: "space" in instance.ask("why", "run1/full")["answers"][0]["ends"], "the writer to wait")
    (answer,) = instance.ask("why", "run1/full")["answers"]
    assert answer["subject"] == "stream run1/full"
    assert answer["state"].startswith("rank 0, process ")
    assert "of space" in answer["waits_for"]
    assert "viz" in answer["waits_for"]
    own, of_writer = instance.ask("why", "run1")["answers"]
    assert (own["subject"], own["waits_for"]) == ("reservation run1", "nothing itself; its streams do")
    assert of_writer == answer
    (idle,) = instance.ask("why", "run1/done")["answers"]
    assert (idle["state"], idle["waits_for"], idle["since_ns"]) == ("ended", "nothing", None)
    for name in ("run1/full", "run1", "run1/done"):
        assert "waits for" in instance.run("why", name).stdout
    refused = instance.run("why", "run1/fool")
    assert refused.returncode == 1
    assert "no such stream" in refused.stderr
