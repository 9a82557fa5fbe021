# SPDX-License-Identifier: Apache-2.0
"""Ray over a real server with real workers: rows are steps, and errors keep their class and text."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from tests.connectors.conftest import temperature
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

ray = pytest.importorskip("ray", reason="Ray is not installed: ./run test ray installs it")

from forebay.connectors.ray import StreamDatasource, read_stream  # noqa: E402 - imports Ray
from forebay.connectors.training import StreamSamples  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cluster(server: StagingServer) -> Iterator[None]:
    """Two workers on this machine, which inherit the environment that names the server."""
    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory(prefix="ray") as folder:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_AUTH_MODE", "disabled")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=folder,
            logging_level="ERROR",
            configure_logging=False,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
        ray.shutdown()


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("cluster")
def test_rows_are_the_steps(flow: str) -> None:
    rows = sorted(read_stream(flow, ["T", "time", "label"]).take_all(), key=lambda row: row["step"])
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row["time"] for row in rows] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert rows[4]["label"] == "step 4"
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(row["T"], temperature(number))


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("cluster")
def test_workers_read_the_instance_that_is_named(tmp_path: Path) -> None:
    with StagingServer(tmp_path / "root") as other:
        with forebay.Admin(other.root) as admin:
            admin.create("elsewhere", "16MiB")
        with forebay.open("elsewhere/flow", mode="w", instance=other.root) as stream:
            stream.write("T", np.full(4, 7.0))
        (row,) = read_stream("elsewhere/flow", ["T"], instance=other.root).take_all()
        np.testing.assert_array_equal(row["T"], np.full(4, 7.0))


def mean(batch: dict[str, Any]) -> dict[str, Any]:
    return {"step": batch["step"], "mean": batch["T"].mean((1, 2, 3))}


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("cluster")
def test_batches_are_arrays_of_whole_steps(flow: str) -> None:
    found = read_stream(flow, ["T"]).map_batches(mean, batch_size=2).to_pandas().sort_values("step")
    np.testing.assert_allclose(found["mean"], [temperature(number).mean() for number in range(6)], rtol=1e-12)


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("cluster")
def test_dropped_step_is_told_with_the_retention(flow: str) -> None:
    dataset = read_stream(flow, ["T"])
    with forebay.Admin() as admin:
        admin.set_retention(flow, "last:1")
    with pytest.raises(Exception, match=r"StepGoneError(.|\n)*retention is 'last:1'"):
        dataset.take_all()


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("cluster")
def test_workers_share_a_running_stream_s_steps_by_its_cursor(reservation: str) -> None:
    address = f"{reservation}/live"

    @ray.remote  # type: ignore[untyped-decorator]
    def train(address: str) -> list[tuple[int, float]]:
        samples = StreamSamples(address, ["T"], consumer="train", distribution="on_demand", timeout=seconds(120))
        return [(sample["step"], float(sample["T"].mean())) for sample in samples]

    workers = [train.remote(address) for _ in range(2)]
    with forebay.open(address, mode="w", rendezvous_readers=2) as stream:
        for number in range(12):
            with stream.step() as step:
                step["T"] = temperature(number)
    found = sorted(sample for samples in ray.get(workers, timeout=seconds(300)) for sample in samples)
    assert found == [(number, pytest.approx(temperature(number).mean())) for number in range(12)]
    with forebay.open(address) as reader:
        assert [known.position for known in reader.info.consumers if known.name == "train"] == [12]


def test_planner_sees_sizes_and_refusals_name_the_reason(flow: str) -> None:
    source = StreamDatasource(flow, ["T"])
    assert source.estimate_inmemory_data_size() == 6 * (16 + 8 * 12 * 16 * 8)
    tasks = source.get_read_tasks(4)
    assert sum(task.metadata.num_rows for task in tasks) == 6
    assert len(tasks) == 4
    with pytest.raises(forebay.InvalidArgumentError, match="grows is no column: it is global_array"):
        StreamDatasource(flow, ["grows"])
    with pytest.raises(forebay.InvalidArgumentError, match="the stream does not have it"):
        StreamDatasource(flow, ["nothing"])


@pytest.mark.timeout(400)
def test_example(server: StagingServer, reservation: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/12_ray.py", f"{reservation}/tones"],
        capture_output=True,
        text=True,
        timeout=seconds(300),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"step {number}: loudest at {10 + number} Hz" for number in range(8)]
