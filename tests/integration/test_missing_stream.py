# SPDX-License-Identifier: Apache-2.0
"""Opening a stream that does not exist: who waits long is told for what, and names that are near are suggested."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import forebay
from forebay.cli.root import run
from forebay.manager.jobs import StepsJob, job_to_json


def write(address: str) -> None:
    """A stream of one step."""
    with forebay.open(address, "w") as stream, stream.step() as step:
        step["n"] = 1


@contextmanager
def on_wait(act: Callable[[], None]) -> Iterator[list[str]]:
    """What the library says of long waits; with the first of it, the action begins in another thread."""
    told: list[str] = []
    thread = threading.Thread(target=act)

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            if len(told) == 1:
                thread.start()

    handler = Telling()
    logger = logging.getLogger("forebay.waiting")
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)
        if told:
            thread.join()


@pytest.mark.parametrize(("timeout", "limit"), [(None, ""), (60, r", for another 5\d s")])
def test_a_long_wait_is_told_once_with_near_names(reservation: str, timeout: float | None, limit: str) -> None:
    write(f"{reservation}/flaw")
    with (
        on_wait(lambda: write(f"{reservation}/flow")) as told,
        forebay.open(f"{reservation}/flow", timeout=timeout) as stream,
    ):
        assert [step.number for step in stream.follow(timeout=60)] == [0]
    (text,) = told
    assert re.fullmatch(
        rf"stream {reservation}/flow does not exist; waiting for a writer to make it{limit}; did you mean "
        rf"{reservation}/flaw\?",
        text,
    )


def test_what_exists_is_opened_in_silence(reservation: str, caplog: pytest.LogCaptureFixture) -> None:
    write(f"{reservation}/flow")
    with caplog.at_level(logging.DEBUG), forebay.open(f"{reservation}/flow", timeout=None):
        pass
    assert caplog.records == []


def test_the_error_suggests_what_may_have_been_meant(reservation: str) -> None:
    write(f"{reservation}/flow")
    with pytest.raises(forebay.StreamNotFoundError, match=rf"; did you mean {reservation}/flow\?"):
        forebay.open(f"{reservation}/flwo", timeout=0)
    with pytest.raises(forebay.StreamNotFoundError, match=rf"; did you mean {reservation}/flow\?"):
        forebay.open(f"{reservation}x/flow", timeout=0)
    with pytest.raises(forebay.StreamNotFoundError) as told:
        forebay.open(f"{reservation}/pressure", timeout=0)
    assert "did you mean" not in told.value.what


def test_commands_that_do_not_wait_suggest_names(reservation: str, capfd: pytest.CaptureFixture[str]) -> None:
    write(f"{reservation}/flow")
    for line, near in [
        (f"watch {reservation}/flwo --once", "flow"),
        (f"steps {reservation}/flwo", "flow"),
        (f"tail {reservation}/flwo", f"{reservation}/flow"),
        (f"steps {reservation}x/flow", reservation),
        (f"show {reservation}x", reservation),
    ]:
        assert run(line.split()) == 1
        assert f"; did you mean {near}?" in capfd.readouterr().err, line


def test_a_program_is_told_on_standard_error(reservation: str) -> None:
    """Whatever it did about logging: nothing."""
    code = (
        f"import forebay\ntry: forebay.open('{reservation}/flow', timeout=3)\nexcept forebay.StreamNotFoundError: pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr.startswith(f"stream {reservation}/flow does not exist; waiting for a writer to make it, for")
    assert len(done.stderr.splitlines()) == 1


def test_a_stage_that_waits_for_its_stream_notes_it(reservation: str, tmp_path: Path) -> None:
    job = job_to_json(StepsJob(f"{reservation}/flow", str(tmp_path / "out"), follow=True))
    command = [sys.executable, "-m", "forebay.workflows.staging", json.dumps(job)]
    events = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stager:
        assert stager.stdout is not None
        for line in stager.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "note":
                write(f"{reservation}/flow")
    assert [event["text"] for event in events if event["event"] == "note"] == [
        f"stream {reservation}/flow does not exist; waiting for a writer to make it"
    ]
    assert events[-1]["event"] == "done"
    assert events[-1]["result"]["staged"] == [0]
