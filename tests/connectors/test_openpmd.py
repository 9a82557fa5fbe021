# SPDX-License-Identifier: Apache-2.0
"""openPMD's particles as tables, against openPMD-api's own reading; and streams of them staged out to its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openpmd_api as io
import polars as pl
import pytest

import forebay
from forebay.connectors import arrow
from tests.integration.test_stage_kinds import stage
from tests.support.adios2_programs import python, run

COUNT = 1000
#: Copies a file to a stream as a program would write it: each variable and attribute, step by step.
COPY = """
    import sys
    import adios2
    with adios2.Stream(sys.argv[1], "r") as source, adios2.Stream(sys.argv[2], "w") as target:
        for _ in source.steps():
            target.begin_step()
            for name, facts in source.available_variables().items():
                values = source.read(name)
                target.write(name, values, list(values.shape), [0] * values.ndim, list(values.shape))
            for name in source.available_attributes():
                target.io.remove_attribute(name)
                target.write_attribute(name, source.read_attribute(name))
            target.end_step()
"""


def write_openpmd(path: Path, encoding: str, iterations: tuple[int, ...]) -> None:
    """Electrons and ions as a particle code has them: their positions' offset is constant along x only."""
    options = f'{{"backend": "adios2", "iteration_encoding": "{encoding}", "adios2": {{"engine": {{"type": "bp5"}}}}}}'
    series = io.Series(str(path), io.Access.create_linear, options)
    for number in iterations:
        iteration = series.snapshots()[number]
        iteration.time, iteration.time_unit_SI, iteration.dt = 0.5 * number, 1e-15, 0.5
        for name, count in (("electrons", COUNT), ("ions", COUNT // 2)):
            write_species(iteration.particles[name], count, np.random.default_rng(number))
        iteration.close()
    series.close()


def write_species(species: Any, count: int, random: np.random.Generator) -> None:
    def put(record: str, component: str, values: Any, unit: float) -> None:
        part = species[record][component]
        part.reset_dataset(io.Dataset(values.dtype, values.shape))
        part.unit_SI = unit
        part.store_chunk(values)
        species.series_flush()

    def put_constant(record: str, component: str, value: float, unit: float) -> None:
        part = species[record][component]
        part.reset_dataset(io.Dataset(np.dtype("f8"), [count]))
        part.unit_SI = unit
        part.make_constant(value)

    for place, component in enumerate("xyz"):
        put("position", component, random.random(count, dtype=np.float32), 1e-6)
        put("momentum", component, random.random(count) - 0.5 * place, 2.7e-22)
    put_constant("positionOffset", "x", 3.0, 1e-6)
    put("positionOffset", "y", np.arange(count, dtype=np.uint32), 1e-6)
    put("positionOffset", "z", np.arange(count, dtype=np.uint32), 2e-6)
    species["position"].unit_dimension = {io.Unit_Dimension.L: 1}
    species["momentum"].set_attribute("macroWeighted", np.uint32(1))
    put_constant("weighting", io.Record_Component.SCALAR, 2.5, 1.0)
    put("id", io.Record_Component.SCALAR, np.arange(count, dtype=np.uint64), 1.0)


def expect_as_openpmd_reads(batch: Any, frame: Any) -> None:
    """SI columns of ours against ``to_df``, which applies units and keeps positions and offsets apart."""
    assert sorted(batch.schema.names) == sorted(name for name in frame.columns if not name.startswith("positionOffset"))
    for name in batch.schema.names:
        expected = np.asarray(frame[name], np.float64)
        if name.startswith("position_"):
            expected = expected + np.asarray(frame[name.replace("_", "Offset_")], np.float64)
        # to_df multiplies float32 in single precision.
        tolerance = 3e-7 if name.startswith("position_") else 0
        np.testing.assert_allclose(np.asarray(batch[name]), expected, rtol=tolerance)
        assert batch.schema.field(name).metadata[b"unitSI"] == b"1.0"


@pytest.mark.parametrize(
    ("encoding", "iterations"), [("variable_based", (0, 100)), ("group_based", (0, 100))], ids=["variables", "groups"]
)
def test_species_are_the_tables_that_openpmd_api_reads(
    reservation: str, tmp_path: Path, encoding: str, iterations: tuple[int, ...]
) -> None:
    write_openpmd(tmp_path / "run.bp", encoding, iterations)
    done = run(
        ["--reservation", reservation, "--engine-for", "dust"],
        python(COPY, str(tmp_path / "run.bp"), "dust"),
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    series = io.Series(str(tmp_path / "run.bp"), io.Access.read_random_access)
    with forebay.open(f"{reservation}/dust", timeout=0) as stream:
        assert len(stream) == len(iterations)
        for number, step in zip(iterations, stream, strict=True):
            for species in ("electrons", "ions"):
                theirs = series.snapshots()[number].particles[species]
                batch = arrow.particles(step, species=species, si=True)
                expect_as_openpmd_reads(batch, theirs.to_df())
                assert float(batch.schema.metadata[b"time_s"]) == pytest.approx(0.5e-15 * number, abs=0)
                # As stored: the bits of the file, and the unit beside them.
                batch = arrow.particles(step, ["momentum/y", "id", "weighting"], species=species)
                part = theirs["momentum"]["y"]
                chunk = part.load_chunk()
                series.flush()
                np.testing.assert_array_equal(np.asarray(batch["momentum_y"]), chunk)
                assert batch.schema.names == ["momentum_y", "id", "weighting"]
                facts = batch.schema.field("momentum_y").metadata
                assert (float(facts[b"unitSI"]), facts[b"macroWeighted"]) == (part.unit_SI, b"1")
                assert batch.schema.field("id").type == "uint64"
    series.close()


def test_a_staged_stream_is_a_file_of_openpmd_api(reservation: str, tmp_path: Path) -> None:
    write_openpmd(tmp_path / "run.bp", "group_based", (0, 100))
    program = python(COPY, str(tmp_path / "run.bp"), "dust")
    done = run(["--reservation", reservation, "--engine-for", "dust"], program, tmp_path)
    assert done.returncode == 0, done.stderr
    output = stage(f"{reservation}/dust", tmp_path, "all.bp")
    ours, theirs = (io.Series(str(path), io.Access.read_random_access) for path in (output, tmp_path / "run.bp"))
    assert list(ours.snapshots()) == [0, 100]
    for number in (0, 100):
        assert ours.snapshots()[number].time == 0.5 * number
        for species in ("electrons", "ions"):
            frames = [series.snapshots()[number].particles[species].to_df() for series in (ours, theirs)]
            assert list(frames[0].columns) == list(frames[1].columns)
            np.testing.assert_array_equal(frames[0].to_numpy(), frames[1].to_numpy())
    for series in (ours, theirs):
        series.close()


@pytest.fixture
def dust(reservation: str) -> str:
    """3 steps in openPMD's naming, written by Forebay: iterations 0, 10, 20; positions in 2 blocks."""
    address = f"{reservation}/dust"
    with forebay.open(address, mode="w") as stream:
        for number in range(3):
            base = f"/data/{10 * number}/particles/dust"
            with stream.step() as step:
                places = np.arange(8.0) + number
                for half in (0, 4):
                    step.write(f"{base}/position/x", places[half : half + 4], shape=(8,), start=(half,))
                step[f"{base}/momentum/x"] = np.full(8, 2.0)
                step[f"{base}/momentum/y"] = np.full(8, 1.5)
                step[f"{base}/particlePatches/numParticles"] = np.array([8], np.uint64)
                step.attributes[f"{base}/position/x/unitSI"] = 0.5
                step.attributes[f"{base}/positionOffset/x/value"] = 0.0
                step.attributes[f"{base}/positionOffset/x/shape"] = np.array([8], np.uint64)
                step.attributes[f"{base}/charge/value"] = -1.0
                step.attributes[f"{base}/charge/shape"] = np.array([8], np.uint64)
                step.attributes[f"{base}/charge/unitSI"] = 1.6e-19
    return address


def test_a_stream_of_species_is_one_table(dust: str) -> None:
    reader = arrow.particle_reader(dust, ["position", "charge"], species="dust")
    query = "select step, count(*), min(position_x), min(charge) from particles group by step order by step"
    rows = duckdb.from_arrow(reader).query("particles", query).fetchall()
    assert rows == [(0, 8, 0.0, -1.0), (1, 8, 1.0, -1.0), (2, 8, 2.0, -1.0)]
    frame = pl.DataFrame(arrow.particle_reader(dust, species="dust", si=True))
    assert frame.columns == ["step", "position_x", "momentum_x", "momentum_y", "charge"]
    assert frame["position_x"].to_list()[8:10] == [0.5, 1.0]
    assert frame["charge"].max() == -1.6e-19


def test_columns_of_one_block_share_the_step_s_memory(dust: str) -> None:
    with forebay.open(dust) as stream:
        step = stream[1]
        batch = arrow.particles(step, ["momentum_x"], species="dust")
        view = step["/data/10/particles/dust/momentum/x"].view()
        assert batch["momentum_x"].buffers()[-1].address == view.ctypes.data


def test_units_that_change_and_names_that_are_not_there_say_so(dust: str) -> None:
    with forebay.open(dust, mode="a") as writer, writer.step() as step:
        for iteration in (40, 50):
            step[f"/data/{iteration}/particles/dust/position/x"] = np.zeros(2)
            step[f"/data/{iteration}/particles/dust/position/y"] = np.zeros(3)
    with forebay.open(dust) as stream:
        with pytest.raises(forebay.InvalidArgumentError, match=r"in 2 iterations.*data/40/particles/dust"):
            arrow.particles(stream[3], species="dust")
        with pytest.raises(forebay.InvalidArgumentError, match="different lengths"):
            arrow.particles(stream[3], species="/data/40/particles/dust")
        assert arrow.particles(stream[3], ["position_y"], species="/data/50/particles/dust").num_rows == 3
        with pytest.raises(forebay.VariableNotFoundError, match="no 'spin'; it has position_x, momentum_x"):
            arrow.particles(stream[0], ["spin"], species="dust")
        with pytest.raises(forebay.VariableNotFoundError, match=r"no species 'ice'.*/data/0/particles/dust"):
            arrow.particles(stream[0], species="ice")
        with pytest.raises(forebay.InvalidArgumentError, match="si goes with species"):
            arrow.particles(stream[0], si=True)
    with forebay.open(dust, mode="w") as writer:
        for unit in (1.0, 2.0):
            with writer.step() as step:
                step["/data/particles/dust/position/x"] = np.ones(2)
                step.attributes["/data/particles/dust/position/x/unitSI"] = unit
    with pytest.raises(forebay.UnsupportedError, match="ask for si=True"):
        arrow.particle_reader(dust, species="dust").read_all()
    table = arrow.particle_reader(dust, species="dust", si=True).read_all()
    assert table["position_x"].to_pylist() == [1.0, 1.0, 2.0, 2.0]
