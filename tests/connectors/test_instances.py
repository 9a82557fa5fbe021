# SPDX-License-Identifier: Apache-2.0
"""Connectors read of the instance that they are given, also after a pickle, when the environment names none."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster

import forebay
from forebay.connectors import arrow
from forebay.connectors.dask import map_steps
from forebay.connectors.training import StreamSamples
from forebay.connectors.xarray import follow
from forebay.connectors.zarr import StreamStore
from tests.support.staging_server import StagingServer

ADDRESS = "run1/flow"
URL = f"forebay://{ADDRESS}"
FILE = "forebay://run1/files/value.csv"
MARKS = (1, 2)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Two instances with a stream and a file of the same names. All that is in one of them has the value of its mark,
    and its stream has as many steps.
    """
    folder = tmp_path_factory.mktemp("instances")
    with StagingServer(folder / "one") as one, StagingServer(folder / "two") as two:
        found = dict(zip(MARKS, (one.root, two.root), strict=True))
        for mark, root in found.items():
            with forebay.Admin(root) as admin:
                files = Path(admin.create("run1", "16MiB", files="16MiB").files_path)
            (files / "value.csv").write_text(f"value\n{mark}\n")
            with forebay.open(ADDRESS, mode="w", instance=root) as stream:
                for _ in range(mark):
                    stream.write("T", np.full(4, float(mark)))
        yield found


@pytest.fixture(autouse=True)
def environment_without_an_instance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FOREBAY_SERVER", "FOREBAY_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FOREBAY_ROOT", str(tmp_path / "nowhere"))


def by_xarray(root: Path) -> Any:
    with xr.open_dataset(URL, engine="forebay", instance=root) as dataset:
        return dataset["T"].values


def by_xarray_in_chunks(root: Path) -> Any:
    with xr.open_dataset(URL, engine="forebay", chunks={}, instance=root) as dataset:
        return dataset["T"].compute().values


def by_tree(root: Path) -> Any:
    return xr.open_datatree(URL, engine="forebay", instance=root)["T"].values


def by_following(root: Path) -> Any:
    return [step["T"].values for step in follow(ADDRESS, instance=root)]


def by_zarr(root: Path) -> Any:
    return zarr.open_group(StreamStore(ADDRESS, instance=root), mode="r")["T"][...]


def by_particles(root: Path) -> Any:
    return arrow.particle_reader(ADDRESS, ["T"], instance=root).read_all()["T"].to_numpy()


def by_blocks(root: Path) -> Any:
    return arrow.blocks(ADDRESS, "T", instance=root)["max"].to_numpy()


def by_steps(root: Path) -> Any:
    return arrow.steps(ADDRESS, instance=root).num_rows


def by_samples(root: Path) -> Any:
    return [sample["T"] for sample in StreamSamples(ADDRESS, ["T"], instance=root)]


def by_file(root: Path) -> Any:
    with fsspec.open(FILE, "r", instance=root) as file:
        return float(file.read().split()[1])


def by_storage_options(root: Path) -> Any:
    return pd.read_csv(FILE, storage_options={"instance": str(root)})["value"].to_numpy()


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(
    "read",
    [
        by_xarray,
        by_xarray_in_chunks,
        by_tree,
        by_following,
        by_zarr,
        by_particles,
        by_blocks,
        by_steps,
        by_samples,
        by_file,
        by_storage_options,
    ],
)
def test_the_instance_that_is_named_is_read(roots: dict[int, Path], read: Callable[[Path], Any], mark: int) -> None:
    assert np.unique(read(roots[mark])).tolist() == [mark]


@pytest.mark.parametrize("mark", MARKS)
def test_pickles_carry_the_instance(roots: dict[int, Path], monkeypatch: pytest.MonkeyPatch, mark: int) -> None:
    monkeypatch.chdir(roots[mark].parent)
    named = roots[mark].name  # relative: what loads the pickle may work elsewhere
    with xr.open_dataset(URL, engine="forebay", instance=named) as dataset:
        pickles = [
            pickle.dumps(made)
            for made in (
                dataset,
                StreamStore(ADDRESS, instance=named),
                StreamSamples(ADDRESS, ["T"], instance=named),
                fsspec.filesystem("forebay", instance=named),
            )
        ]
    monkeypatch.chdir("/")
    again, store, samples, files = map(pickle.loads, pickles)
    assert np.unique(again["T"].values).tolist() == [mark]
    assert np.unique(zarr.open_group(store, mode="r")["T"][...]).tolist() == [mark]
    assert np.unique([sample["T"] for sample in samples]).tolist() == [mark]
    assert files.cat_file(FILE) == f"value\n{mark}\n".encode()


def maximum(step: forebay.Step) -> float:
    return float(step["T"][...].max())


@pytest.mark.timeout(300)
def test_workers_of_dask_read_the_instance_that_the_client_names(roots: dict[int, Path]) -> None:
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        for mark, root in roots.items():
            futures = list(map_steps(client, ADDRESS, maximum, instance=root, start="oldest"))
            assert [future.result() for future in futures] == [mark] * mark


@pytest.mark.parametrize(
    "read", [arrow.steps, StreamStore, lambda stream, instance: next(follow(stream, instance=instance))]
)
def test_an_open_stream_has_its_instance_already(roots: dict[int, Path], read: Callable[..., Any]) -> None:
    with (
        forebay.open(ADDRESS, instance=roots[1]) as stream,
        pytest.raises(forebay.InvalidArgumentError, match="has its instance already"),
    ):
        read(stream, instance=roots[2])
