# SPDX-License-Identifier: Apache-2.0
"""xarray's engine over a real server: right values, views, laziness, and never another stream's data."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import threading

import numpy as np
import pytest
import xarray as xr
import zarr

import forebay
import forebay.connectors.xarray
from forebay.connectors.stream_table import block_grid
from forebay.connectors.zarr import StreamStore
from tests.connectors.conftest import temperature
from tests.support.time_limits import seconds


@pytest.fixture
def whole() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """All of ``T``."""
    return np.stack([temperature(number) for number in range(6)])


def test_dataset_has_the_stream_s_values_coordinates_and_attributes(flow: str, whole: np.ndarray) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay") as dataset:
        assert dataset["T"].dims[0] == "step"
        assert dataset["T"].attrs == {"units": "K"}
        assert dataset.attrs["title"] == "test"
        assert dataset["step"].values.tolist() == [0, 1, 2, 3, 4, 5]
        assert dataset["time"].values.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
        assert dataset["commit_time"].dtype == "datetime64[ns]"
        assert dataset["label"].values.tolist() == [f"step {number}" for number in range(6)]
        np.testing.assert_array_equal(dataset["T"].values, whole)
        assert dataset["mesh/level"].sel(step=4).values.tolist() == [4, 5, 6, 7, 8]


def test_address_alone_chooses_the_engine(flow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where netCDF4 is installed, its engine is asked first, and claims every address.
    monkeypatch.setattr(xr.backends.NetCDF4BackendEntrypoint, "guess_can_open", lambda *_: False)
    with xr.open_dataset(f"forebay://{flow}") as dataset:
        assert "T" in dataset


def test_variables_that_do_not_fit_are_listed_with_the_reason(flow: str) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay") as dataset:
        assert not {"grows", "sometimes", "pieces"} & set(dataset)
        left_out = dataset.attrs["forebay_left_out"]
    assert any(text.startswith("grows: it is global_array of float64 (1,) in step 0, but") for text in left_out)
    assert "sometimes: 3 of 6 steps do not have it, step 1 first" in left_out
    assert any(text.startswith("pieces: a local array has no global shape") for text in left_out)


@pytest.mark.parametrize(
    "index",
    [
        (3,),
        (slice(1, 6, 2), 2, slice(None, None, -1)),
        (slice(None, None, -1), slice(2, 7), 5, [3, 0, 9]),
        ([5, 0, 3], [1, 1, 7], slice(0, 0)),
        (-1, [], slice(None), 2),
        (slice(2, 3), slice(1, 3), slice(6, 9), slice(4, 8)),
    ],
)
def test_selections_are_numpy_s(flow: str, whole: np.ndarray, index: tuple[object, ...]) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay") as dataset:
        dims = dataset["T"].dims
        selected = dataset["T"].isel(dict(zip(dims, index, strict=False)))  # outer indexing
        expected = xr.DataArray(whole, dims=dims).isel(dict(zip(dims, index, strict=False)))
        np.testing.assert_array_equal(selected.values, expected.values)
        assert selected.shape == expected.shape


def test_pointwise_selection_is_numpy_s(flow: str, whole: np.ndarray) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay") as dataset:
        _, z, y, x = dataset["T"].dims
        steps, rows = xr.DataArray([0, 5, 2], dims="point"), xr.DataArray([7, 1, 1], dims="point")
        selected = dataset["T"].isel({"step": steps, z: rows, y: 3, x: 4})
        np.testing.assert_array_equal(selected.values, whole[[0, 5, 2], [7, 1, 1], 3, 4])


def test_selection_in_one_block_is_a_view_that_pins(flow: str) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", cache=False) as dataset:
        _, z, y, _ = dataset["T"].dims
        inside = dataset["T"].isel({"step": 2, z: slice(0, 4), y: slice(6, 12)}).values
        assert not inside.flags.writeable
        np.testing.assert_array_equal(inside, temperature(2)[0:4, 6:12])
        with forebay.Admin() as admin:
            assert admin.steps(flow)[2].pins == 1


def test_chunks_are_the_blocks(flow: str, whole: np.ndarray) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", chunks={}) as dataset:
        assert dataset["T"].chunks == ((1,) * 6, (4, 4), (6, 6), (16,))
        assert float(dataset["T"].mean()) == pytest.approx(whole.mean(), rel=1e-14)


def test_groups_become_a_tree(flow: str) -> None:
    with xr.open_datatree(f"forebay://{flow}", engine="forebay") as tree:
        assert np.asarray(tree["mesh/level"])[1].tolist() == [1, 2, 3, 4, 5]
        assert "T" in tree.to_dataset()
        assert "mesh/level" not in tree.to_dataset()
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", group="mesh", drop_variables="none") as mesh:
        assert list(mesh) == ["level"]


@pytest.fixture
def crossed(reservation: str) -> str:
    """Names that are both a variable's and a group's, and two names of one path."""
    address = f"{reservation}/crossed"
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["E"] = 1.0
        step["E/x"] = np.arange(3.0)
        step["E/fine/x"] = np.arange(2.0)
        step["/data/0/rho"] = 2.0
        step["data//0/rho"] = 3.0
    return address


def test_variable_with_the_name_of_a_group_is_left_out_of_the_tree(crossed: str) -> None:
    with xr.open_datatree(f"forebay://{crossed}", engine="forebay") as tree:
        assert {"/", "/E", "/E/fine", "/data", "/data/0"} == set(tree.groups)
        assert float(tree["data/0/rho"][0]) == 2.0
        assert "E: a group has its name: open the stream without groups" in tree.attrs["forebay_left_out"]
        left_out = tree["data/0"].attrs["forebay_left_out"]
        assert "data//0/rho: it has the same path as '/data/0/rho': open the stream without groups" in left_out
    with xr.open_dataset(f"forebay://{crossed}", engine="forebay") as dataset:
        assert {"E", "E/x", "/data/0/rho", "data//0/rho"} <= set(dataset)


def test_group_that_is_not_there_is_an_error_that_names_those_that_are(crossed: str, flow: str) -> None:
    for group in ("mash", "E/x", "fine"):
        with pytest.raises(forebay.NotFoundError, match=f"no group {group}; it has E, E/fine, data and 1 more"):
            xr.open_dataset(f"forebay://{crossed}", engine="forebay", group=group)
    for group in ("", "/", "data", "/E/fine/"):
        xr.open_dataset(f"forebay://{crossed}", engine="forebay", group=group).close()


def test_pickled_dataset_reads_in_another_place(flow: str, whole: np.ndarray) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", cache=False) as dataset:
        again = pickle.loads(pickle.dumps(dataset))
        np.testing.assert_array_equal(again["T"].values, whole)


def test_pickle_never_reads_another_stream_of_the_name(flow: str) -> None:
    dataset = xr.open_dataset(f"forebay://{flow}", engine="forebay", cache=False)
    pickled = pickle.dumps(dataset)
    with forebay.Admin() as admin:
        admin.remove_stream(flow)
    with forebay.open(flow, mode="w") as stream:
        for number in range(6):
            with stream.step() as step:
                step["T"] = -temperature(number)
    with pytest.raises(forebay.StreamNotFoundError, match="removed and created again"):
        pickle.loads(pickled)
    with pytest.raises(forebay.ForebayError):
        _ = dataset["T"].values


def test_replaced_stream_is_an_error_not_other_data(flow: str) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", cache=False) as dataset:
        pickled = pickle.dumps(dataset)
        with forebay.open(flow, mode="w") as stream:
            for number in range(6):
                with stream.step() as step:
                    step["T"] = -temperature(number)
        for opened in (dataset, pickle.loads(pickled)):
            with pytest.raises(forebay.StepGoneError, match="open the stream again"):
                _ = opened["T"].values


def test_dropped_step_names_the_retention_to_set(flow: str) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", cache=False) as dataset:
        with forebay.Admin() as admin:
            admin.set_retention(flow, "last:2")
        with pytest.raises(forebay.StepGoneError, match=r"retention is 'last:2'.*consumers:NAME"):
            _ = dataset["T"].isel(step=0).values
        np.testing.assert_array_equal(dataset["T"].isel(step=5).values, temperature(5))


def test_missing_and_empty_streams_are_told_at_once(reservation: str) -> None:
    with pytest.raises(forebay.StreamNotFoundError):
        xr.open_dataset(f"forebay://{reservation}/none", engine="forebay")
    with forebay.open(f"{reservation}/empty", mode="w"), pytest.raises(forebay.StepNotFoundError, match="no steps yet"):
        xr.open_dataset(f"forebay://{reservation}/empty", engine="forebay")


def test_followed_steps_are_datasets_with_all_variables(flow: str) -> None:
    steps = list(forebay.connectors.xarray.follow(flow, consumer="look", timeout=seconds(30)))
    assert [int(dataset["step"]) for dataset in steps] == [0, 1, 2, 3, 4, 5]
    assert [dataset["grows"].size for dataset in steps] == [1, 2, 3, 4, 5, 6]
    assert ["sometimes" in dataset for dataset in steps] == [True, False] * 3
    assert float(steps[3]["time"]) == 1.5
    np.testing.assert_array_equal(steps[5]["T"].values, temperature(5))


def test_blocks_that_are_no_grid_are_not_taken_for_one(reservation: str) -> None:
    with forebay.open(f"{reservation}/uneven", mode="w") as stream, stream.step() as step:
        step.write("brick", np.zeros((2, 4)), shape=(4, 4), start=(0, 0))
        step.write("brick", np.zeros((2, 3)), shape=(4, 4), start=(2, 0))
        step.write("brick", np.zeros((2, 1)), shape=(4, 4), start=(2, 3))
        step.write("gap", np.zeros(2), shape=(4,), start=(0,))
        step.write("uneven", np.zeros(3), shape=(4,), start=(0,))
        step.write("uneven", np.zeros(1), shape=(4,), start=(3,))
    with forebay.open(f"{reservation}/uneven") as opened:
        step_read = opened[0]
        assert block_grid(step_read["brick"]) is None
        assert block_grid(step_read["gap"]) is None
        assert block_grid(step_read["uneven"]) == ((3, 1),)
    with xr.open_dataset(f"forebay://{reservation}/uneven", engine="forebay", chunks={}) as dataset:
        assert dataset["brick"].chunks == ((1,), (4,), (4,))


def test_named_dimensions_are_the_stream_s_and_give_coordinates(reservation: str) -> None:
    address = f"{reservation}/named"
    with forebay.open(address, mode="w") as stream:
        for number in range(3):
            with stream.step() as step:
                step.write("T", np.full((4, 5), float(number)), dims=("y", "x"))
                step.write("p", np.ones((4, 5)), dims=("y", "x"))
                step.write("x", np.linspace(0.0, 1.0, 5), dims=("x",))
                step.write("y", np.arange(4.0) + number, dims=("y",))
                step.write("coarse", np.zeros(2), dims=("x",))
                step.write("odd", np.zeros(3), dims=("step",))
    with xr.open_dataset(f"forebay://{address}", engine="forebay", chunks={}) as dataset:
        assert dataset["T"].dims == ("step", "y", "x")
        assert "dims" not in dataset["T"].attrs
        assert dataset["x"].dims == ("x",)
        assert float((dataset["T"] + dataset["p"]).sel(x=0.75).isel(step=2, y=1)) == 3.0
        left_out = dataset.attrs["forebay_left_out"]
    assert left_out == [
        "y: it has the name of a dimension, but it is no coordinate that stays the same in all steps",
        "coarse: its dimension x has 2 elements, that of other variables 5",
        "odd: one of its dimensions is called step, as that of the steps is",
    ]
    steps = list(forebay.connectors.xarray.follow(address, timeout=seconds(30)))
    assert [float(step["y"][0]) for step in steps] == [0.0, 1.0, 2.0]
    assert steps[1]["T"].dims == ("y", "x")


def test_thousands_of_steps_open_in_one_look(reservation: str) -> None:
    address = f"{reservation}/many"
    with forebay.open(address, mode="w") as stream:
        for number in range(2000):
            with stream.step() as step:
                step["time"] = 0.5 * number
                step["T"] = np.full(4, float(number))
    with xr.open_dataset(f"forebay://{address}", engine="forebay") as dataset:
        assert dataset.sizes["step"] == 2000
        assert float(dataset["time"][-1]) == 999.5
        assert float(dataset["T"].isel(step=1234)[0]) == 1234.0
        assert len(pickle.dumps(dataset)) < 200_000


def test_variables_named_as_the_steps_own_coordinates_are_left_out_by_name(reservation: str) -> None:
    with forebay.open(f"{reservation}/named", mode="w") as stream, stream.step() as step:
        step["step"], step["T"], step["mesh/step"] = 70, np.zeros(3), np.zeros(2)
    with xr.open_dataset(f"forebay://{reservation}/named", engine="forebay") as dataset:
        assert dataset["step"].values.tolist() == [0]
        assert any(text.startswith("step: the numbers of the steps") for text in dataset.attrs["forebay_left_out"])
    with xr.open_datatree(f"forebay://{reservation}/named", engine="forebay") as tree:
        assert any(text.startswith("mesh/step: ") for text in tree["mesh"].attrs["forebay_left_out"])
    (followed,) = forebay.connectors.xarray.follow(f"{reservation}/named", timeout=seconds(60))
    assert int(followed["step"]) == 0
    assert followed.attrs["forebay_left_out"] == [
        "step: the numbers of the steps are called so: read the variable step by step"
    ]
    assert zarr.open_group(StreamStore(f"{reservation}/named"), mode="r")["step"][:].tolist() == [0]


@pytest.mark.parametrize("checksums", [True, False])
def test_coordinate_that_moves_and_comes_back_is_none(reservation: str, checksums: bool) -> None:
    address = f"{reservation}/moving"
    with forebay.open(address, mode="w", checksums=checksums) as stream:
        for shift in (0, 10, 0):
            with stream.step() as step:
                step.write("T", np.arange(3.0), dims=("x",))
                step.write("x", np.arange(3) + shift, dims=("x",))
                step.write("w", np.array([np.nan, 1.0]), dims=("w",))
    with xr.open_dataset(f"forebay://{address}", engine="forebay") as dataset:
        assert "x" not in dataset.coords
        assert dataset["w"].dims == ("w",)  # the same in all steps, NaN included
        assert any(text.startswith("x: it has the name of a dimension") for text in dataset.attrs["forebay_left_out"])
    group = zarr.open_group(StreamStore(address), mode="r")
    assert group["x"][:].tolist() == [[0, 1, 2], [10, 11, 12], [0, 1, 2]]
    assert group["w"].shape == (2,)


@pytest.fixture
def conventional(reservation: str) -> str:
    """Two steps with attributes of the CF conventions: packed, filled, unsigned, and times."""
    address = f"{reservation}/conventional"
    with forebay.open(address, mode="w") as stream:
        stream.attributes["packed/scale_factor"] = 0.5
        stream.attributes["packed/add_offset"] = 10.0
        stream.attributes["packed/_FillValue"] = np.int16(-1)
        stream.attributes["real/_FillValue"] = -999.0
        stream.attributes["whole/_FillValue"] = -999.0  # a type of its own
        stream.attributes["array/_FillValue"] = np.array([-999.0])
        stream.attributes["never/_FillValue"] = float("nan")  # no whole number is it
        stream.attributes["when/units"] = "hours since 2026-01-01"
        stream.attributes["time/units"] = "seconds since 2026-01-01"
        stream.attributes["real/units"] = "K"
        for number in range(2):
            with stream.step() as step:
                step.write("packed", np.array([number, -1, 4], np.int16), dims=("x",))
                step.write("real", np.array([1.0, -999.0, number]), dims=("x",))
                step.write("whole", np.array([1, -999, number], np.int32), dims=("x",))
                step.write("array", np.array([1.0, -999.0, number], np.float32), dims=("x",))
                step.write("never", np.array([1, 2, number], np.int32), dims=("x",))
                step.write("when", np.arange(3) + number, dims=("x",))
                step["time"] = 60.0 * number
    return address


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask_and_scale": False},
        {"decode_times": False},
        {"decode_cf": False},
        {"decode_times": xr.coders.CFDatetimeCoder(time_unit="s")},
    ],
)
@pytest.mark.parametrize("chunks", [None, {}])
def test_engine_and_store_decode_alike(conventional: str, options: dict[str, object], chunks: object) -> None:
    with (
        xr.open_dataset(f"forebay://{conventional}", engine="forebay", chunks=chunks, **options) as dataset,
        xr.open_zarr(StreamStore(conventional), consolidated=False, chunks=chunks, **options) as stored,
    ):
        assert set(dataset.variables) == set(stored.variables)
        for name in dataset.variables:
            assert dataset[name].dtype == stored[name].dtype, name
            np.testing.assert_array_equal(dataset[name].values, stored[name].values, name)
        if not options:
            np.testing.assert_array_equal(dataset["packed"].values, [[10.0, np.nan, 12.0], [10.5, np.nan, 12.0]])
            assert np.isnan(dataset["real"].values[:, 1]).all()
            assert dataset["when"].values[1, 0] == np.datetime64("2026-01-01T01:00:00")
            assert dataset["time"].values[1] == np.datetime64("2026-01-01T00:01:00")
            followed = list(forebay.connectors.xarray.follow(conventional, timeout=seconds(60)))
            np.testing.assert_array_equal(followed[1]["packed"].values, dataset["packed"].values[1])
            assert followed[1]["time"].values == dataset["time"].values[1]


@pytest.mark.parametrize(
    "options",
    [{"use_cftime": True}, {"decode_times": xr.coders.CFDatetimeCoder(use_cftime=True)}],
    ids=["use_cftime", "coder"],
)
@pytest.mark.filterwarnings("ignore:Usage of 'use_cftime':FutureWarning")
def test_calendars_are_for_the_stream_s_own_times(conventional: str, options: dict[str, object]) -> None:
    cftime = pytest.importorskip("cftime")
    with xr.open_dataset(f"forebay://{conventional}", engine="forebay", **options) as dataset:
        assert dataset["time"].values[1] == cftime.DatetimeProlepticGregorian(2026, 1, 1, 0, 1)
        with forebay.open(conventional) as stream:
            assert dataset["commit_time"].values[1] == np.datetime64(stream[1].time_ns, "ns")


def test_followed_steps_are_decoded_as_asked(conventional: str) -> None:
    first, _ = forebay.connectors.xarray.follow(
        conventional, timeout=seconds(60), mask_and_scale=False, decode_times=False
    )
    assert first["packed"].values.tolist() == [0, -1, 4]
    assert first["when"].values.tolist() == [0, 1, 2]
    with forebay.Admin() as admin:
        assert admin.steps(conventional)[0].pins == 1  # what is not decoded is a view


def test_decoded_chunks_are_named_by_the_steps(conventional: str) -> None:
    names = []
    for _ in range(2):
        with xr.open_dataset(f"forebay://{conventional}", engine="forebay", chunks={}) as dataset:
            names.append(dataset["packed"].data.name)
    with forebay.open(conventional, mode="w") as stream, stream.step() as step:
        step["packed"] = np.zeros(3)
    with xr.open_dataset(f"forebay://{conventional}", engine="forebay", chunks={}) as dataset:
        names.append(dataset["packed"].data.name)
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("name", "values"), [("units", ("K", "C")), ("scale_factor", (1.0, 2.0)), ("add_offset", (None, 2.0))]
)
def test_variable_whose_meaning_changes_is_left_out(reservation: str, name: str, values: tuple[object, ...]) -> None:
    address = f"{reservation}/changing"
    with forebay.open(address, mode="w") as stream:
        for value in values:
            if value is not None:
                stream.attributes[f"T/{name}"] = value
            with stream.step() as step:
                step["T"], step["p"] = np.zeros(3), np.ones(3)
    with xr.open_dataset(f"forebay://{address}", engine="forebay") as dataset:
        assert "p" in dataset
        [reason] = dataset.attrs["forebay_left_out"]
    assert reason.startswith(f"T: its attribute 'T/{name}' is another one in step 0 than in step 1")


def in_child(dataset: xr.Dataset) -> float:
    return float(dataset["T"].isel(step=3).mean())


def test_pickle_that_the_parent_holds_too_is_read_in_a_forked_pool(flow: str) -> None:
    expected = temperature(3).mean()
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", cache=False) as opened:
        dataset = pickle.loads(pickle.dumps(opened))
        assert in_child(dataset) == pytest.approx(expected)  # so the parent holds an open stream of the pickle
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map_async(in_child, [dataset] * 4).get(60)
    assert found == [pytest.approx(expected)] * 4


def test_opening_takes_what_forebay_open_takes(reservation: str) -> None:
    address = f"{reservation}/later"

    def produce() -> None:
        with forebay.open(address, mode="w", run="second") as stream, stream.step() as step:
            step["T"] = np.full(3, 2.0)

    with forebay.open(address, mode="w", run="first") as stream, stream.step() as step:
        step["T"] = np.full(3, 1.0)
    writer = threading.Timer(0.2, produce)
    writer.start()
    [followed] = forebay.connectors.xarray.follow(address, run="second", timeout=seconds(60))
    writer.join()
    assert float(followed["T"][0]) == 2.0
    with xr.open_dataset(f"forebay://{address}", engine="forebay", run="second") as dataset:
        assert float(dataset["T"].max()) == 2.0
    assert zarr.open_group(StreamStore(address, run="second"), mode="r")["T"][0, 0] == 2.0
    with pytest.raises(forebay.ArgumentTypeError, match="wait_for_writer"):
        xr.open_dataset(f"forebay://{address}", engine="forebay", wait_for_writter=True)
    with (
        forebay.open(address) as opened,
        pytest.raises(forebay.InvalidArgumentError, match="has its run already"),
    ):
        StreamStore(opened, run="second")


def test_who_follows_an_ended_run_is_told(flow: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "forebay.waiting"):
        list(forebay.connectors.xarray.follow(flow, timeout=seconds(60)))
    [told] = [record.getMessage() for record in caplog.records]
    assert "its writer has gone (ended); reading the last run, steps 0 to 5" in told
    assert "wait_for_writer=True or run=NAME" in told
