# SPDX-License-Identifier: Apache-2.0
"""Dask over a real server with real worker processes: graphs through xarray, names by identity, functions per step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import forebay
from forebay.connectors.dask import map_steps
from tests.connectors.conftest import temperature
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds


@pytest.fixture(scope="module")
def client(server: StagingServer) -> Iterator[Client]:
    """Two worker processes, which find the server by the environment that they inherit."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


def mean(step: forebay.Step) -> tuple[int, float]:
    return step.number, float(np.mean(step["T"][...]))


def mean_unless(step: forebay.Step, stop: str) -> tuple[int, float]:
    """Fails at step 3 as long as the file is there."""
    if step.number == 3 and Path(stop).exists():
        raise RuntimeError("step 3 is not to be had")
    return mean(step)


EXPECTED = [(number, float(temperature(number).mean())) for number in range(6)]


def task_names(address: str) -> str:
    with xr.open_dataset(f"forebay://{address}", engine="forebay", chunks={}) as dataset:
        name: str = dataset["T"].data.name
        return name


def write(address: str, steps: int, sign: int, mode: str = "w") -> None:
    with forebay.open(address, mode=mode) as stream:  # type: ignore[call-overload]
        for number in range(steps):
            with stream.step() as step:
                step["T"] = sign * temperature(number)


@pytest.mark.timeout(300)
def test_workers_read_for_themselves(flow: str, client: Client) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", chunks={}) as dataset:
        means = dataset["T"].mean(dataset["T"].dims[1:]).compute()
    np.testing.assert_allclose(means.values, [value for _, value in EXPECTED], rtol=1e-14)


def test_task_names_follow_the_identity_of_the_steps(reservation: str) -> None:
    address = f"{reservation}/flow"
    write(address, 3, 1)
    first = task_names(address)
    assert task_names(address) == first
    write(address, 1, 1, mode="a")
    grown = task_names(address)
    assert grown != first
    write(address, 4, -1)
    replaced = task_names(address)
    assert replaced not in (first, grown)
    with forebay.Admin() as admin:
        admin.remove_stream(address)
    write(address, 4, -1)
    assert task_names(address) not in (first, grown, replaced)


@pytest.mark.timeout(300)
def test_scheduler_that_holds_results_gives_no_other_stream_s(reservation: str, client: Client) -> None:
    address = f"{reservation}/flow"
    held = []
    for sign in (1, -1):
        write(address, 2, sign)
        with xr.open_dataset(f"forebay://{address}", engine="forebay", chunks={}) as dataset:
            held.append(dataset["T"].persist())
            assert float(held[-1].sum()) == pytest.approx(sign * sum(temperature(n).sum() for n in range(2)))


# crash-matrix: Dask graph over a stream | a worker is killed in the middle | the graph's result is right
@pytest.mark.timeout(300)
def test_graph_survives_a_killed_worker(flow: str, client: Client) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", chunks={}) as dataset:
        result = client.compute(dataset["T"].mean())
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        whole = np.stack([temperature(number) for number in range(6)])
        assert float(result.result(timeout=seconds(240))) == pytest.approx(whole.mean(), rel=1e-14)
    client.wait_for_workers(2, timeout=seconds(120))


@pytest.mark.timeout(300)
def test_error_of_a_worker_has_class_and_text(flow: str, client: Client) -> None:
    with xr.open_dataset(f"forebay://{flow}", engine="forebay", chunks={}) as dataset:
        with forebay.Admin() as admin:
            admin.set_retention(flow, "last:1")
        with pytest.raises(forebay.StepGoneError, match="retention is 'last:1'"):
            dataset["T"].sum().compute()


@pytest.mark.timeout(300)
def test_each_step_s_function_comes_in_order(flow: str, client: Client) -> None:
    futures = list(map_steps(client, flow, mean, ahead=2, timeout=seconds(60), start="oldest"))
    assert client.gather(futures) == EXPECTED


# crash-matrix: map_steps with a consumer | a step's function fails | the cursor stays before that step; the next call computes it again
@pytest.mark.timeout(300)
def test_cursor_stays_before_a_step_whose_function_failed(flow: str, client: Client, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    stop.touch()
    futures = list(map_steps(client, flow, mean_unless, str(stop), consumer="mean", timeout=seconds(60)))
    assert [future.status for future in futures] == ["finished"] * 3 + ["error"] + ["finished"] * 2
    stop.unlink()
    futures = list(map_steps(client, flow, mean_unless, str(stop), consumer="mean", timeout=seconds(60), pure=False))
    assert client.gather(futures) == EXPECTED[3:]
    with forebay.open(flow) as stream:
        assert stream.lag("mean") == 0


def mean_unless_killed(step: forebay.Step, folder: str) -> tuple[int, float]:
    """The mean; the worker that comes to step 2 first says who it is, and stands still until it is killed."""
    if step.number == 2 and not os.path.exists(os.path.join(folder, "killed")):
        with open(os.path.join(folder, "writing"), "w") as file:
            file.write(str(os.getpid()))
        os.replace(file.name, os.path.join(folder, "pid"))
        threading.Event().wait()
    return mean(step)


# crash-matrix: map_steps with a consumer | a worker, killed while it computes a step | the step is computed by another worker; the cursor passes all
@pytest.mark.timeout(300)
def test_step_of_a_killed_worker_is_computed_by_another(flow: str, client: Client, tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    def collect() -> None:
        for future in map_steps(
            client, flow, mean_unless_killed, str(tmp_path), consumer="kill", timeout=seconds(60), retries=2
        ):
            seen.append(future.result(timeout=seconds(240)))

    collecting = threading.Thread(target=collect)
    collecting.start()
    while not (tmp_path / "pid").exists():
        assert collecting.is_alive()
    (tmp_path / "killed").touch()
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    collecting.join(280)
    assert seen == EXPECTED
    with forebay.open(flow) as stream:
        assert stream.lag("kill") == 0
    client.wait_for_workers(2, timeout=seconds(120))


def test_nothing_under_way_is_refused(flow: str, client: Client) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="at least 1"):
        next(map_steps(client, flow, mean, ahead=0))


def mean_of(step: forebay.Step) -> float:
    return float(step["T"][...].mean())


def test_steps_are_mapped_of_an_open_stream_and_of_the_run_that_comes(reservation: str, client: Client) -> None:
    address = f"{reservation}/runs"

    def produce(run: str, value: float, readers: int = 0) -> None:
        with forebay.open(address, "w", run=run, rendezvous_readers=readers) as stream:
            stream.write("T", np.full(3, value))

    produce("first", 1.0)
    with forebay.open(address) as opened:
        assert [future.result() for future in map_steps(client, opened, mean_of)] == [1.0]
    options: tuple[dict[str, Any], ...] = ({"run": "second"}, {"wait_for_writer": True})
    for number, option in enumerate(options):
        writer = threading.Thread(target=produce, args=("second", 2.0 + number, 1))
        writer.start()
        futures = list(map_steps(client, address, mean_of, timeout=seconds(60), start="oldest", **option))
        assert futures[-1].result() == 2.0 + number
        writer.join()
        produce("first", 1.0)
