# SPDX-License-Identifier: Apache-2.0
"""History files become steps, each record once: xarray reads the stream as it reads the file, bit by bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import forebay
import forebay.connectors.xarray
from forebay.connectors import netcdf
from forebay.connectors.netcdf.history import History
from forebay.connectors.netcdf.ingesting import Ingestion
from forebay.errors import AlreadyExistsError, CorruptError, ForebayError, InvalidArgumentError, NotFoundError
from tests.support.histories import FORMATS, MODELS, mom_file, nemo_file, wrf_file
from tests.support.time_limits import seconds


def times_of(address: str, name: str = "time") -> list[float]:
    """The time of each kept step."""
    with forebay.open(address, timeout=0) as stream:
        times: list[float] = stream.steps_at().values(name).tolist()
        return times


def expect_same(found: xr.Dataset, expected: xr.Dataset, record_dimension: str) -> None:
    """All variables of a file with dimensions, types, elements and attributes; and its own attributes."""
    for name in expected.variables:
        one, other = found[name].variable, expected[name].variable
        assert tuple(record_dimension if dim == "step" else dim for dim in one.dims) == other.dims, name
        assert one.dtype == other.dtype, name
        if one.dtype == object:
            np.testing.assert_array_equal(one.values, other.values)
        else:
            assert one.values.tobytes() == other.values.tobytes(), name
        assert one.attrs.keys() == other.attrs.keys(), name
        for key, value in other.attrs.items():
            np.testing.assert_array_equal(one.attrs[key], value)
    for key, value in expected.attrs.items():
        np.testing.assert_array_equal(found.attrs[key], value)
    # Also which are coordinates; the records' own dimension has another name here.
    assert set(map(str, expected.coords)) - {record_dimension} <= set(map(str, found.coords))


def opened(paths: Sequence[Path], record_dimension: str, **options: Any) -> xr.Dataset:
    """The files as xarray has them, one after another."""
    files = [xr.load_dataset(path, engine="netcdf4", **options) for path in paths]
    return xr.concat(
        files, record_dimension, data_vars="minimal", coords="minimal", compat="override", combine_attrs="override"
    ).assign_attrs(files[-1].attrs)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("model", MODELS)
def test_xarray_reads_the_stream_as_it_reads_the_files(reservation: str, tmp_path: Path, model: str, form: str) -> None:
    write, dimension = MODELS[model]
    paths = [write(tmp_path / "first.nc", [0, 1, 2], form), write(tmp_path / "second.nc", [3, 4], form)]
    address = f"{reservation}/history"
    with warnings.catch_warnings(action="error"):
        assert netcdf.ingest(paths, address) == 5
    for options in ({}, {"decode_cf": False}, {"mask_and_scale": False}):
        with xr.open_dataset(f"forebay://{address}", engine="forebay", **options) as dataset:
            assert dataset.attrs["forebay_left_out"] == []
            expect_same(dataset, opened(paths, dimension, **options), dimension)
            assert dataset["time"].dims == ("step",)
            if "decode_cf" not in options:
                days = {"wrf": "2026-11-01", "mom": "1900-01-02", "nemo": "2023-08-03"}
                assert str(dataset["time"].values[1])[:10] == days[model]


def test_variables_without_time_are_in_every_step(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    path = nemo_file(tmp_path / "a.nc", [0, 1, 2])
    netcdf.ingest([path], address, retention="last:1")
    with forebay.open(address, timeout=0) as stream, netCDF4.Dataset(path) as file:
        (step,) = stream
        assert step.number == 2
        assert step["nav_lat"].dims == ("y", "x")
        np.testing.assert_array_equal(step["nav_lat"][...], file["nav_lat"][...])
        assert step["rho0"].item() == 1026.0
        assert step["time"].item() == step["time_counter"].item() == file["time_counter"][2]
        assert step["time"].attributes["units"] == "seconds since 1900-01-01 00:00:00"
        assert step.attributes["record_dimension"] == "time_counter"


def test_dask_chunks_have_one_name_for_what_stays_the_same(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    path = nemo_file(tmp_path / "a.nc", [0, 1, 2])
    netcdf.ingest([path], address)
    with xr.open_dataset(f"forebay://{address}", engine="forebay", chunks={}) as dataset:
        assert dataset["nav_lat"].dims == ("y", "x")
        assert dataset["nav_lat"].chunks == ((5,), (7,))
        expect_same(dataset.compute(), opened([path], "time_counter"), "time_counter")
        part = dataset["nav_lat"].isel(y=[3, 0], x=slice(None, None, -2))
        np.testing.assert_array_equal(part, xr.open_dataset(path)["nav_lat"].isel(y=[3, 0], x=slice(None, None, -2)))


def test_each_record_is_there_once(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    first, second = mom_file(tmp_path / "a.nc", [0, 1]), mom_file(tmp_path / "b.nc", [1, 2, 3])
    assert netcdf.ingest([first], address) == 2
    assert netcdf.ingest([first, second], address) == 2
    assert netcdf.ingest([first, second], address) == 0
    # A file that its program went on with has more records.
    mom_file(tmp_path / "b.nc", [1, 2, 3, 4])
    assert netcdf.ingest([second], address) == 1
    assert times_of(address) == [0.5, 1.5, 2.5, 3.5, 4.5]
    # Dropped steps were there as well.
    with forebay.Admin() as admin:
        admin.set_retention(address, "last:2")
    assert netcdf.ingest([first, second], address) == 0
    assert times_of(address) == [3.5, 4.5]


def test_files_out_of_order_are_refused_not_passed_over(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    paths = [mom_file(tmp_path / f"{day}.nc", [day]) for day in (0, 2, 1)]
    with pytest.raises(InvalidArgumentError, match=r"time of record 0 is 1\.5.*newest step 2\.5.*in order") as refused:
        netcdf.ingest(paths, address)
    assert "1.nc" in str(refused.value)
    with pytest.raises(InvalidArgumentError, match="in order"):
        netcdf.ingest(paths[2:], address)
    assert times_of(address) == [0.5, 2.5]


def test_variables_are_chosen_and_the_time_comes_along(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    path = nemo_file(tmp_path / "a.nc", [0])
    netcdf.ingest([path], address, variables=["thetao"])
    with forebay.open(address, timeout=0) as stream:
        assert set(stream.variables) == {"thetao", "time_counter", "time"}
        assert not [name for name in stream.attributes if name.startswith("nav_lat/")]
    with pytest.raises(InvalidArgumentError, match="no variable 'salt' to take: it has nav_lat"):
        netcdf.ingest([path], f"{address}2", variables=["salt"])


def test_attributes_are_those_of_the_file_that_a_step_is_from(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    paths = [mom_file(tmp_path / "a.nc", [0]), mom_file(tmp_path / "b.nc", [1])]
    with netCDF4.Dataset(paths[0], "a") as file:
        file.only_here = "yes"
    with netCDF4.Dataset(paths[1], "a") as file:
        file["salt"].scale_factor = 0.5
    netcdf.ingest(paths, address)
    with forebay.open(address, timeout=0) as stream:
        assert stream[0].attributes["only_here"] == "yes"
        assert "only_here" not in stream[1].attributes
        assert [step.attributes["filename"] for step in stream] == ["a.nc", "b.nc"]
        assert [step["salt"].attributes["scale_factor"] for step in stream] == [0.001, 0.5]
    # Packed in two ways it is no array over all steps; each step by itself is.
    with xr.open_dataset(f"forebay://{address}", engine="forebay") as dataset:
        assert any(text.startswith("salt: its attribute") for text in dataset.attrs["forebay_left_out"])
    steps = list(forebay.connectors.xarray.follow(address, timeout=seconds(30)))
    expected = xr.load_dataset(paths[1])["salt"][0]
    assert steps[1]["salt"].values.tobytes() == expected.values.tobytes()


def test_what_a_stream_cannot_hold_is_told(reservation: str, tmp_path: Path) -> None:
    path = mom_file(tmp_path / "a.nc", [0])
    with netCDF4.Dataset(path, "a") as file:
        pairs = file.createVLType("i4", "pairs")
        file.createVariable("ragged", pairs, ("time",))
        file.createVariable("labels", str, ("time", "nv"))
        file.createVariable("label", str, ("time",))[0] = "first"
        file.createVariable("covariance", "f4", ("xt_ocean", "xt_ocean"))[:] = 1
        file["temp"].dims = "other"
        level = file.createGroup("level")
        level.createVariable("p", "f8", ("time",))[0] = 7.0
        level.about = "a group"
    told: list[str] = []
    netcdf.ingest([path], f"{reservation}/history", on_notice=told.append)
    assert sorted(text.partition(": ")[2] for text in told) == [
        "attribute temp/dims is left out: the dimensions have their names under it",
        "dimensions of covariance is left out: two of them have one name: xt_ocean, xt_ocean",
        "labels is left out: it is an array of texts, and a stream has single texts",
        "ragged is left out: its elements are of a type of its own, pairs",
    ]
    with forebay.open(f"{reservation}/history", timeout=0) as stream:
        step = stream[0]
        assert step["label"].item() == "first"
        assert step["level/p"].item() == 7.0
        assert step.attributes["level/about"] == "a group"
        assert step["covariance"].shape == (7, 7)
        assert step["temp"].dims == ("st_ocean", "yt_ocean", "xt_ocean")


def test_the_time_dimension_and_its_times_are_found_or_named(reservation: str, tmp_path: Path) -> None:
    path = tmp_path / "station.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("station", 3)
        file.createDimension("hour", 4)
        file.createVariable("p", "f4", ("station", "hour"))[:] = np.arange(12).reshape(3, 4)
    with pytest.raises(InvalidArgumentError, match=r"no time dimension.*--dimension.*station \(3\), hour \(4\)"):
        netcdf.ingest([path], f"{reservation}/a")
    with pytest.raises(InvalidArgumentError, match=r"along hour, none is a time.*--time.*--count"):
        netcdf.ingest([path], f"{reservation}/a", dimension="hour")
    with pytest.raises(InvalidArgumentError, match="no dimension 'day'; it has station"):
        netcdf.ingest([path], f"{reservation}/a", dimension="day")
    assert netcdf.ingest([path], f"{reservation}/a", dimension="hour", time=None) == 4
    assert netcdf.ingest([path], f"{reservation}/a", dimension="hour", time=None) == 4
    with forebay.open(f"{reservation}/a", timeout=0) as stream:
        assert stream["p"][2].tolist() == [2, 6, 10]
    with netCDF4.Dataset(path, "a") as file:
        file.createVariable("when", "i4", ("hour",))[:] = [10, 20, 30, 40]
    with pytest.raises(InvalidArgumentError, match="'p' has not one number for each record; choose from when"):
        netcdf.ingest([path], f"{reservation}/b", dimension="hour", time="p")
    assert netcdf.ingest([path], f"{reservation}/b", dimension="hour", time="when") == 4
    assert times_of(f"{reservation}/b") == [10, 20, 30, 40]
    with netCDF4.Dataset(path, "a") as file:
        file["when"].units = "hours since 2026-01-01"
        file.createVariable("later", "i4", ("hour",)).units = "hours since 2026-01-02"
    with pytest.raises(InvalidArgumentError, match=r"several variables are times \(when, later\)"):
        netcdf.ingest([path], f"{reservation}/c", dimension="hour")


def test_files_of_another_form_are_refused_by_name(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    netcdf.ingest([wrf_file(tmp_path / "a.nc", [0])], address)
    cases: list[tuple[Path, str]] = [
        (
            wrf_file(tmp_path / "wide.nc", [1], west_east=9),
            r"'XLAT' is float32 \(south_north=6, west_east=9\) in this file, and float32 \(.*, west_east=8\)",
        ),
        (mom_file(tmp_path / "ocean.nc", [1]), "'time' is one float64 in this file, and one int64"),
    ]
    with netCDF4.Dataset(wrf_file(tmp_path / "more.nc", [1]), "a") as file:
        file.createVariable("QVAPOR", "f4", ("Time", "south_north"))
    cases.append((tmp_path / "more.nc", r"'QVAPOR' is float32 \(south_north=6\) .*, and missing in the stream"))
    for path, text in cases:
        with pytest.raises(InvalidArgumentError, match=text) as refused:
            netcdf.ingest([path], address)
        assert str(path) in str(refused.value)
    assert netcdf.ingest([tmp_path / "more.nc"], f"{address}2") == 1
    netcdf.ingest([mom_file(tmp_path / "b.nc", [0])], f"{address}3")
    changed = mom_file(tmp_path / "c.nc", [1], units="days since 1900-01-02")
    with pytest.raises(InvalidArgumentError, match=r"units of 'time' is 'days since 1900-01-02' in this file"):
        netcdf.ingest([changed], f"{address}3")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_not_whole_is_refused_by_name(reservation: str, tmp_path: Path, form: str) -> None:
    address = f"{reservation}/history"
    whole = mom_file(tmp_path / "whole.nc", [0, 1], form)
    data = whole.read_bytes()
    # The last two bytes of a classic file may be padding.
    for size in (len(data) - 4, len(data) // 2, 100, 10, 0):
        path = tmp_path / f"{size}.nc"
        path.write_bytes(data[:size])
        with pytest.raises(CorruptError) as refused:
            netcdf.ingest([path], address)
        assert str(path) in str(refused.value)
        assert re.search("cut off|not whole|no netCDF file", str(refused.value))
    with forebay.Admin() as admin:
        assert admin.stream(address).steps == 0
    assert netcdf.ingest([whole], address) == 2


def test_other_bad_input_is_refused(reservation: str, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no netCDF at all" * 100)
    no_time = mom_file(tmp_path / "nan.nc", [0, 1])
    with netCDF4.Dataset(no_time, "a") as file:
        file["time"][1] = np.nan
    bad_date = wrf_file(tmp_path / "date.nc", [0])
    with netCDF4.Dataset(bad_date, "a") as file:
        file["Times"][0, 5:7] = np.array(list("13"), "S1")
    cases: list[tuple[Path, type[ForebayError], str]] = [
        (tmp_path / "missing.nc", NotFoundError, "there is no such file"),
        (text, CorruptError, "it is no netCDF file"),
        (tmp_path, InvalidArgumentError, "a folder"),
        (no_time, CorruptError, "record 1 has no time in 'time'"),
        (bad_date, CorruptError, "Times is '2026-13-01_00:00:00'"),
    ]
    for place, (path, kind, message) in enumerate(cases):
        with pytest.raises(kind, match=message) as refused:
            netcdf.ingest([path], f"{reservation}/history{place}")
        assert str(path) in str(refused.value)
    with pytest.warns(UserWarning, match="no records along time"):
        assert netcdf.ingest([mom_file(tmp_path / "empty.nc", [])], f"{reservation}/empty") == 0


def test_a_file_that_changes_while_it_is_read_gives_no_step(
    reservation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{reservation}/history"
    path = mom_file(tmp_path / "a.nc", [0, 1, 2], "NETCDF3_CLASSIC")
    read = History.read

    def read_and_grow(history: History, chosen: Any, record: int) -> Any:
        if record == 1 and chosen.name == "salt":
            with path.open("ab") as file:
                file.write(bytes(8))
        return read(history, chosen, record)

    monkeypatch.setattr(History, "read", read_and_grow)
    with pytest.raises(CorruptError, match=r"changed while it was read.*no program writes it.*a\.nc"):
        netcdf.ingest([path], address)
    assert times_of(address) == [0.5]
    monkeypatch.undo()
    assert netcdf.ingest([mom_file(path, [0, 1, 2])], address) == 2
    assert times_of(address) == [0.5, 1.5, 2.5]


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forebay", "netcdf", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds(100),
        env={**os.environ, **environment},
    )


@pytest.mark.timeout(300)
def test_the_commands(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    paths = [nemo_file(tmp_path / "a.nc", [0, 1]), nemo_file(tmp_path / "b.nc", [1, 2])]
    done = command("ingest", *paths, address, "--retention", "last:10")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{address}: 3 steps written, 1 records were there\n"
    done = command("ingest", *paths, address, "--json")
    assert done.stdout.split() == f'{{ "stream": "{address}", "written": 0, "passed": 4, "newest": 2 }}'.split()
    done = command("export", address, tmp_path / "all.nc", "--steps", "1:")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.replace("\n", "") == f"{tmp_path}/all.nc: 2 steps of {address}"
    with netCDF4.Dataset(tmp_path / "all.nc") as file:
        assert file["forebay_step"][:].tolist() == [1, 2]
    done = command("ingest", tmp_path / "none.nc", address)
    assert done.returncode == 1
    assert "there is no such file" in done.stderr
    assert command("ingest", paths[0], address, "--count", "--time", "time").returncode == 1


@pytest.mark.parametrize(
    "place", ["client.message.before_send:9", "client.part.before_send:1", "client.part.before_send:3"]
)
def test_each_record_is_there_once_through_a_kill(reservation: str, tmp_path: Path, place: str) -> None:
    address = f"{reservation}/history"
    paths = [wrf_file(tmp_path / f"wrfout_{first}.nc", [first, first + 1]) for first in (0, 2, 4)]
    assert command("ingest", *paths, address, FOREBAY_FAIL_POINT=f"{place}=kill").returncode < 0
    done = command("ingest", *paths, address)
    assert done.returncode == 0, done.stderr
    with xr.open_dataset(f"forebay://{address}", engine="forebay") as dataset:
        expect_same(dataset, opened(paths, "Time"), "Time")


@pytest.mark.parametrize("model", MODELS)
def test_an_exported_file_is_the_files_that_the_stream_is_from(reservation: str, tmp_path: Path, model: str) -> None:
    write, dimension = MODELS[model]
    paths = [write(tmp_path / "a.nc", [0, 1]), write(tmp_path / "b.nc", [2])]
    netcdf.ingest(paths, f"{reservation}/history")
    with warnings.catch_warnings(action="error"):
        assert netcdf.export(f"{reservation}/history", tmp_path / "all.nc") == 3
    for options in ({}, {"decode_cf": False}):
        expected = opened(paths, dimension, **options)
        for engine in ("netcdf4", "h5netcdf"):
            with xr.open_dataset(tmp_path / "all.nc", engine=engine, **options) as dataset:
                assert dataset.sizes == {**expected.sizes}
                assert set(dataset.variables) == {*expected.variables, "forebay_step"}
                if engine == "netcdf4":
                    expect_same(dataset, expected, dimension)
                    assert dataset.encoding["unlimited_dims"] == {dimension}
    # The way round: the file gives the same stream.
    netcdf.ingest([tmp_path / "all.nc"], f"{reservation}/again")
    with xr.open_dataset(f"forebay://{reservation}/again", engine="forebay") as dataset:
        expect_same(dataset, opened(paths, dimension), dimension)


def test_what_is_said_to_stay_the_same_and_does_not_is_kept(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/history"
    paths = [nemo_file(tmp_path / "a.nc", [0]), nemo_file(tmp_path / "b.nc", [1])]
    with netCDF4.Dataset(paths[1], "a") as file:
        file["nav_lat"][0, 0] = 45
        file["rho0"][...] = 1000
    netcdf.ingest(paths, address)
    netcdf.export(address, tmp_path / "all.nc")
    for place, engine in ((f"forebay://{address}", "forebay"), (tmp_path / "all.nc", "netcdf4")):
        with xr.open_dataset(place, engine=engine) as dataset:
            assert dataset["nav_lat"].dims[1:] == ("y", "x")
            assert dataset["nav_lon"].dims == ("y", "x")
            for number, path in enumerate(paths):
                np.testing.assert_array_equal(dataset["nav_lat"][number], xr.load_dataset(path)["nav_lat"])
            assert dataset["rho0"].values.tolist() == [1026, 1000]


def test_any_stream_is_exported(flow: str, tmp_path: Path) -> None:
    told: list[str] = []
    assert netcdf.export(flow, tmp_path / "flow.nc", on_notice=told.append) == 6
    assert sorted(text.partition(" is left out")[0] for text in told) == ["grows", "pieces", "sometimes"]
    with xr.open_dataset(tmp_path / "flow.nc", decode_times=False) as found:
        with xr.open_dataset(f"forebay://{flow}", engine="forebay") as stream:
            np.testing.assert_array_equal(found["T"], stream["T"])
            assert found["T"].attrs == {"units": "K"}
            assert found["T"].dims == ("time", "dim_0_8", "dim_1_12", "dim_2_16")
        assert found["time"].values.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
        assert found["forebay_step"].values.tolist() == [0, 1, 2, 3, 4, 5]
        assert found["label"].values.tolist() == [f"step {number}" for number in range(6)]
        assert found.attrs["title"] == "test"
    with netCDF4.Dataset(tmp_path / "flow.nc") as file:
        assert file["mesh/level"][4].tolist() == [4, 5, 6, 7, 8]
    with pytest.raises(AlreadyExistsError, match="choose another"):
        netcdf.export(flow, tmp_path / "flow.nc")
    with pytest.raises(InvalidArgumentError, match="'grows' cannot be written: it is global_array"):
        netcdf.export(flow, tmp_path / "part.nc", variables=["grows"])
    with pytest.raises(forebay.StepNotFoundError, match="does not keep step 17"):
        netcdf.export(flow, tmp_path / "part.nc", steps="1,17")
    assert netcdf.export(flow, tmp_path / "part.nc", variables=["T"], steps="2:4") == 2
    with netCDF4.Dataset(tmp_path / "part.nc") as file:
        assert set(file.variables) == {"T", "time", "forebay_step"}
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["flow.nc", "part.nc"]


def test_names_that_netcdf_cannot_hold_are_told(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/odd", mode="w") as stream, stream.step() as step:
        step["a"] = np.zeros(3)
        step["a/b"] = np.zeros(3)
        step["z"] = np.zeros(3, complex)
    told: list[str] = []
    with pytest.raises(forebay.UnsupportedError, match=r"netCDF cannot hold this variable.*choose others.*'a/b'"):
        netcdf.export(f"{reservation}/odd", tmp_path / "odd.nc", on_notice=told.append)
    assert told == ["z is left out: netCDF has no elements of type complex128"]
    assert list(tmp_path.iterdir()) == []


def test_a_writer_of_one_s_own_takes_files(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/history", "a") as stream:
        ingestion = Ingestion(stream)
        assert ingestion.add(mom_file(tmp_path / "a.nc", [0, 1])) == 2
        assert ingestion.add(mom_file(tmp_path / "b.nc", [1, 2])) == 1
        assert (ingestion.written, ingestion.passed) == (3, 1)
