# SPDX-License-Identifier: Apache-2.0
"""Names of dimensions, and the metadata of many steps in one go."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import forebay


@pytest.fixture
def address(reservation: str) -> str:
    """Where to write."""
    return f"{reservation}/flow"


def test_names_of_dimensions_travel_with_the_variable(address: str) -> None:
    with forebay.open(address, mode="w") as stream:
        with stream.step() as step:
            step.write("T", np.zeros((2, 3)), shape=(4, 3), start=(0, 0), dims=("y", "x"))
            step.write("T", np.ones((2, 3)), shape=(4, 3), start=(2, 0), dims=("y", "x"))
            step.allocate("p", (2, 3, 4), dims=["z", "y", "x"])[...] = 1.0
            step.write("joined", np.zeros((2, 3)), kind="joined_array", dims=("particle", "axis"))
            step.write("local", np.zeros(5), kind="local_array", dims=("cell",))
            step["plain"] = np.zeros(3)
            step["time"] = 0.5
        with stream.step() as step:  # They hold until others are given.
            step["T"] = np.zeros((4, 3))
        assert stream.write("T", np.zeros((4, 3)), dims=("row", "column")) == 2
    with forebay.open(address) as reading:
        first = reading[0]
        assert first["T"].dims == ("y", "x")
        assert first["p"].dims == ("z", "y", "x")
        assert first["joined"].dims == ("particle", "axis")
        assert first["local"].dims == ("cell",)
        assert first["plain"].dims is None
        assert first["time"].dims is None
        assert first.attributes["T/dims"] == ("y", "x")
        assert reading[1]["T"].dims == ("y", "x")
        assert reading[2]["T"].dims == ("row", "column")
        assert [step["T"].dims for step in reading.steps_at()] == [("y", "x"), ("y", "x"), ("row", "column")]
        assert reading.steps_at([0])[0]["local"].dims == ("cell",)


@pytest.mark.parametrize(
    ("dims", "match"),
    [
        ("xy", "one text"),
        (("x",), "names 1 dimensions"),
        (("x", "x"), "twice"),
        (("x", ""), "not empty"),
        (("x", 1), "not empty"),
    ],
)
def test_names_that_do_not_fit_are_refused(address: str, dims: tuple[str, ...], match: str) -> None:
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        with pytest.raises(forebay.InvalidArgumentError, match=match):
            step.write("T", np.zeros((2, 3)), dims=dims)
        with pytest.raises(forebay.InvalidArgumentError, match="names 1 dimensions, and the block has 0"):
            step.write("time", 1.0, dims=("t",))
        step.write("u", np.zeros((2, 3)), shape=(4, 3), dims=("y", "x"))
        with pytest.raises(forebay.InvalidArgumentError, match="earlier block"):
            step.write("u", np.zeros((2, 3)), shape=(4, 3), start=(2, 0), dims=("x", "y"))


@pytest.mark.parametrize("other", ["y x", ("z", "y", "x"), 7, np.arange(2)])
def test_attribute_that_means_something_else_is_no_name(address: str, other: forebay.AttributeValue) -> None:
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["T"] = np.zeros((2, 3))
        step.attributes["T/dims"] = other
    with forebay.open(address) as reading:
        assert reading[0]["T"].dims is None


def write_varied(address: str) -> None:
    """Steps that differ in shapes, variables, attributes and texts."""
    with forebay.open(address, mode="w") as stream:
        for number in range(6):
            with stream.step() as step:
                rows = 4 if number < 4 else 6
                for start in (0, rows // 2):
                    block = np.full((rows // 2, 3), float(number + start))
                    step.write("T", block, shape=(rows, 3), start=(start, 0), dims=("y", "x"))
                step["time"] = number / 4
                step["count"] = np.int8(number)
                step["note"] = f"step {number}"
                step.write("rank", np.int64(40 + number), kind="local_value")
                step.write("texts", "ä", kind="local_value")
                step.write("bag", np.arange(number, dtype="f4"), kind="local_array")
                if number % 2:
                    step["odd"] = complex(number, -1)
                if number == 3:
                    step.attributes["note"] = "later"


def same(metadata: forebay.StepMetadata, step: forebay.Step) -> None:
    """Both say the same of the step."""
    assert (metadata.number, metadata.epoch) == (step.number, step.epoch)
    assert dict(metadata.attributes) == dict(step.attributes)
    assert list(metadata) == list(step)
    for name, variable in step.items():
        found = metadata[name]
        assert (found.dtype, found.kind, found.shape, found.ndim, found.dims) == (
            variable.dtype,
            variable.kind,
            variable.shape,
            variable.ndim,
            variable.dims,
        )
        assert found.blocks == variable.blocks
        assert (found.min, found.max) == (variable.min, variable.max)
        if variable.kind in (forebay.ShapeKind.GLOBAL_VALUE, forebay.ShapeKind.LOCAL_VALUE):
            np.testing.assert_array_equal(found.value, variable[...])
        else:
            with pytest.raises(forebay.InvalidArgumentError, match="not a single value"):
                found.value  # noqa: B018


def test_metadata_in_one_go_is_what_each_step_says(address: str) -> None:
    write_varied(address)
    with forebay.open(address) as stream:
        steps = stream.steps_at()
        assert len(steps) == 6
        for metadata in steps:
            same(metadata, stream[metadata.number])
            summary = stream[metadata.number].summary
            assert (metadata.summary.time_ns, metadata.summary.size_bytes) == (summary.time_ns, summary.size_bytes)
        assert steps.numbers.tolist() == list(range(6))
        assert steps.times_ns.tolist() == [summary.time_ns for summary in stream.steps()]
        assert set(steps.epochs.tolist()) == {stream.info.epoch}
        copy = pickle.loads(pickle.dumps(steps))
        same(copy[5], stream[5])
        with pytest.raises(forebay.VariableNotFoundError, match="the step has T"):
            steps[0]["nothing"]


def test_single_values_of_many_steps_are_one_array(address: str) -> None:
    write_varied(address)
    with forebay.open(address) as stream:
        steps = stream.steps_at()
        np.testing.assert_array_equal(steps.values("time"), np.arange(6) / 4)
        assert steps.values("count").dtype == np.int8
        assert steps.values("note").tolist() == [f"step {number}" for number in range(6)]
        np.testing.assert_array_equal(steps[::-2].values("time"), [1.25, 0.75, 0.25])
        with pytest.raises(forebay.VariableNotFoundError, match="step 0"):
            steps.values("odd")
        np.testing.assert_array_equal(steps.values("odd", missing=np.nan)[1::2], [1 - 1j, 3 - 1j, 5 - 1j])
        assert np.isnan(steps.values("odd", missing=np.nan)[::2]).all()
        with pytest.raises(forebay.InvalidArgumentError, match="not a single value"):
            steps.values("T")


def test_steps_are_asked_for_by_number_and_those_that_are_gone_are_left_out(address: str) -> None:
    with forebay.open(address, mode="w", retention="last:3") as stream:
        for number in range(6):
            with stream.step() as step:
                step["n"] = number
    with forebay.open(address) as reading:
        steps = reading.steps_at([5, 0, 3, 3, 99])
        assert steps.numbers.tolist() == [5, 3, 3]
        assert steps.values("n").tolist() == [5, 3, 3]
        assert len(reading.steps_at([])) == 0
        assert reading.steps_at([]).values("n").shape == (0,)
        with pytest.raises(forebay.InvalidArgumentError, match="numbered from 0"):
            reading.steps_at([-1])


def test_steps_that_agree_share_a_layout_and_none_stays_pinned(address: str) -> None:
    with forebay.open(address, mode="w") as stream:
        for number in range(3000):
            with stream.step() as step:
                step.write("T", np.zeros(4), shape=(8,), start=(0,))
                step.write("T", np.zeros(4), shape=(8,), start=(4,))
                step["time"] = number
    with forebay.open(address) as reading, forebay.Admin() as admin:
        steps = reading.steps_at()
        assert len(steps) == 3000
        assert steps.values("time").tolist() == list(range(3000))
        (layout,) = steps.layouts
        assert layout["T"].shape == (8,)
        assert [start for _, start, _ in layout["T"].blocks] == [(0,), (4,)]
        assert not steps.layout_numbers.any()
        # A release has no answer: it has arrived when the same connection has been answered again.
        reading[0].release()
        assert sum(summary.pins for summary in admin.steps(address)) == 0
