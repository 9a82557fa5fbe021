# SPDX-License-Identifier: Apache-2.0
"""Single values behave as numbers and texts, arrays as NumPy's; what a step is known by."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import forebay

ARRAY = np.arange(12.0).reshape(3, 4) - 5


@pytest.fixture
def step(reservation: str) -> forebay.Step:
    """A step with single values, an array of one block, and one of two."""
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as writing:
        writing["n"] = 5
        writing["time"] = 0.125
        writing["zero"] = np.float32(0)
        writing["z"] = 1 + 2j
        writing["text"] = "Größe"
        writing["T"] = ARRAY
        writing.write("parts", ARRAY[:1], shape=ARRAY.shape, start=(0, 0))
        writing.write("parts", ARRAY[1:], shape=ARRAY.shape, start=(1, 0))
        writing["one"] = np.array([7])
        writing["empty"] = np.zeros((0, 3))
        writing.write("local", np.arange(3), kind="local_array")
    return forebay.open(f"{reservation}/flow")[0]


def test_single_value_compares_and_calculates_as_its_number(step: forebay.Step) -> None:
    n = step["n"]
    assert n == 5
    assert n != 6
    assert 4 < n <= 5 < 5.5
    assert n == step["n"]
    assert (n + 1, 1 + n, n * 2, 2 - n, n / 2, n // 2, n % 3, n**2, -n, abs(-n), divmod(n, 2)) == (
        6, 6, 10, -3, 2.5, 2, 2, 25, -5, 5, (2, 1),
    )  # fmt: skip
    assert n + step["time"] == 5.125
    assert isinstance(n + 1, np.integer)
    assert step["z"] * 1j == -2 + 1j
    assert n != "5"
    assert n != None  # noqa: E711
    assert not n == None  # noqa: E711, SIM201


def test_single_value_converts_as_its_number(step: forebay.Step) -> None:
    n, time = step["n"], step["time"]
    assert (int(n), float(n), complex(n), operator.index(n), str(n), f"{n:03d}") == (5, 5.0, 5 + 0j, 5, "5", "005")
    assert (f"{time:.2f}", round(time, 2), str(time), f"{time}") == ("0.12", 0.12, "0.125", "0.125")
    assert list(range(10))[n] == 5
    assert np.arange(10)[n] == 5
    assert "x" * n == "xxxxx"
    assert n
    assert not step["zero"]
    with pytest.raises(TypeError):
        operator.index(time)


def test_single_text_behaves_as_text(step: forebay.Step) -> None:
    text = step["text"]
    assert text == "Größe"
    assert text != "size"
    assert text < "H"
    assert (str(text), f"{text:>7}", f"{text}") == ("Größe", "  Größe", "Größe")
    assert (text + "!", "!" + text, text * 2) == ("Größe!", "!Größe", "GrößeGröße")
    assert bool(text)


def test_changing_a_name_in_place_makes_a_new_number(step: forebay.Step) -> None:
    n: Any = step["n"]
    n += 1
    assert n == 6
    assert isinstance(n, np.integer)
    total = np.zeros_like(ARRAY)
    total += step["T"]
    assert np.array_equal(total, ARRAY)
    assert step["n"] == 5


BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt,
    operator.le, operator.eq, operator.ne, operator.ge, operator.gt,
]  # fmt: skip


@pytest.mark.parametrize("name", ["T", "parts"])
@pytest.mark.parametrize("function", BINARY)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_array_calculates_as_numpys(step: forebay.Step, name: str, function: Callable[[Any, Any], Any]) -> None:
    variable = step[name]
    for other in (2, np.float32(0.5), ARRAY[::-1], ARRAY[0]):
        np.testing.assert_array_equal(function(variable, other), function(ARRAY, other))
        np.testing.assert_array_equal(function(other, variable), function(other, ARRAY))
    np.testing.assert_array_equal(function(variable, step["T"]), function(ARRAY, ARRAY))
    np.testing.assert_array_equal(function(variable, step["n"]), function(ARRAY, 5))


def test_functions_of_numpy_take_variables(step: forebay.Step) -> None:
    variable = step["parts"]
    assert isinstance(np.sin(variable), np.ndarray)
    assert np.mean(variable) == ARRAY.mean()
    assert np.add.reduce(variable, axis=0).tolist() == ARRAY.sum(axis=0).tolist()
    assert np.concatenate([variable, step["T"]]).shape == (6, 4)
    out = np.empty_like(ARRAY)
    assert np.add(variable, 1, out=out, where=step["T"] > 0) is out
    assert (variable @ ARRAY.T).shape == (3, 3)
    assert 6.0 in variable
    assert 7.5 not in variable
    assert [row.tolist() for row in variable] == ARRAY.tolist()
    assert len(variable) == 3


def test_what_a_step_holds_is_not_written(step: forebay.Step) -> None:
    for change in (
        lambda: np.add(ARRAY, 1, out=step["T"]),  # type: ignore[call-overload]
        lambda: np.add(ARRAY, 1, out=step["parts"]),  # type: ignore[call-overload]
        lambda: np.add.at(step["parts"], (0, 0), 1),
    ):
        with pytest.raises(ValueError, match="cannot be changed"):
            change()


def test_truth_of_an_array_is_numpys(step: forebay.Step) -> None:
    assert bool(step["one"])
    for name in ("T", "empty"):
        with pytest.raises(ValueError, match="truth value of an") as numpys:
            bool(np.zeros(step[name].shape))
        with pytest.raises(ValueError, match="truth value of an") as ours:
            bool(step[name])
        assert str(ours.value) == str(numpys.value)
    assert int(step["one"]) == 7
    for convert in (int, float, complex, operator.index, round):
        with pytest.raises(TypeError, match="'T'"):
            convert(step["T"])
    with pytest.raises(TypeError, match="only a single value takes the format"):
        f"{step['T']:.3f}"
    assert f"{step['T']}" == repr(step["T"])


def test_value_without_dimensions_has_no_items(step: forebay.Step) -> None:
    for use in (len, iter):
        with pytest.raises(TypeError, match="'n'"):
            use(step["n"])
    for use in (bool, lambda local: local == 3, lambda local: local + 1):
        with pytest.raises(forebay.InvalidArgumentError, match="blocks one by one"):
            use(step["local"])


def test_variables_are_no_keys_but_their_identity_is(step: forebay.Step) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(step["n"])
    stream = step._stream
    uuid = stream.info.uuid
    assert step.identity == (str(step.address), uuid, step.epoch)
    assert step["T"].identity == (str(step.address), uuid, step.epoch, "T")
    again = pickle.loads(pickle.dumps(step["T"]))
    assert {step["T"].identity: 1}[again.identity] == 1
    assert again.__dask_tokenize__() == step["T"].__dask_tokenize__()


def test_steps_are_equal_if_they_are_the_same_step(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:
        for number in range(2):
            with stream.step() as writing:
                writing["n"] = number
        first, second = stream[0], stream[1]
        assert first == stream[0]
        assert first != second
        assert len({first, stream[0], second}) == 2
        assert pickle.loads(pickle.dumps(first)) == first
        assert first != 0
        assert first in stream
    with forebay.open(address, mode="w") as stream:
        with stream.step() as writing:
            writing["n"] = 5
        assert stream[0] != first
        assert first not in stream
