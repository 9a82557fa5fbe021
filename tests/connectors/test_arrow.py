# SPDX-License-Identifier: Apache-2.0
"""Arrow data of a real stream: shared memory, pins that live as long, other libraries by the PyCapsule interface."""

from __future__ import annotations

import gc
import time

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import forebay
from forebay.connectors import arrow
from tests.connectors.conftest import temperature


@pytest.fixture
def particles(reservation: str) -> str:
    """3 steps of 1 MiB: positions ``x``, identities ``id``; beside them the field ``rho`` in two blocks."""
    address = f"{reservation}/dust"
    with forebay.open(address, mode="w") as stream:
        for number in range(3):
            with stream.step() as step:
                step["x"] = np.arange(1 << 16, dtype=np.float64) + number
                step["id"] = np.arange(1 << 16, dtype=np.int64)
                step.write("rho", np.full((2, 4), 1.0), shape=(4, 4), start=(0, 0))
                step.write("rho", np.full((2, 4), 2.0), shape=(4, 4), start=(2, 0))
                step["wave"] = np.ones(4, np.complex64)
                step["time"] = 0.1 * number
    return address


def wait_for_pins(address: str, expected: int) -> None:
    """Of step 1; a release has no answer, so this asks until it has arrived."""
    deadline = time.monotonic() + 30
    while True:
        with forebay.Admin() as admin:
            pins = admin.steps(address)[1].pins
        if pins == expected:
            return
        assert time.monotonic() < deadline, f"{pins} pins, not {expected}"


def address_of(array: pa.Array) -> int:
    """Where the values of an Arrow array lie."""
    buffer = array.buffers()[-1]
    assert isinstance(buffer.address, int)
    return buffer.address


def test_block_is_a_tensor_in_the_step_s_own_memory(flow: str) -> None:
    stream = forebay.open(flow)
    step = stream[1]
    view = step["T"].block(3)
    tensor = arrow.tensor(step["T"], 3)
    assert tensor.type == pa.fixed_shape_tensor(pa.float64(), (4, 6, 16))
    assert address_of(tensor.storage.flatten()) == view.ctypes.data
    np.testing.assert_array_equal(tensor.to_numpy_ndarray()[0], temperature(1)[4:, 6:])
    np.testing.assert_array_equal(arrow.tensor(step["T"]).to_numpy_ndarray()[0], temperature(1))


def test_tensor_pins_the_step_as_long_as_it_lives(flow: str) -> None:
    with forebay.open(flow) as stream, stream[1] as step:
        tensor = arrow.tensor(step["T"], 0)
    del step, stream
    gc.collect()
    wait_for_pins(flow, 1)
    with forebay.Admin() as admin:
        admin.set_retention(flow, "last:1")
    np.testing.assert_array_equal(tensor.to_numpy_ndarray()[0], temperature(1)[:4, :6])
    del tensor
    gc.collect()
    with forebay.Admin() as admin:
        assert [summary.number for summary in admin.steps(flow)] == [5]


def test_particles_are_columns_in_the_step_s_own_memory(particles: str) -> None:
    with forebay.open(particles) as stream:
        step = stream[1]
        batch = arrow.particles(step, ["x", "id"])
        assert address_of(batch["x"]) == step["x"].view().ctypes.data
        assert batch.num_rows == 1 << 16
        step.release()
    wait_for_pins(particles, 1)


def test_polars_and_duckdb_take_them(particles: str) -> None:
    with forebay.open(particles) as stream:
        batch = arrow.particles(stream[2], ["id", "x"])
        frame = pl.DataFrame(batch)
        assert frame["x"][10] == 12.0
        assert frame["x"].to_arrow().buffers()[-1].address == address_of(batch["x"])
        found = duckdb.from_arrow(batch).query("batch", "select max(x) from batch").fetchall()
        assert found == [(65537.0,)]
        tensor = arrow.tensor(stream[2]["rho"], 1)
        assert pa.array(tensor).type == tensor.type
    reader = arrow.particle_reader(particles, ["x"])
    query = "select step, count(*), min(x) from particles group by step order by step"
    rows = duckdb.from_arrow(reader).query("particles", query).fetchall()
    assert rows == [(0, 1 << 16, 0.0), (1, 1 << 16, 1.0), (2, 1 << 16, 2.0)]


def test_variables_are_arrays_to_others(particles: str) -> None:
    """By the PyCapsule interface, without a call of the connector."""
    with forebay.open(particles) as stream:
        step = stream[2]
        x = pl.Series(step["x"])
        assert (len(x), str(x.dtype), x[10]) == (1 << 16, "Float64", 12.0)
        shared = pa.array(step["x"])
        assert address_of(shared) == step["x"].view().ctypes.data
        rho = pa.array(step["rho"])
        assert rho.type.shape == [4]
        np.testing.assert_array_equal(rho.to_numpy_ndarray(), step["rho"][...])
        step = stream[1]
        held = pa.array(step["id"])
        step.release()
        assert held[5].as_py() == 5
        wait_for_pins(particles, 1)
        for name, message in (("wave", "no numbers of type complex64"), ("time", "a single value is no Arrow array")):
            with pytest.raises(forebay.UnsupportedError, match=message):
                pa.array(stream[0][name])


def test_series_is_a_table_to_others(particles: str) -> None:
    with forebay.open(particles) as stream:
        time_table = pa.table(stream["time"])
        assert time_table.to_pydict() == {"step": [0, 1, 2], "time": [0.0, 0.1, 0.2]}
        frame = pl.DataFrame(stream["time"])
        assert frame.columns == ["step", "time"]
        assert frame["time"].sum() == pytest.approx(0.3)
        series = stream["time"]
        assert duckdb.sql("select max(step), max(time) from series").fetchall() == [(2, 0.2)]
        rho = pa.table(stream["rho"])
        assert rho["rho"].type.shape == [4, 4]
        assert rho["rho"].num_chunks == 3
        np.testing.assert_array_equal(rho["rho"].chunk(1).to_numpy_ndarray()[0], stream[1]["rho"][...])
        assert len(series) == 3
        with pytest.raises(forebay.UnsupportedError, match="no numbers of type complex64"):
            pa.table(stream["wave"])


def test_columns_that_do_not_belong_together_are_refused(particles: str, flow: str) -> None:
    with forebay.open(particles) as stream:
        with pytest.raises(forebay.InvalidArgumentError, match="one length"):
            arrow.particles(stream[0], ["x", "rho"])
        with pytest.raises(forebay.InvalidArgumentError, match="one length"):
            arrow.particles(stream[0], [])
        with pytest.raises(forebay.UnsupportedError, match=r"complex64.*\.real"):
            arrow.tensor(stream[0]["wave"])
        with pytest.raises(forebay.UnsupportedError, match="single value"):
            arrow.tensor(stream[0]["time"])
        assert arrow.particles(stream[0]).schema.names == ["x", "id"]


def test_steps_and_blocks_are_tables(particles: str) -> None:
    table = arrow.steps(particles)
    assert table["step"].to_pylist() == [0, 1, 2]
    assert min(table["size_bytes"].to_pylist()) > 1 << 20
    blocks = arrow.blocks(particles, "rho")
    assert blocks.num_rows == 6
    assert blocks.slice(1, 1).to_pylist() == [
        {
            "step": 0,
            "block": 1,
            "rank": 0,
            "start": [2, 0],
            "count": [2, 4],
            "size_bytes": 64,
            "min": 2.0,
            "max": 2.0,
        }
    ]
    assert pl.DataFrame(blocks)["max"].max() == 2.0
    assert arrow.blocks(particles, "nothing").num_rows == 0
