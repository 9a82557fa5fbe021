# SPDX-License-Identifier: Apache-2.0
"""GRIB files become steps with the values, places and times that cfgrib sees in them; and steps become GRIB files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import eccodes
import numpy as np
import pytest
import xarray as xr

import forebay
from forebay.connectors import grib
from forebay.errors import CorruptError, ForebayError, InvalidArgumentError, NotFoundError, UnsupportedError
from tests.support.grib_files import message, write_cycle, write_file
from tests.support.time_limits import seconds

LEVELS = ("isobaricInhPa", "heightAboveGround", "surface")


@pytest.fixture
def fc(reservation: str) -> str:
    return f"{reservation}/fc"


def theirs(path: Path, level_kind: str, **keys: Any) -> xr.Dataset:
    """What cfgrib reads."""
    return xr.open_dataset(
        path,
        engine="cfgrib",
        backend_kwargs={"indexpath": "", "filter_by_keys": {"typeOfLevel": level_kind, **keys}},
        decode_timedelta=False,
    )


def ours(address: str, group: str) -> xr.Dataset:
    return xr.open_dataset(f"forebay://{address}", engine="forebay", group=group)


def expect_same(mine: xr.Dataset, other: xr.Dataset, number: int) -> None:
    """One step against cfgrib's Dataset of its file: values, coordinates, times and units, bit by bit."""
    step = mine.sel(step=number)
    assert set(other.data_vars) <= set(mine.data_vars)
    for name, variable in other.data_vars.items():
        assert step[name].dims == variable.dims, name
        assert step[name].dtype == variable.dtype
        np.testing.assert_array_equal(step[name].values, variable.values)
        assert step[name].attrs["units"] == variable.attrs["units"]
        assert step[name].attrs["long_name"] == variable.attrs["long_name"]
        assert step[name].attrs["GRIB_paramId"] == variable.attrs["GRIB_paramId"]
        for dim in variable.dims:
            if dim in other.coords:
                np.testing.assert_array_equal(step[name][dim].values, other[dim].values)
    for name in ("latitude", "longitude"):
        assert step[name].dims == other[name].dims
        np.testing.assert_array_equal(step[name].values, other[name].values)
    assert step["time"].values == other["valid_time"].values
    assert step["forecast_reference_time"].values == other["time"].values
    assert step["forecast_period"].values == other["step"].values


def expect_cycle(address: str, paths: dict[int, Path]) -> None:
    for level_kind in LEVELS:
        for number, path in paths.items():
            if number or level_kind != "surface":
                expect_same(ours(address, level_kind), theirs(path, level_kind), number)


@pytest.mark.parametrize("members", [(None,), (1, 2, 5)], ids=["deterministic", "ensemble"])
def test_a_cycle_is_what_cfgrib_reads_bit_by_bit(fc: str, tmp_path: Path, members: tuple[int | None, ...]) -> None:
    paths = {step: write_cycle(tmp_path / f"fc{step:03d}.grib2", step, members=members) for step in (1, 2, 3)}
    assert grib.ingest(paths.values(), fc) == grib.Ingested([1, 2, 3])
    expect_cycle(fc, paths)
    with forebay.open(fc, timeout=0) as stream:
        step = stream[2]
        assert step["isobaricInhPa/t"].dims == (
            *(["number"] * (len(members) > 1)),
            *LEVELS[:1],
            "latitude",
            "longitude",
        )
        assert step["isobaricInhPa/isobaricInhPa"][...].tolist() == [1000, 850, 500]
        assert step["forecast_period"].item() == 2.0
        assert step.attributes["heightAboveGround/t2m/level"] == 2.0
        reference = np.datetime64(int(step["forecast_reference_time"]), "s")
        assert reference == theirs(paths[2], "surface")["time"].values == np.datetime64("2026-11-27T12:00")
        if len(members) > 1:
            assert step["number"][...].tolist() == [1, 2, 5]


