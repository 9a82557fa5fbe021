# SPDX-License-Identifier: Apache-2.0
"""Streams that are derived by expressions: values, numbers, blocks, what is skipped, and what is taken back."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numexpr
import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.connectors.derive import Progress, SkippedSteps, derive
from forebay.datatypes import ShapeKind
from forebay.errors import (
    BusyError,
    InvalidArgumentError,
    RefusedError,
    StreamInterruptedError,
    UnsupportedError,
    VariableNotFoundError,
)
from tests.support.load import until
from tests.support.time_limits import seconds

DOUBLE = "d = n * 2"


def write_numbers(address: str, values: dict[int, int], mode: Any = "w", **options: Any) -> None:
    """A step with the single element ``n`` for each number."""
    with forebay.open(address, mode, **options) as stream:
        for number, value in values.items():
            with stream.step(number) as step:
                step["n"] = np.array([value])


def numbers(address: str, name: str = "d") -> dict[int, int]:
    """The element of each kept step."""
    with forebay.open(address, timeout=0) as stream:
        return {step.number: int(step[name][0]) for step in stream}


def source_epochs(address: str) -> list[int]:
    with forebay.open(address, timeout=0) as stream:
        return [int(step.attributes["derived_source_epoch"]) for step in stream]


@pytest.fixture
def flow(reservation: str) -> str:
    return f"{reservation}/flow"


@pytest.fixture
def out(reservation: str) -> str:
    return f"{reservation}/derived"


def random(shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 1) -> NDArray[Any]:
    return (np.random.default_rng(seed).random(shape) * 100).astype(dtype)


@pytest.mark.parametrize("kept_bytes_max", [0, 1 << 20], ids=["into_the_step", "into_kept_memory"])
def test_values_are_those_of_numexpr_and_numpy_and_blocks_stay(
    flow: str, out: str, kept_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.connectors.derive.evaluation._KEPT_BYTES_MAX", kept_bytes_max)
    fields = {name: random((30, 50), np.float32, seed) for seed, name in enumerate("uvw")}
    with forebay.open(flow, "w") as stream:
        for number in (7, 8, 20):
            with stream.step(number) as step:
                step["time"] = number / 10
                step["label"] = "run"
                step.attributes["time/units"] = "s"
                step.attributes["case"] = "cylinder"
                step.attributes["vtk.xml"] = "<VTKFile/>"
                for name, field in fields.items():
                    for rows in (slice(0, 11), slice(11, 30)):
                        step.write(
                            name, field[rows] + number, shape=field.shape, start=(rows.start, 0), dims=("y", "x")
                        )
    progress = derive(flow, out, expressions="speed = sqrt(u*u + v*v + w*w)")
    assert (progress.steps, progress.last, progress.skipped) == (3, 20, 0)
    with forebay.open(out, timeout=0) as derived:
        assert derived.info.status == "ended"
        assert [step.number for step in derived] == [7, 8, 20]
        for read in derived:
            u, v, w = (field + np.float32(read.number) for field in fields.values())
            speed = read["speed"]
            assert speed.dtype == np.float32
            np.testing.assert_array_equal(speed[...], np.sqrt(u * u + v * v + w * w))
            np.testing.assert_array_equal(speed[...], numexpr.evaluate("sqrt(u*u + v*v + w*w)"))
            assert [(block.start, block.count) for block in speed.blocks] == [((0, 0), (11, 50)), ((11, 0), (19, 50))]
            assert speed.dims == ("y", "x")
            assert (read["time"][()], read["label"].item()) == (read.number / 10, "run")
            assert read["time"].attributes["units"] == "s"
            assert read.variables == ["time", "label", "speed"]
            attributes = read.attributes
            assert attributes["case"] == "cylinder"
            assert "vtk.xml" not in attributes
            assert attributes["derived_source"] == flow
            assert attributes["derived_operations"] == ("speed = sqrt(u*u + v*v + w*w)",)
            assert attributes["derived_version"] == forebay.__version__
            assert attributes["derived_source_epoch"] == 1
            read.verify()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("r = i / 3", lambda a: a["i"] / 3),
        ("r = i * 3 - 1", lambda a: a["i"] * 3 - 1),
        ("r = f > 50", lambda a: (a["f"] > 50).astype(np.uint8)),
        ("r = where(f > 50, d, -d)", lambda a: np.where(a["f"] > 50, a["d"], -a["d"])),
        ("r = 4 ** (f * 0)", lambda a: 4 ** (a["f"] * 0)),
        ("r = d ** 2 + scale", lambda a: a["d"] ** 2 + 2.5),
        ("r = real(z) + imag(z)", lambda a: a["z"].real + a["z"].imag),
        ("r = f + d", lambda a: a["f"] + a["d"]),
        ("r = b + 1", lambda a: a["b"].astype(np.int32) + 1),
    ],
)
def test_types_are_those_that_the_expression_gives(
    flow: str, out: str, expression: str, expected: Callable[[dict[str, Any]], NDArray[Any]]
) -> None:
    arrays: dict[str, Any] = {
        "i": random((9, 5), np.int64),
        "f": random((9, 5), np.float32),
        "d": random((9, 5)),
        "z": random((9, 5)) + 1j * random((9, 5), seed=2),
        "b": random((9, 5), np.uint8),
    }
    with forebay.open(flow, "w") as stream, stream.step() as step:
        step["scale"] = 2.5
        for name, array in arrays.items():
            step[name] = array
    derive(flow, out, expressions=expression)
    with forebay.open(out, timeout=0) as derived:
        result = derived[0]["r"][...]
    np.testing.assert_array_equal(result, expected(arrays))
    assert result.dtype == expected(arrays).dtype


def test_every_kind_of_array_keeps_its_blocks(flow: str, out: str) -> None:
    part = random((4, 3))
    with forebay.open(flow, "w") as stream, stream.step() as step:
        for name in ("a", "b"):
            for rows in (1, 0, 4):  # one of them is empty
                step.write(f"local_{name}", part[:rows], kind="local_array")
            step.write(f"joined_{name}", part, shape=(forebay.joined_dimension, 3))
            step.write(f"joined_{name}", part[:2], shape=(forebay.joined_dimension, 3))
        # Another decomposition.
        step.write("joined_c", np.concatenate([part, part[:2]]))
        step["one"] = 1.5
    derive(
        flow,
        out,
        expressions=["local = local_a + local_b", "joined = joined_a * joined_c", "single = one * 2"],
    )
    with forebay.open(out, timeout=0) as derived:
        step_read = derived[0]
        local = step_read["local"]
        assert local.kind is ShapeKind.LOCAL_ARRAY
        assert [block.count for block in local.blocks] == [(1, 3), (0, 3), (4, 3)]
        np.testing.assert_array_equal(local.block(2), part + part)
        whole = np.concatenate([part, part[:2]])
        np.testing.assert_array_equal(step_read["joined"][...], whole * whole)
        assert [block.count for block in step_read["joined"].blocks] == [(4, 3), (2, 3)]
        assert step_read["single"].item() == 3.0
        assert step_read["single"].kind is ShapeKind.GLOBAL_VALUE


def test_what_cannot_be_computed_is_refused_with_what_to_do(flow: str, out: str) -> None:
    with forebay.open(flow, "w") as stream, stream.step() as step:
        step["a"] = np.zeros((2, 3))
        step["b"] = np.zeros((3, 2))
        step["text"] = "text"
        step["big"] = np.zeros(3, np.uint64)
        step.write("local", np.zeros(3), kind="local_array")
    for expression, kind, advice in [
        ("r = a + b", InvalidArgumentError, r"\(2, 3\)"),
        ("r = a + local", InvalidArgumentError, "1 local blocks"),
        ("r = a + text", UnsupportedError, "--with"),
        ("r = big + 1", UnsupportedError, "uint64"),
        ("r = a + c", VariableNotFoundError, "no variable 'c'"),
        ("r = ~a", InvalidArgumentError, "numexpr cannot"),
        ("r = a +", InvalidArgumentError, "cannot be read"),
    ]:
        with pytest.raises(kind, match=advice) as refused:
            derive(flow, out, expressions=expression)
        assert len(str(refused.value)) < 300
    with pytest.raises(InvalidArgumentError, match="from itself"):
        derive(flow, flow, expressions="r = a")
    with pytest.raises(InvalidArgumentError, match="two expressions"):
        derive(flow, out, expressions=["r = a", "r = b"])
    with pytest.raises(InvalidArgumentError, match="nothing is to be derived"):
        derive(flow, out)
    with pytest.raises(InvalidArgumentError, match="no option 'expression'"):
        derive(flow, out, expression="r = a")
    with pytest.raises(RefusedError, match="not derived"):
        derive(out, flow, expressions="r = a", timeout=5)


def test_started_again_it_continues_and_refuses_other_work(flow: str, out: str, reservation: str) -> None:
    write_numbers(flow, {0: 1, 1: 2})
    assert derive(flow, out, expressions=DOUBLE).steps == 2
    assert derive(flow, out, expressions=DOUBLE).steps == 0
    write_numbers(flow, {2: 3, 5: 4}, "a")
    again = derive(flow, out, expressions=DOUBLE)
    assert (again.steps, again.last, again.skipped) == (2, 5, 0)
    assert numbers(out) == {0: 2, 1: 4, 2: 6, 5: 8}
    with pytest.raises(RefusedError, match="derived by d = n"):
        derive(flow, out, expressions="d = n * 3")
    with forebay.Admin() as admin:
        admin.remove_stream(flow)
    write_numbers(flow, {0: 1})
    with pytest.raises(RefusedError, match="--replace"):
        derive(flow, out, expressions=DOUBLE)
    assert derive(flow, out, expressions="d = n * 3", replace=True).steps == 1
    assert numbers(out) == {0: 3}


def test_steps_that_the_source_took_back_are_taken_back(flow: str, out: str) -> None:
    write_numbers(flow, {number: number for number in range(10)})
    derive(flow, out, expressions=DOUBLE)
    write_numbers(flow, {5: 50, 6: 60}, "a", append_after=4)
    progress = derive(flow, out, expressions=DOUBLE)
    assert (progress.steps, progress.withdrawn) == (2, 1)
    assert numbers(out) == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8, 5: 100, 6: 120}
    assert source_epochs(out) == [1, 1, 1, 1, 1, 2, 2]
    # Taken back and not written again so far.
    write_numbers(flow, {}, "a", append_after=2)
    assert derive(flow, out, expressions=DOUBLE).steps == 0
    assert list(numbers(out)) == [0, 1, 2]


def test_a_replaced_source_leaves_no_old_step_even_if_it_is_longer_now(flow: str, out: str) -> None:
    """The source keeps no step by which one could see that its epoch began below the derived ones."""
    write_numbers(flow, {number: number for number in range(6)})
    derive(flow, out, expressions=DOUBLE)
    write_numbers(flow, dict.fromkeys(range(20), 100), retention="last:2")
    told: list[SkippedSteps] = []
    progress = derive(flow, out, expressions=DOUBLE, on_skip=told.append)
    assert numbers(out) == {18: 200, 19: 200}
    assert (progress.withdrawn, progress.skipped) == (1, 18)
    assert [(one.first, one.last, one.count) for one in told] == [(0, 17, 18)]
    assert "dropped" in told[0].reason


def in_thread(*arguments: Any, **options: Any) -> tuple[threading.Thread, list[Any]]:
    """A derivation that runs; the list gets its result or its error."""
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(derive(*arguments, **options))
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, ended


def committed(address: str) -> int | None:
    with forebay.Admin() as admin:
        return next((info.committed for info in admin.streams(address.partition("/")[0]) if info.name in address), None)


def test_a_live_source_that_is_rewound_takes_derived_steps_and_their_readers_along(flow: str, out: str) -> None:
    first = forebay.open(flow, "w", grace=60)
    thread, ended = in_thread(flow, out, expressions=DOUBLE, grace=60)
    for number in range(6):
        first.write("n", np.array([number]))
    until(lambda: committed(out) == 5, "all are derived")
    seen: list[tuple[int, int, bool]] = []
    with forebay.open(out) as derived, derived.follow(timeout=seconds(100)) as follower:
        for _ in range(6):
            step = next(follower)
            seen.append((step.number, int(step["d"][0]), step.rewound))
        first.abandon()
        write_numbers(flow, {3: 30, 4: 40}, "a", append_after=2)
        seen += [(step.number, int(step["d"][0]), step.rewound) for step in follower]
    thread.join(100)
    assert [progress.withdrawn for progress in ended] == [1]
    assert seen == [(number, 2 * number, False) for number in range(6)] + [(3, 60, True), (4, 80, False)]
    assert numbers(out) == {0: 0, 1: 2, 2: 4, 3: 60, 4: 80}


def test_a_slow_operator_never_slows_the_producer_and_says_what_it_skips(flow: str, out: str) -> None:
    begun, gate = threading.Event(), threading.Event()

    def slow(progress: Progress, step: forebay.Step) -> None:
        begun.set()
        assert gate.wait(100)

    with forebay.open(flow, "w", retention="last:2", when_full="error") as stream:
        thread, ended = in_thread(flow, out, expressions=DOUBLE, on_progress=slow)
        stream.write("n", np.array([0]))
        assert begun.wait(100)
        for number in range(1, 40):
            stream.write("n", np.array([number]))
        gate.set()
    thread.join(100)
    [progress] = ended
    assert numbers(out) == {0: 0, 38: 76, 39: 78}
    assert progress.skipped == 37
    assert [(one.first, one.last) for one in progress.skipped_steps] == [(1, 37)]
    with forebay.open(out, timeout=0) as derived:
        assert [step.skipped for step in derived.follow(start="oldest")] == [0, 0, 0]


def test_retention_and_consumers_are_those_of_an_ordinary_stream(flow: str, out: str, reservation: str) -> None:
    write_numbers(flow, {number: number for number in range(8)}, retention="consumers:derive")
    progress = derive(flow, out, expressions=DOUBLE, consumer="derive", retention="last:3")
    assert (progress.steps, progress.skipped) == (8, 0)
    assert list(numbers(out)) == [5, 6, 7]
    with forebay.Admin() as admin:
        assert admin.stream(flow).steps == 0
    # Of a stream that its consumers have emptied the newest stays, to tell what it comes from.
    write_numbers(f"{reservation}/second", {0: 1, 1: 2})
    derive(f"{reservation}/second", f"{reservation}/third", expressions=DOUBLE, retention="consumers:viewer")
    with forebay.open(f"{reservation}/third", timeout=0) as third:
        assert str(third.info.retention) == "last:1,consumers:viewer"
        assert [step.number for step in third.follow("viewer")] == [0, 1]
    assert list(numbers(f"{reservation}/third")) == [1]


def test_a_step_without_the_variable_is_skipped_where_others_have_it(flow: str, out: str) -> None:
    with forebay.open(flow, "w") as stream:
        for number in range(4):
            stream.write("m" if number == 2 else "n", np.array([number]))
    progress = derive(flow, out, expressions=DOUBLE)
    assert list(numbers(out)) == [0, 1, 3]
    assert (progress.steps, progress.skipped) == (3, 1)
    assert "without the variable 'n'" in progress.skipped_steps[0].reason


def test_variables_are_copied_and_derived_streams_derived_again(flow: str, out: str, reservation: str) -> None:
    write_numbers(flow, {3: 5})
    derive(flow, out, expressions=DOUBLE, variables=["n"])
    derive(out, f"{reservation}/copy", variables=["d"])
    assert numbers(f"{reservation}/copy") == {3: 10}
    with pytest.raises(VariableNotFoundError, match="'absent'"):
        derive(flow, f"{reservation}/none", variables=["absent"])


def test_one_derives_a_stream_at_a_time(flow: str, out: str) -> None:
    with forebay.open(flow, "w") as stream:
        thread, ended = in_thread(flow, out, expressions=DOUBLE)
        stream.write("n", np.array([1]))
        until(lambda: committed(out) == 0, "it is at work")
        with pytest.raises(BusyError):
            derive(flow, out, expressions=DOUBLE)
    thread.join(100)
    assert ended[0].steps == 1


def test_an_interrupted_source_interrupts_the_derived_stream_and_the_next_call_continues(flow: str, out: str) -> None:
    with forebay.open(flow, "w", grace=0) as stream:
        stream.write("n", np.array([1]))
        stream.abandon()
    with pytest.raises(StreamInterruptedError):
        derive(flow, out, expressions=DOUBLE)
    with forebay.Admin() as admin:
        info = admin.stream(out)
    assert info.status == "interrupted"
    assert "StreamInterruptedError" in info.status_text
    write_numbers(flow, {1: 2}, "a")
    assert derive(flow, out, expressions=DOUBLE).steps == 1
    assert numbers(out) == {0: 2, 1: 4}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "derive", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds(100), check=False)


def test_the_command_tells_what_it_did(flow: str, out: str) -> None:
    write_numbers(flow, {0: 1, 4: 2})
    done = run(flow, out, "--let", "a=n", "--expr", "d = a * 2", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "source": flow,
        "output": out,
        "derived": 2,
        "last": 4,
        "skipped": 0,
        "skipped_steps": [],
        "withdrawn": 0,
    }
    write_numbers(flow, {number: number for number in range(5, 12)}, "a", retention="last:1")
    done = run(flow, out, "--let", "a=n", "--expr", "d = a * 2")
    assert done.stdout == f"{out}: 1 steps derived, 6 skipped, up to step 11\n"
    assert "steps 5 to 10 skipped: dropped before it was read" in done.stderr
    assert numbers(out) == {0: 2, 4: 4, 11: 22}
    refused = run(flow, out, "--expr", "d = n.x")
    assert refused.returncode == 1
    assert "--let u=velocity/u" in refused.stderr
