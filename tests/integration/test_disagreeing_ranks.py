# SPDX-License-Identifier: Apache-2.0
"""Ranks that say different things of one variable, and blocks that overlap or leave elements out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import adios2
import numpy as np
import pytest

import forebay
import forebay.adios2
from forebay.cli import root
from tests.support.processes import PythonProcess

Write = Callable[[Any], None]


def in_both(address: str, first: Write, second: Write) -> list[BaseException | None]:
    """Two ranks of one group, each with its part of one step; what it came to."""
    results: list[BaseException | None] = [None, None]

    def write(rank: int, put: Write) -> None:
        with forebay.open(address, mode="w", rank=rank, ranks=2, group="g") as stream:
            try:
                with stream.step() as step:
                    put(step)
            except forebay.ForebayError as error:
                results[rank] = error
            # The group goes on: nothing of the refused step is left.
            with stream.step() as step:
                step.write("good", np.full(2, rank), shape=[4], start=[2 * rank])

    threads = [threading.Thread(target=write, args=(rank, put)) for rank, put in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def block(dtype: type, shape: list[int], start: list[int]) -> Write:
    return lambda step: step.write("T", np.ones([2] * len(shape), dtype), shape=shape, start=start)


@pytest.mark.parametrize(
    ("first", "second", "what", "said"),
    [
        (block(np.float64, [4], [0]), block(np.float32, [4], [2]), "types", ("of float64, 4", "of float32, 4")),
        (block(np.float64, [4], [0]), block(np.float64, [6], [2]), "shapes", ("float64, 4;", "float64, 6")),
        (block(np.float64, [4], [0]), block(np.float64, [4, 4], [2, 0]), "numbers of dimensions", ("4;", "4 x 4")),
        (
            block(np.float64, [4], [0]),
            lambda step: step.write("T", np.ones(2), kind="local_array"),
            "kinds of shape",
            ("global array of float64", "local array of float64, 1 dimension"),
        ),
        (block(np.float64, [4], [0]), lambda step: step.__setitem__("T", 1.0), "kinds of shape", ("single value",)),
        (lambda step: step.__setitem__("T", "a"), lambda step: step.__setitem__("T", 1), "types", ("string", "int64")),
    ],
)
def test_step_of_ranks_that_disagree_is_refused_for_all(
    reservation: str, first: Write, second: Write, what: str, said: tuple[str, ...]
) -> None:
    address = f"{reservation}/flow"
    errors = in_both(address, first, second)
    for error in errors:
        assert isinstance(error, forebay.InvalidArgumentError)
        assert f"variable T with different {what}: rank 0 says " in str(error)
        assert "rank 1 says" in str(error)
        for text in said:
            assert text in str(error)
        assert len(str(error)) < 300
    with forebay.open(address) as stream:
        assert len(stream.steps()) == 1
        np.testing.assert_array_equal(stream[0]["good"][...], [0, 0, 1, 1])


def test_step_is_refused_whatever_the_steps_before_were(reservation: str) -> None:
    """What was agreed on is not compared again, and what changes is."""

    def rank(number: int, shapes: list[int], results: list[str]) -> None:
        with forebay.open(f"{reservation}/flow", mode="w", rank=number, ranks=2, group="g") as stream:
            for shape in shapes:
                try:
                    with stream.step() as step:
                        step.write("T", np.full(1, number), shape=[shape], start=[number])
                        step.write(f"own {number}", np.ones(1), kind="local_array")
                    results.append("committed")
                except forebay.InvalidArgumentError:
                    results.append("refused")

    told: list[list[str]] = [[], []]
    threads = [
        threading.Thread(target=rank, args=(0, [2, 2, 3, 2, 2], told[0])),
        threading.Thread(target=rank, args=(1, [2, 2, 3, 4, 2], told[1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert told == [["committed", "committed", "committed", "refused", "committed"]] * 2


def test_ranks_of_adios2_are_told_both(reservation: str) -> None:
    program = """
        import sys, numpy as np, adios2, forebay.adios2
        rank = int(sys.argv[2])
        io = adios2.Adios().declare_io("writer")
        forebay.adios2.configure(io, sys.argv[1], Rank=rank, Ranks=2)
        engine = io.open("flow", adios2.bindings.Mode.Write)
        data = np.ones(2, np.float64 if rank == 0 else np.int32)
        variable = io.define_variable("T", data, [4], [2 * rank], [2])
        engine.begin_step()
        engine.put(variable, data, adios2.bindings.Mode.Sync)
        try:
            engine.end_step()
        except ValueError as error:
            print(error)
        engine.close()
    """
    with ExitStack() as stack:
        ranks = [stack.enter_context(PythonProcess(program, f"{reservation}/flow", str(rank))) for rank in (0, 1)]
        for process in ranks:
            told = process.succeed()
            assert "rank 0 says global array of float64, 4; rank 1 says global array of int32, 4" in told
    with forebay.Admin() as admin:
        assert admin.steps(f"{reservation}/flow") == []
        assert admin.stream(f"{reservation}/flow").status is forebay.StreamStatus.ENDED


HALF = """
    import sys, numpy as np, adios2, forebay.adios2
    # A serial program: each of the processes that a launcher starts writes its first half.
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, sys.argv[1])
    with adios2.Stream(io, "flow", "w") as stream:
        for number in range(2):
            stream.begin_step()
            stream.write("T", np.arange(4.0), [8], [0], [4])
            stream.write("whole", np.arange(4.0), [4], [0], [4])
            stream.end_step()
"""


def test_serial_program_under_a_launcher_is_noticed(
    reservation: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"{reservation}/flow"
    with ExitStack() as stack:
        started = []
        for rank in (0, 1):
            monkeypatch.setenv("PMI_RANK", str(rank))
            monkeypatch.setenv("PMI_SIZE", "2")
            started.append(stack.enter_context(PythonProcess(HALF, address)))
        for name in ("PMI_RANK", "PMI_SIZE"):
            monkeypatch.delenv(name)
        for process in started:
            process.succeed()
    gap = "no block covers 4 of its 8 elements; blocks of ranks 0 and 1 overlap"
    with forebay.open(address) as stream:
        with pytest.warns(forebay.FaultyVariableWarning, match=gap):
            read = stream[0]["T"][...]
        np.testing.assert_array_equal(read, [0, 1, 2, 3, 0, 0, 0, 0])
        assert stream[0]["T"].fault == gap
        assert stream.steps_at([1])[0]["T"].fault == gap
        with pytest.warns(forebay.FaultyVariableWarning, match=r"'whole'.*: blocks of ranks 0 and 1 overlap"):
            stream[0]["whole"][...]
    capfd.readouterr()
    assert root.run(["show", address]) == 0
    assert f"Variable T: {gap}" in capfd.readouterr().out
    assert root.run(["show", address, "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert {variable["name"]: variable["fault"] for variable in facts["variables"]} == {
        "T": gap,
        "whole": "blocks of ranks 0 and 1 overlap",
    }
    with forebay.Admin() as admin:
        (told,) = [found for found in admin.audit(read_data=True) if "variable T:" in found.what]
    assert told.what.startswith(f"step 0 and 1 others: variable T: {gap}")
    assert told.severity is forebay.Severity.NOTE
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, address, random_access=False)
    capfd.readouterr()
    with adios2.Stream(io, "flow", "r") as reader:
        for step in reader:
            np.testing.assert_array_equal(step.read("T"), [0, 1, 2, 3, 0, 0, 0, 0])
    assert capfd.readouterr().err.count(f"variable T of stream {address}, step 0: {gap}") == 1
