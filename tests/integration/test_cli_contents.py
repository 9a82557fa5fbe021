# SPDX-License-Identifier: Apache-2.0
"""`forebay show RES/STREAM` and `forebay dump`: what they print of a real step, and what they say where they cannot."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.cli import root


@pytest.fixture
def flow(reservation: str) -> str:
    """Two steps with each kind of variable."""
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:
        stream.attributes["T/units"] = "K"
        for number in range(2):
            with stream.step() as step:
                whole = np.arange(24.0).reshape(4, 6) + number
                for row in (0, 2):
                    step.write("T", whole[row : row + 2], shape=(4, 6), start=(row, 0), dims=("y", "x"))
                step["time"] = 0.5 * number
                step["label"] = "warm"
                step["broken"] = np.array([np.nan, np.inf, 1.0])
                step["wave"] = np.array([1 + 2j])
                step.write("pieces", np.arange(3), kind="local_array")
    return address


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert root.run([*arguments, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert root.run(list(arguments)) == 1
    return capsys.readouterr().err


def test_show_lists_variables_and_attributes_of_the_newest_step(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["show", flow]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["Stream", flow + ",", "ended,", "2", "steps"]
    assert lines[1].split() == ["Step", "1,", "epoch", "1"]
    rows = {line.split()[0]: line.split() for line in lines[4:]}
    assert rows["T"][1:] == ["float64", "global_array", "4", "x", "6", "y,", "x", "2", "1", "24"]
    assert rows["time"][-1] == "0.5"
    assert rows["label"][1:] == ["string", "global_value", "1", "warm"]
    assert rows["T/units"] == ["T/units", "K"]


def test_show_of_a_step_as_json(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = told(capsys, "show", f"{flow}@0")
    assert answer["stream"]["status"] == "ended"
    assert answer["step"]["number"] == 0
    variables = {variable["name"]: variable for variable in answer["variables"]}
    assert variables["T"]["blocks"][1]["start"] == [2, 0]
    assert (variables["T"]["min"], variables["T"]["max"]) == (0.0, 23.0)
    assert variables["label"]["value"] == "warm"
    assert variables["pieces"]["kind"] == "local_array"
    assert answer["attributes"]["T/units"] == "K"


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("1, 2", 8.0),
        ("-1", [18.0, 19.0, 20.0, 21.0, 22.0, 23.0]),
        ("[::2, ..., 0]", [0.0, 12.0]),
        ("3, ::-2", [23.0, 21.0, 19.0]),
        ("1:1", []),
    ],
)
def test_dump_takes_numpy_s_index(flow: str, capsys: pytest.CaptureFixture[str], index: str, expected: object) -> None:
    assert told(capsys, "dump", f"{flow}@0", "T", f"--slice={index}")["elements"] == expected


def test_dump_takes_the_index_behind_the_name(reservation: str, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(f"{reservation}/odd", mode="w") as stream, stream.step() as step:
        step["T"] = np.arange(6.0)
        step["T[0]"] = np.arange(3.0)
    assert told(capsys, "dump", f"{reservation}/odd", "T[1:3]")["elements"] == [1.0, 2.0]
    # A name is taken as it is before it is taken apart.
    assert told(capsys, "dump", f"{reservation}/odd", "T[0]")["elements"] == [0.0, 1.0, 2.0]
    assert told(capsys, "dump", f"{reservation}/odd", "T[0]", "--slice", "1")["elements"] == 1.0
    assert told(capsys, "dump", f"{reservation}/odd", "T[0][2]")["variable"] == "T[0]"


def test_show_of_a_stream_without_steps(reservation: str, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(f"{reservation}/new", mode="w"):
        answer = told(capsys, "show", f"{reservation}/new")
        assert (answer["stream"]["status"], answer["step"]) == ("live", None)
        assert root.run(["show", f"{reservation}/new"]) == 0
        assert "there is none yet" in capsys.readouterr().out


def test_dump_of_blocks_texts_and_odd_numbers(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "dump", flow, "T", "--block", "1", "--slice", "0")["elements"][0] == 13.0
    assert told(capsys, "dump", flow, "pieces", "--block", "0")["elements"] == [0, 1, 2]
    assert told(capsys, "dump", flow, "label")["elements"] == "warm"
    assert told(capsys, "dump", flow, "broken")["elements"] == ["nan", "inf", 1.0]
    assert told(capsys, "dump", flow, "wave")["elements"] == ["(1+2j)"]
    assert root.run(["dump", flow, "T", "--slice", "0"]) == 0
    assert capsys.readouterr().out == "[1. 2. 3. 4. 5. 6.]\n"


def test_what_is_not_there_is_told(flow: str, reservation: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no variable 'p'" in failed(capsys, "dump", flow, "p")
    assert "out of bounds" in failed(capsys, "dump", flow, "T", "--slice", "9")
    assert "too many indices" in failed(capsys, "dump", flow, "T", "--slice", "0,0,0")
    assert "an index is as in NumPy" in failed(capsys, "dump", flow, "T", "--slice", "a:b")
    assert "an index is as in NumPy" in failed(capsys, "dump", flow, "T[a:b]")
    assert "an index is as in NumPy" in failed(capsys, "dump", flow, "T", "--slice", "9" * 5000)
    assert "step of 0" in failed(capsys, "dump", flow, "T", "--slice", "::0")
    assert "no such step now" in failed(capsys, "show", f"{flow}@9")
    assert "local array" in failed(capsys, "dump", flow, "pieces")
    assert root.run(["dump", flow, "T", "--block", "7"]) == 1
    assert root.run(["show", f"{reservation}/none"]) == 1