def test_one_file_with_all_steps_and_several_files_of_one_step(fc: str, tmp_path: Path) -> None:
    parts = [write_cycle(tmp_path / f"{step}.grib2", step) for step in (3, 1, 2)]
    write_file(tmp_path / "all.grib2", *(part.read_bytes() for part in parts))
    grib.ingest([tmp_path / "all.grib2"], fc)
    levels = write_file(tmp_path / "pl.grib2", *(message(130, level=("isobaricInhPa", level)) for level in (500, 850)))
    surface = write_file(tmp_path / "sfc.grib2", message(167, level=("heightAboveGround", 2)))
    assert grib.ingest([[levels, surface]], f"{fc}2").written == [6]
    with forebay.open(fc, timeout=0) as stream, forebay.open(f"{fc}2", timeout=0) as other:
        assert [step.number for step in stream] == [1, 2, 3]
        for step in stream:
            assert "surface/tp" in step
            assert step.attributes["surface/tp/GRIB_startStep"] == 0
        assert {"isobaricInhPa/t", "heightAboveGround/t2m"} <= set(other[6])


@pytest.mark.parametrize(
    ("grid", "dims"),
    [
        ("northwards", ("latitude", "longitude")),
        ("lambert", ("y", "x")),
        ("gaussian", ("latitude", "longitude")),
        ("reduced", ("values",)),
        ("edition 1", ("latitude", "longitude")),
    ],
)
def test_grids_and_coordinates_are_those_of_cfgrib(fc: str, tmp_path: Path, grid: str, dims: tuple[str, ...]) -> None:
    messages = [message(130, level=("isobaricInhPa", level), grid=grid) for level in (850, 500)]
    path = write_file(tmp_path / "fc.grib", *messages)
    grib.ingest([path], fc)
    mine = ours(fc, "isobaricInhPa")
    assert mine["t"].dims == ("step", "isobaricInhPa", *dims)
    expect_same(mine, theirs(path, "isobaricInhPa"), 6)
    if grid in ("lambert", "reduced"):
        assert {"latitude", "longitude"} <= set(mine.coords)
        grib.ingest([path], f"{fc}2", coordinates=False)
        with forebay.open(f"{fc}2", timeout=0) as stream:
            assert "latitude" not in stream[6]


def test_points_without_a_value_are_nan(fc: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "fc.grib2", message(130, level=("isobaricInhPa", 500), missing=(0, 17)))
    grib.ingest([path], fc)
    expect_same(ours(fc, "isobaricInhPa"), theirs(path, "isobaricInhPa"), 6)
    assert int(np.isnan(ours(fc, "isobaricInhPa")["t"]).sum()) == 2


def test_several_fields_in_one_message_are_read(fc: str, tmp_path: Path) -> None:
    """As u and v of NCEP's files: sections 4 to 7 come twice."""
    handle = eccodes.codes_grib_multi_new()
    for parameter in (131, 132):
        field = eccodes.codes_new_from_message(message(parameter, level=("isobaricInhPa", 500)))
        eccodes.codes_grib_multi_append(field, 4, handle)
    with (tmp_path / "uv.grib2").open("wb") as file:
        eccodes.codes_grib_multi_write(handle, file)
    eccodes.codes_grib_multi_release(handle)
    grib.ingest([tmp_path / "uv.grib2"], fc)
    other = theirs(tmp_path / "uv.grib2", "isobaricInhPa")
    assert set(other.data_vars) == {"u", "v"}
    expect_same(ours(fc, "isobaricInhPa"), other, 6)


def test_other_level_sets_have_dimensions_of_their_own(fc: str, tmp_path: Path) -> None:
    """cfgrib refuses to put them into one Dataset."""
    for step in (1, 2):
        found = [message(130, level=("isobaricInhPa", level), step=step) for level in (1000, 850, 500)]
        found += [message(157, level=("isobaricInhPa", level), step=step) for level in (850, 500)]
        grib.ingest([write_file(tmp_path / f"{step}.grib2", *found)], fc)
    mine = ours(fc, "isobaricInhPa")
    assert mine["t"].dims == ("step", "isobaricInhPa", "latitude", "longitude")
    assert mine["r"].dims == ("step", "isobaricInhPa_2", "latitude", "longitude")
    assert mine["isobaricInhPa_2"].values.tolist() == [850, 500]
    np.testing.assert_array_equal(
        mine["r"].sel(step=1).values, theirs(tmp_path / "1.grib2", "isobaricInhPa", shortName="r")["r"].values
    )


