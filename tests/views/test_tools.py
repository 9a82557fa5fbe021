# SPDX-License-Identifier: Apache-2.0
"""Programs and libraries that know nothing of Forebay open views."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkIOXML import vtkXMLImageDataReader

import forebay
from forebay.connectors import netcdf
from forebay.errors import UnsupportedError
from forebay.views.formats import format_named
from forebay.views.mounting import mount, unmount
from tests.support.histories import nemo_file
from tests.support.time_limits import seconds
from tests.support.views import can_mount, file_of, write_every_kind
from tests.viz.conftest import SHAPE, field, write_flow


def output_of(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds(60))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_h5dump_opens_a_step_while_the_stream_runs(
    reservation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_VIEWS", str(tmp_path / "views"))
    with forebay.open(f"{reservation}/flow", "w") as stream:
        with stream.step() as step:
            step["T"] = np.arange(10_000.0)
        told = output_of(
            "bash",
            "-c",
            f"h5dump -d T -s 9998 -c 2 $({sys.executable} -m forebay path {reservation}/flow@latest.h5)",
        )
    assert "(9998): 9998, 9999" in told


def test_h5dump_and_ncdump_read_every_kind(reservation: str, tmp_path: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    step = forebay.open(f"{reservation}/flow")[0]
    dumped = output_of("h5dump", file_of(step, "h5", tmp_path / "view.h5"))
    assert dumped.count('DATASET "block_') == 2
    assert "lzern" in dumped  # it escapes other letters
    # netCDF has no complex numbers; all other variables it shows.
    head = output_of("ncdump", "-h", file_of(step, "nc", tmp_path / "view.nc"))
    assert "double slabs(z, y, x)" in head
    assert re.search(r"int columns\(dim_0_64, dim_1_64\)", head)
    numbers = output_of("ncdump", "-v", "slabs", tmp_path / "view.nc").partition("slabs =")[2]
    found = np.array([float(word) for word in numbers.partition(";")[0].split(",")])
    np.testing.assert_array_equal(found, step["slabs"][...].ravel())


@pytest.mark.filterwarnings("ignore:The .phony_dims. kwarg")  # of the array without elements
def test_netcdf_libraries_and_xarray_read_a_view(reservation: str, tmp_path: Path) -> None:
    write_every_kind(f"{reservation}/flow")
    step = forebay.open(f"{reservation}/flow")[0]
    path = file_of(step, "nc", tmp_path / "view.nc")
    with netCDF4.Dataset(path) as file:
        assert file["slabs"].dimensions == ("z", "y", "x")
        assert file["slabs"].units == "K"
        np.testing.assert_array_equal(file["slabs"][...], step["slabs"][...])
        np.testing.assert_array_equal(file["local/block_000001"][...], np.arange(10))
    for engine in ("h5netcdf", "netcdf4"):
        with xr.open_dataset(path, engine=engine) as dataset:
            np.testing.assert_array_equal(dataset["slabs"].sel(x=1.0), step["slabs"][:, :, -1])
            assert dataset["columns"].dims == ("dim_0_64", "dim_1_64")
            assert dataset["time"].item() == 0


def test_ncdump_reads_an_exported_stream(reservation: str, tmp_path: Path) -> None:
    netcdf.ingest([nemo_file(tmp_path / "nemo.nc", [0, 1])], f"{reservation}/history")
    netcdf.export(f"{reservation}/history", tmp_path / "all.nc")
    before, after = (output_of("ncdump", tmp_path / name) for name in ("nemo.nc", "all.nc"))
    for line in ("time_counter = UNLIMITED ; // (2 currently)", "float thetao(time_counter, deptht, y, x) ;"):
        assert line in before
        assert line in after
    for name in ("thetao", "nav_lat", "time_counter_bounds"):
        assert after.partition(f" {name} =")[2].partition(";")[0] == before.partition(f" {name} =")[2].partition(";")[0]


def test_vtk_reads_a_view(reservation: str, tmp_path: Path) -> None:
    write_flow(f"{reservation}/flow", 0, 2)
    step = forebay.open(f"{reservation}/flow")[1]
    reader = vtkXMLImageDataReader()
    reader.SetFileName(str(file_of(step, "vti", tmp_path / "view.vti")))
    reader.Update()
    image = reader.GetOutput()
    assert image.GetSpacing() == (0.5, 0.5, 0.5)
    assert image.GetOrigin() == (1.0, 2.0, 3.0)
    cells = image.GetCellData()
    np.testing.assert_array_equal(vtk_to_numpy(cells.GetArray("T")).reshape(SHAPE), field(1))
    np.testing.assert_array_equal(vtk_to_numpy(cells.GetArray("velocity")).reshape(*SHAPE, 3)[..., 1], 2 * field(1))
    assert image.GetFieldData().GetArray("TimeValue").GetValue(0) == 0.25
    sealed = format_named("vti").lay_out(step, None)
    assert all(run.offset % 4096 == 0 for run in sealed.arrays)


def test_vti_refuses_what_it_cannot_hold(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream, stream.step() as step:
        step.write("T", np.zeros((2, 2, 3)), dims=("z", "y", "x"))
        step.write("x", np.array([0.0, 1.0, 4.0]), dims=("x",))
        step.write("y", np.array([0.0, 1.0]), dims=("y",))
        step.write("z", np.array([0.0, 1.0]), dims=("z",))
    with pytest.raises(UnsupportedError, match="differ in size"):
        format_named("vti").lay_out(forebay.open(f"{reservation}/flow")[0], None)


@pytest.mark.skipif(not can_mount(), reason="this user may not mount by FUSE")
def test_tools_open_the_files_of_a_mount(reservation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_VIEWS", str(tmp_path / "views"))
    write_flow(f"{reservation}/flow", 0, 2)
    folder = tmp_path / "mounted"
    folder.mkdir()
    mount(f"{reservation}/flow", folder, ["h5", "nc", "vti"], None)
    try:
        assert 'DATASET "T"' in output_of("h5dump", "-H", folder / "flow@latest.h5")
        assert "float T(" in output_of("ncdump", "-h", folder / "flow@1.nc")
        reader = vtkXMLImageDataReader()
        reader.SetFileName(str(folder / "flow@1.vti"))
        reader.Update()
        array = reader.GetOutput().GetCellData().GetArray("T")
        np.testing.assert_array_equal(vtk_to_numpy(array).reshape(SHAPE), field(1))
        with xr.open_dataset(folder / "flow@1.nc", engine="h5netcdf") as dataset:
            np.testing.assert_array_equal(dataset["T"], field(1))
    finally:
        unmount(folder)
