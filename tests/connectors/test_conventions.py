# SPDX-License-Identifier: Apache-2.0
"""Every connector understands a stream that keeps to docs/formats/conventions.md, and tells what it leaves out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

import forebay
import forebay.connectors.xarray
from forebay.connectors import arrow
from forebay.connectors.zarr import StreamStore
from forebay.mesh_attributes import MeshAttributes, mesh_attributes

Opened = Callable[[str], xr.Dataset]


def by_engine(address: str) -> xr.Dataset:
    return xr.open_dataset(f"forebay://{address}", engine="forebay")


def by_zarr(address: str) -> xr.Dataset:
    opened: xr.Dataset = xr.open_zarr(StreamStore(address), consolidated=False)
    return opened


def by_following(address: str) -> xr.Dataset:
    steps = list(forebay.connectors.xarray.follow(address, timeout=60))
    kept = steps[-1].attrs
    together = xr.concat(
        [step.drop_attrs() for step in steps], "step", data_vars="all", coords="different", compat="equals"
    )
    for name, variable in steps[-1].variables.items():
        together[name].attrs = variable.attrs
    return together.assign_attrs(kept)


every_way = pytest.mark.parametrize("opened", [by_engine, by_zarr, by_following])


@pytest.fixture
def stream_of_conventions(reservation: str) -> str:
    """3 steps of a field, its coordinate, groups, each type that a stream may have."""
    address = f"{reservation}/conventions"
    with forebay.open(address, mode="w") as stream:
        stream.attributes["T/units"] = "K"
        stream.attributes["time/units"] = "s"
        stream.attributes["E/axisLabels"] = ("y", "x")
        for number in range(3):
            with stream.step() as step:
                step.write("T", np.full((2, 3, 4), 300.0 + number), dims=("z", "y", "x"))
                step.write("x", np.linspace(0.0, 3.0, 4), dims=("x",))
                step["time"] = 0.5 * number
                step["E/r"] = np.full((3, 4), number, np.float32)
                step["wave"] = np.full(4, 1j * number, np.complex128)
                step["code"] = np.frombuffer(b"abcd", "S1")
                step["precise"] = np.full(4, number, np.longdouble)
                step["label"] = f"step {number}"
                step.write("pieces", np.zeros(2), kind="local_array")
    return address


@every_way
def test_dimensions_units_and_times(stream_of_conventions: str, opened: Opened) -> None:
    dataset = opened(stream_of_conventions)
    assert dataset["T"].dims == ("step", "z", "y", "x")
    assert dataset["T"].attrs["units"] == "K"
    assert np.asarray(dataset["step"]).tolist() == [0, 1, 2]
    assert np.asarray(dataset["T"])[:, 1, 2, 3].tolist() == [300.0, 301.0, 302.0]
    assert np.asarray(dataset["commit_time"]).dtype.kind == "M"
    places = np.asarray(dataset["x"])
    np.testing.assert_array_equal(places.reshape(-1, 4)[-1], [0.0, 1.0, 2.0, 3.0])


def test_time_is_that_of_the_simulation(stream_of_conventions: str) -> None:
    with by_engine(stream_of_conventions) as dataset:
        assert dataset["time"].dims == ("step",)
        assert dataset["time"].attrs["units"] == "s"
        assert dataset["time"].values.tolist() == [0.0, 0.5, 1.0]


def test_groups_have_their_own_names_and_openpmd_s_dimensions(stream_of_conventions: str) -> None:
    with xr.open_datatree(f"forebay://{stream_of_conventions}", engine="forebay") as tree:
        inside = tree["E"].to_dataset()
    by_store = xr.open_zarr(StreamStore(stream_of_conventions), group="E", consolidated=False)
    for group in (inside, by_store):
        assert group["r"].dims == ("step", "y", "x")
        assert "E/r" not in group


def test_types_are_kept_or_told(stream_of_conventions: str) -> None:
    with by_engine(stream_of_conventions) as dataset:
        assert dataset["wave"].values[2, 0] == 2j
        assert dataset["code"].values[0].tolist() == [b"a", b"b", b"c", b"d"]
        assert dataset["precise"].dtype == np.longdouble
        assert dataset["label"].values.tolist() == ["step 0", "step 1", "step 2"]
        assert [text.partition(":")[0] for text in dataset.attrs["forebay_left_out"]] == ["pieces"]
    store = by_zarr(stream_of_conventions)
    assert store["wave"].values[2, 0] == 2j
    left_out = {text.partition(":")[0] for text in store.attrs["forebay_left_out"]}
    assert left_out == {"code", "precise", "label", "pieces"}
    with forebay.open(stream_of_conventions) as stream:
        step = stream[1]
        for name in ("wave", "code", "precise"):
            with pytest.raises(forebay.UnsupportedError, match="Arrow has no"):
                arrow.tensor(step[name])
        assert arrow.tensor(step["pieces"], 0).to_numpy_ndarray().shape == (1, 2)


_VTK_XML = """
<VTKFile type="ImageData" version="0.1" byte_order="LittleEndian">
  <ImageData WholeExtent="0 4 0 3 0 2" Origin="1 2 3" Spacing="0.5 0.5 0.25">
    <Piece Extent="0 4 0 3 0 2">
      <CellData Scalars="U"> <DataArray Name="U" /> <DataArray Name="TIME"> step </DataArray> </CellData>
    </Piece>
  </ImageData>
</VTKFile>"""

_FIDES = {
    "Fides_Data_Model": "uniform",
    "Fides_Origin": np.array([1.0, 2.0, 3.0]),
    "Fides_Spacing": np.array([0.5, 0.5, 0.25]),
    "Fides_Dimension_Variable": "U",
    "Fides_Variable_List": ("U", "step"),
    "Fides_Variable_Associations": ("points", "points"),
}


@pytest.mark.parametrize("attributes", [{"vtk.xml": _VTK_XML}, _FIDES], ids=["vtk.xml", "Fides"])
@every_way
def test_meshes_of_adios2_programs_name_dimensions(
    reservation: str, opened: Opened, attributes: dict[str, object]
) -> None:
    address = f"{reservation}/mesh"
    with forebay.open(address, mode="w") as stream:
        for name, value in attributes.items():
            stream.attributes[name] = value
        with stream.step() as step:
            step["U"], step["V"], step["step"] = np.zeros((2, 3, 4)), np.zeros((2, 3, 5)), 7
            mesh = mesh_attributes(attributes)
    assert (mesh.origin, mesh.spacing) == ((1.0, 2.0, 3.0), (0.5, 0.5, 0.25))
    dataset = opened(address)
    assert dataset["U"].dims == ("step", "z", "y", "x")
    # The mesh does not name this one.
    assert dataset["V"].dims == ("step", "dim_0_2", "dim_1_3", "dim_2_5")


@pytest.mark.parametrize(
    "text",
    ["no XML", "<VTKFile/>", "<!DOCTYPE a [<!ENTITY b 'c'>]><VTKFile><ImageData/></VTKFile>", "<a>" * 100_000],
)
def test_attributes_that_describe_no_mesh_are_ignored(text: str) -> None:
    assert mesh_attributes({"vtk.xml": text}) == MeshAttributes()
    assert mesh_attributes({"Fides_Data_Model": "uniform", "Fides_Spacing": "wide"}) == MeshAttributes()