def test_steps_shorter_than_an_hour_and_parameters_without_a_name(fc: str, tmp_path: Path) -> None:
    own = {"discipline": 0, "parameterCategory": 1, "parameterNumber": 231}
    path = write_file(tmp_path / "a.grib2", *(message(167, step=step, keys=own) for step in ("15m", "90m")))
    with pytest.raises(InvalidArgumentError, match="no multiple of the interval"):
        grib.ingest([path], fc)
    assert grib.ingest([path], fc, interval=900).written == [1, 6]
    with forebay.open(fc, timeout=0) as stream:
        assert stream[6]["forecast_period"].item() == 1.5
        assert [name for name in stream[6] if name.endswith("/param_0_1_231")]


def test_analyses_of_several_cycles_are_counted(fc: str, tmp_path: Path) -> None:
    paths = [
        write_file(tmp_path / f"an{hour}.grib2", message(167, step=0, keys={"dataTime": hour * 100}))
        for hour in (0, 6, 12)
    ]
    with pytest.raises(InvalidArgumentError, match="another cycle"):
        grib.ingest(paths, f"{fc}2")
    assert grib.ingest(paths[1:], fc, interval=None).written == [0, 1]
    assert grib.ingest(paths[1:], fc, interval=None).passed_over == [0, 1]
    with forebay.open(fc, timeout=0) as stream:
        assert [np.datetime64(int(step["time"]), "s").astype("M8[h]").item().hour for step in stream] == [6, 12]


def test_missing_messages_are_told(fc: str, tmp_path: Path) -> None:
    members = (1, 2)
    grib.ingest([write_cycle(tmp_path / "1.grib2", 1, members=members)], fc)
    # The third message: number 1 at 1000 hPa. The eighth: number 2 at 2 m. The last two: precipitation.
    lacking = write_cycle(tmp_path / "2.grib2", 2, members=members, without=(2, 7, 8, 9))
    with pytest.raises(InvalidArgumentError, match=r"4 messages|3 messages"):
        grib.ingest([lacking], fc, complete=True)
    done = grib.ingest([lacking], fc)
    expected = [
        "heightAboveGround/t2m, level 2, number 2",
        "isobaricInhPa/t, level 1000, number 1",
        "surface/tp, which the step before has",
    ]
    assert done.missing == {2: expected}
    with forebay.open(fc, timeout=0) as stream:
        assert list(stream[2].attributes["GRIB_missing"]) == expected
        values = stream[2]["isobaricInhPa/t"][...]
        assert values.shape == stream[1]["isobaricInhPa/t"].shape
        assert np.isnan(values[0, 0]).all()
        assert not np.isnan(values[1]).any()
    # Given again, it is the same; with what was missing, it is refused, not dropped.
    assert grib.ingest([lacking], fc).passed_over == [2]
    with pytest.raises(InvalidArgumentError, match=r"step 2 was written without .*give all files of a step together"):
        grib.ingest([write_cycle(tmp_path / "2b.grib2", 2, members=members)], fc)
    done = grib.ingest([write_cycle(tmp_path / "3.grib2", 3, members=members)], fc)
    assert (done.written, done.missing) == ([3], {})
    with forebay.open(fc, timeout=0) as stream:
        assert "GRIB_missing" not in stream[3].attributes


