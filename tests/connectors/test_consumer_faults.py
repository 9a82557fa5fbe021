# SPDX-License-Identifier: Apache-2.0
"""Consumers that die, stop or lag cost the producer nothing, and a stream that goes away under them is told."""

from __future__ import annotations

import os
import pickle
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import dask
import numpy as np
import pytest
import xarray as xr
import zarr

import forebay
from forebay.connectors.zarr import StreamStore
from tests.connectors.conftest import temperature

#: Follows a stream by xarray and tells of each step; a slow one takes its time over each.
FOLLOWER = """
import sys, time
from forebay.connectors import xarray
for dataset in xarray.follow(sys.argv[1], timeout=60):
    total = float(dataset["T"].sum())
    time.sleep(float(sys.argv[2]))
    print(int(dataset["step"]), flush=True)
"""

_SHAPE = (64, 64, 64)  # 2 MiB


@pytest.fixture
def followers(reservation: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Three processes that follow ``RES/paced``: one slow, the others as quick as they can."""
    with ExitStack() as stack:
        made = []
        for seconds in ("0.2", "0", "0"):
            process = subprocess.Popen(
                [sys.executable, "-c", FOLLOWER, f"{reservation}/paced", seconds], stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            made.append(process)
        yield made


# crash-matrix: consumers by xarray | one killed, one stopped (SIGSTOP), one slow | the producer goes on at its own speed; steps stay readable
@pytest.mark.timeout(300)
def test_killed_stopped_and_slow_consumers_do_not_hold_the_producer_up(
    reservation: str, followers: list[subprocess.Popen[str]]
) -> None:
    field = np.ones(_SHAPE)

    def seconds_of_steps(stream: forebay.WritableStream, count: int) -> float:
        seconds = []
        for _ in range(count):
            began = time.monotonic()
            with stream.step() as step:
                step["T"] = field
            seconds.append(time.monotonic() - began)
        return statistics.median(seconds)

    # 64 MiB hold 32 steps: far fewer than are written, so space is used again beside the pins of those that hang.
    with forebay.open(f"{reservation}/paced", mode="w", retention="last:4") as stream:
        seconds_of_steps(stream, 1)
        for process in followers:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
        _, stopped, killed = followers
        os.kill(stopped.pid, signal.SIGSTOP)
        killed.kill()
        killed.wait()
        beside = seconds_of_steps(stream, 60)
        # Without them, on the same machine at the same time.
        for process in followers:
            process.kill()
            process.wait()
        alone = seconds_of_steps(stream, 60)
    # They cost nothing; a machine that is busy with other things is not that even.
    assert beside < 5 * alone + 0.05, f"{beside * 1e3:.1f} ms beside them, {alone * 1e3:.1f} ms alone"


# crash-matrix: a lazy Dataset | its reservation is destroyed | an error that names the address; what was loaded stays
def test_reservation_destroyed_under_a_lazy_dataset_is_told(server: object) -> None:
    with forebay.Admin() as admin:
        admin.create("doomed", "64MiB")
    with forebay.open("doomed/flow", mode="w") as stream:
        for number in range(3):
            with stream.step() as step:
                step["T"] = temperature(number)
    reader = forebay.open("doomed/flow")
    with xr.open_dataset("forebay://doomed/flow", engine="forebay", chunks={}, cache=False) as dataset:
        store = StreamStore("doomed/flow")
        pickled = pickle.dumps(dataset)
        view = dataset["T"].isel(step=2).data.compute()
        with forebay.Admin() as admin:
            admin.destroy("doomed", force=True)
        ways: list[Callable[[], object]] = [
            lambda: reader[0]["T"][...],
            lambda: dataset["T"].isel(step=0).compute(scheduler="threads"),
            lambda: zarr.open_group(store, mode="r")["T"][0],
            lambda: pickle.loads(pickled)["T"].isel(step=0).compute(scheduler="synchronous"),
        ]
        for read in ways:
            with pytest.raises(forebay.ForebayError, match="doomed"):
                read()
        np.testing.assert_array_equal(view, temperature(2))


# crash-matrix: a Dask graph | its stream is replaced while the graph is computed | an error, never the new stream's data
def test_stream_replaced_under_a_graph_is_an_error(flow: str) -> None:
    replaced: list[bool] = []

    def replace_once(block: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> object:
        if not replaced and block.size > 1:  # not Dask's probe
            replaced.append(True)
            with forebay.open(flow, mode="w") as stream:
                for number in range(6):
                    with stream.step() as step:
                        step["T"] = -1 - temperature(number)
        assert block.size <= 1 or (block >= 0).all(), "a block of the new stream"
        return block

    with xr.open_dataset(f"forebay://{flow}", engine="forebay", chunks={}, cache=False) as dataset:
        graph = dataset["T"].data.map_blocks(replace_once, dtype=np.float64)
        with (
            dask.config.set(scheduler="synchronous"),
            pytest.raises(forebay.StepGoneError, match="open the stream again"),
        ):
            graph.compute()
        assert replaced


def test_stream_replaced_under_an_open_reader_leaves_its_views(flow: str) -> None:
    with forebay.open(flow) as reader:
        view = reader[4]["T"].block(0)
        with forebay.open(flow, mode="w") as stream, stream.step() as step:
            step["T"] = -temperature(0)
        np.testing.assert_array_equal(view, temperature(4)[:4, :6])
        with pytest.raises((forebay.StepGoneError, forebay.StepNotFoundError), match=flow):
            reader[4]
        np.testing.assert_array_equal(reader[0]["T"][...], -temperature(0))
