# SPDX-License-Identifier: Apache-2.0
"""`forebay advise` on the real logs that PyDarshan's wheel carries, and on what is no whole log."""

from __future__ import annotations

import json
import random
import re
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from forebay.cli.failures import ExitStatus
from forebay.errors import ForebayError, InvalidArgumentError
from forebay.workflows.advice.darshan_log import read_log
from tests.support.golden_logs import GOLDEN_LOGS
from tests.support.instance import CommandLineInstance
from tests.support.randomness import TEST_SEED, times

_SPEC = find_spec("darshan")
assert _SPEC is not None
assert _SPEC.origin is not None
WHEEL = Path(_SPEC.origin).parent
LOGS = WHEEL / "examples" / "example_logs"
INPUTS = WHEEL / "tests" / "input"


@pytest.mark.parametrize("name", GOLDEN_LOGS)
def test_the_facts_of_a_known_log_are_found(name: str) -> None:
    found, known = read_log(LOGS / name), GOLDEN_LOGS[name]
    for field in fields(known):
        value = getattr(known, field.name)
        if isinstance(value, float):
            assert getattr(found, field.name) == pytest.approx(value, rel=0.01), field.name
        elif field.name in ("tiny_file", "slow_target", "slow_rank"):
            assert _rounded(getattr(found, field.name)) == _rounded(value), field.name
        else:
            assert getattr(found, field.name) == value, field.name


def _rounded(part: object) -> list[object]:
    values = [] if part is None else [getattr(part, field.name) for field in fields(part)]  # type: ignore[arg-type]
    return [round(value, 1) if isinstance(value, float) else value for value in values]


@pytest.mark.parametrize(
    ("log", "rules", "begins"),
    [
        (LOGS / "example.darshan", [2, 5], "Worth doing: input and output take 42 %"),
        (LOGS / "sample-badost.darshan", [6, 12], "Worth doing: input and output take 4.4 %"),
        (INPUTS / "sample-goodost.darshan", [6], "Worth doing: input and output take 55 %"),
        (INPUTS / "noposixopens.darshan", [], "Do not bother: input and output take 0.1 %"),
        # MACSio: sieving and small independent writes of HDF5's metadata.
        (next(LOGS.glob("shane_macsio*")), [1, 2, 3, 4], "Worth doing: input and output take 33 %"),
        # One process that loads thousands of classes: nothing of it is shared.
        (LOGS / "dxt.darshan", [1, 2, 9, 13], "Worth doing: input and output take 100 %"),
    ],
    ids=lambda value: value.name[:20] if isinstance(value, Path) else "",
)
def test_the_command_judges_a_log(tmp_path: Path, log: Path, rules: list[int], begins: str) -> None:
    nobody = CommandLineInstance(tmp_path / "root")
    answer = nobody.ask("advise", str(log))
    assert answer["rules"] == rules
    assert answer["verdict"].startswith(begins)
    assert len(answer["actions"]) <= 3
    text = nobody.run("advise", str(log)).stdout
    assert text.startswith(begins)
    assert all(line in text for line in answer["lines"])


def test_a_log_that_cannot_judge_is_refused_with_the_reason(tmp_path: Path) -> None:
    nobody = CommandLineInstance(tmp_path / "root")
    done = nobody.run("advise", str(LOGS / "noposix.darshan"), "--json")
    assert done.returncode == ExitStatus.ERROR
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "invalid_argument"
    assert "it has no module POSIX, which counts reads and writes (it has: LUSTRE, STDIO)" in error["what"]
    assert len(error["what"]) < 300


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "run.darshan"
    text.write_text("no log\n")
    with pytest.raises(InvalidArgumentError, match="this is no Darshan log"):
        read_log(text)
    nobody = CommandLineInstance(tmp_path / "root")
    assert "cannot be read: No such file" in nobody.run("advise", str(tmp_path / "none.darshan")).stderr


@pytest.mark.timeout(300)
def test_a_damaged_log_is_an_error_or_is_judged_and_never_ends_the_command(tmp_path: Path) -> None:
    """PyDarshan's library dies on many of them: of 200 damaged copies of this log, on 80."""
    whole = (LOGS / "example.darshan").read_bytes()
    draw = random.Random(TEST_SEED)
    ends = {"error": 0, "judged": 0}
    for number in range(times(12)):
        damaged = bytearray(whole)
        if number % 2:
            del damaged[draw.randrange(400, len(whole)) :]
        else:
            damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path = tmp_path / f"{number}.darshan"
        path.write_bytes(damaged)
        try:
            assert read_log(path).processes > 0
            ends["judged"] += 1
        except ForebayError:
            ends["error"] += 1
    assert ends["error"] > 0


def test_a_log_that_kills_the_library_is_called_damaged(tmp_path: Path) -> None:
    """Cut off at some places, its records are taken for whole."""
    path = tmp_path / "cut.darshan"
    whole = (LOGS / "example.darshan").read_bytes()
    messages = []
    for length in range(1000, len(whole), 1000):
        path.write_bytes(whole[:length])
        try:
            read_log(path)
        except ForebayError as error:
            messages.append(str(error))
    assert any(
        re.match(r"PyDarshan's library died \(SIG[A-Z]+\) on this log: it is damaged", text) for text in messages
    )