def test_what_is_not_whole_or_not_one_step_is_refused_by_name(fc: str, tmp_path: Path) -> None:
    whole = write_cycle(tmp_path / "whole.grib2", 1).read_bytes()

    def file(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    twice = [message(130, level=("isobaricInhPa", 500))] * 2
    kinds = [message(228, step="0-6"), message(228, step="3-6")]
    grids = [message(167, grid="regular"), message(168, grid="lambert")]
    cases: list[tuple[Path, type[ForebayError], str]] = [
        (file("cut", whole[:-1]), CorruptError, "cut off"),
        (file("half", whole[: len(whole) // 2]), CorruptError, "cut off"),
        (file("head", whole + b"GRI"), CorruptError, "where a message begins"),
        (file("end", whole[:-4] + b"XXXX"), CorruptError, "damaged"),
        (file("text", b"no message at all"), CorruptError, "no GRIB message"),
        (file("empty", b""), CorruptError, "no GRIB message"),
        (tmp_path / "absent", NotFoundError, "no such file"),
        (file("twice", b"".join(twice)), InvalidArgumentError, "comes twice"),
        (file("kinds", b"".join(kinds)), InvalidArgumentError, "stepRange"),
        (file("grids", b"".join(grids)), InvalidArgumentError, "another grid"),
    ]
    for path, kind, text in cases:
        with pytest.raises(kind, match=text) as refused:
            grib.ingest([path], fc)
        assert len(str(refused.value)) < 300 + 2 * len(str(tmp_path))
        assert str(path) in str(refused.value)
    with forebay.Admin() as admin:
        assert admin.stream(fc).steps == 0
    # A choice makes them one step.
    grib.ingest([file("grids", b"".join(grids))], fc, where={"gridType": ["lambert"]})
    grib.ingest([write_cycle(tmp_path / "7.grib2", 7)], f"{fc}2")
    with pytest.raises(InvalidArgumentError, match="order of time"):
        grib.ingest([write_cycle(tmp_path / "5.grib2", 5)], f"{fc}2")


def test_a_damaged_message_is_found_before_a_step_is_seen(fc: str, tmp_path: Path) -> None:
    """Its head is right, and what is packed is not."""
    content = bytearray(message(167, level=("heightAboveGround", 2)))
    section = content.index(b"\0\0\0\x15\x05")
    content[section + 9 : section + 11] = b"\x12\x34"  # the number of a packing that nobody has
    (tmp_path / "a.grib2").write_bytes(content)
    with pytest.raises(CorruptError, match=r"cannot be decoded.*a\.grib2"):
        grib.ingest([tmp_path / "a.grib2"], fc)
    with forebay.Admin() as admin:
        assert admin.stream(fc).steps == 0


@pytest.mark.parametrize("grid", ["regular", "northwards", "lambert", "gaussian", "reduced"])
def test_a_step_goes_back_to_a_file_that_equals_its_source(fc: str, tmp_path: Path, grid: str) -> None:
    messages = [
        message(130, level=("isobaricInhPa", level), grid=grid, number=number)
        for level in (850, 500)
        for number in (1, 2)
    ]
    messages += [message(228, step="3-6", grid=grid, number=number, missing=(3,)) for number in (1, 2)]
    source = write_file(tmp_path / "source.grib2", *messages)
    grib.ingest([source], fc)
    with forebay.open(fc, timeout=0) as stream:
        assert grib.write_file(stream[6], tmp_path / "back.grib2") == {}
    for level_kind in ("isobaricInhPa", "surface"):
        before, after = theirs(source, level_kind), theirs(tmp_path / "back.grib2", level_kind)
        # The values lie on the source's packing already.
        xr.testing.assert_equal(before, after)
        for name in before.data_vars:
            for key in ("GRIB_paramId", "GRIB_stepType", "GRIB_gridType", "units"):
                assert before[name].attrs[key] == after[name].attrs[key]


@pytest.mark.parametrize("bits", [8, 12, 16, 24])
def test_packing_is_as_precise_as_is_said(fc: str, tmp_path: Path, bits: int) -> None:
    rng = np.random.default_rng(bits)
    fields = rng.normal(280, 15, (3, 7, 12)).astype(np.float32)
    write_own(fc, fields)
    with forebay.open(fc, timeout=0) as stream:
        left_out = grib.write_file(stream[0], tmp_path / "packed.grib2", bits=bits)
        grib.write_file(stream[0], tmp_path / "exact.grib2", packing="ieee")
    assert list(left_out) == ["other"]
    packed, exact = (
        theirs(tmp_path / "packed.grib2", "isobaricInhPa"),
        theirs(tmp_path / "exact.grib2", "isobaricInhPa"),
    )
    np.testing.assert_array_equal(exact["t"].values, fields)
    for found, field in zip(packed["t"].values.astype(np.float64), fields.astype(np.float64), strict=True):
        apart = np.abs(found - field).max()
        # Beside packing, the numbers are of single precision.
        assert apart <= (field.max() - field.min()) / (2**bits - 1) + np.spacing(np.float32(field.max()))
        assert apart > 0 or bits == 24
    assert exact["valid_time"].values == np.datetime64("2026-11-27T18:30")


def write_own(address: str, fields: Any, **attributes: Any) -> None:
    """A step of a program that had no GRIB file."""
    with forebay.open(address, "w") as stream, stream.step() as step:
        step["time"], step["forecast_reference_time"] = 1795804200, 1795780800
        step.write("latitude", np.linspace(50, 47, 7), dims=("latitude",))
        step.write("longitude", np.linspace(2, 7.5, 12), dims=("longitude",))
        step.write("levels/levels", np.array([1000.0, 850, 500]), dims=("levels",))
        step.write("levels/t", fields, dims=("levels", "latitude", "longitude"))
        step["other"] = np.zeros(3)
        given = {"levels/t/GRIB_shortName": "t", "levels/t/GRIB_typeOfLevel": "isobaricInhPa", **attributes}
        for name, value in given.items():
            step.attributes[name] = value


def test_what_grib_cannot_say_is_refused(fc: str, tmp_path: Path) -> None:
    fields = np.zeros((3, 7, 12), np.float32)
    with forebay.open(f"{fc}1", "w") as writer, writer.step() as step:
        step.write("t", fields, dims=("z", "latitude", "longitude"))
    with forebay.open(f"{fc}1", timeout=0) as stream, pytest.raises(InvalidArgumentError, match="t/GRIB_shortName"):
        grib.write_file(stream[0], tmp_path / "a.grib2")
    with forebay.open(f"{fc}2", "w") as writer, writer.step() as step:
        step["time"], step["forecast_reference_time"] = 0, 0
        step.write("latitude", np.array([50, 49, 47.0]), dims=("latitude",))
        step.write("longitude", np.array([1, 2.0]), dims=("longitude",))
        step.write("t", fields[0, :3, :2], dims=("latitude", "longitude"))
        step.attributes["t/GRIB_shortName"] = "t"
    with forebay.open(f"{fc}2", timeout=0) as stream, pytest.raises(UnsupportedError, match="not evenly spaced"):
        grib.write_file(stream[0], tmp_path / "a.grib2")
    write_own(f"{fc}3", fields)
    with forebay.open(f"{fc}3", timeout=0) as stream, pytest.raises(InvalidArgumentError, match="1 to 32"):
        grib.write_file(stream[0], tmp_path / "a.grib2", bits=40)
    assert not list(tmp_path.iterdir())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "grib", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds(110), check=False)


def test_commands_go_both_ways(fc: str, tmp_path: Path) -> None:
    paths = [write_cycle(tmp_path / f"fc{step}.grib2", step) for step in (1, 2)]
    paths.append(write_cycle(tmp_path / "fc3.grib2", 3, without=(3,)))
    done = run("ingest", *map(str, paths[:2]), fc, "--json")
    assert json.loads(done.stdout) == {"stream": fc, "written": [1, 2], "passed_over": [], "missing": {}}, done.stderr
    done = run("ingest", *map(str, paths), fc)
    assert done.stdout == f"{fc}: 1 steps written, 2 were there\n"
    assert done.stderr == "step 3 lacks heightAboveGround/t2m, which the step before has\n"
    done = run("export", fc, str(tmp_path / "out"), "--json", "--timeout", "60")
    assert json.loads(done.stdout)["written"] == [1, 2, 3], done.stderr
    for number, path in enumerate(paths, 1):
        for level_kind in LEVELS if number < 3 else ("isobaricInhPa", "surface"):
            xr.testing.assert_equal(
                theirs(path, level_kind), theirs(tmp_path / "out" / f"fc.{number:06d}.grib2", level_kind)
            )
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert json.loads(run("export", fc, str(tmp_path / "out"), "--json", "--timeout", "60").stdout)["written"] == []
    done = run("ingest", str(paths[0]), f"{fc}2", "--where", "typeOfLevel=surface,isobaricInhPa", "--double")
    with forebay.open(f"{fc}2", timeout=0) as stream:
        assert "heightAboveGround/t2m" not in stream[1]
        assert stream[1]["isobaricInhPa/t"].dtype == np.float64
    for arguments, text in (
        (("ingest", str(tmp_path / "absent"), fc), "no such file"),
        (("ingest", str(paths[0]), fc, "--where", "x"), "KEY=VALUE"),
        (("export", fc, str(tmp_path), "--bits", "8", "--packing", "ieee"), "--packing simple"),
    ):
        done = run(*arguments)
        assert done.returncode == 1
        assert text in done.stderr
