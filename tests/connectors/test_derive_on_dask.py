# SPDX-License-Identifier: Apache-2.0
"""Derived streams whose steps a Dask cluster makes: values and order, kills, rewinds, and what is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

import forebay
from forebay.connectors.derive import derive
from forebay.errors import InvalidArgumentError, UnavailableError, VariableNotFoundError
from tests.support.load import until
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

STEPS = 8
MODULE = """
import os, time
from pathlib import Path

def process(fields):
    return {"d": fields["n"] * 2, "pid": os.getpid()}

def late(fields):
    n = int(fields["n"][0])
    while n == 0 and not Path(os.environ["FOREBAY_TEST_GATE"]).exists():
        time.sleep(0.01)
    return {"d": fields["n"] * 2}
"""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Step 0 of `late` waits for it."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def client(server: StagingServer, gate: Path) -> Iterator[Client]:
    """Two worker processes, which find the server by the environment that they inherit."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FOREBAY_TEST_GATE", str(gate))
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as connected,
        ):
            yield connected


@pytest.fixture
def cluster(client: Client) -> str:
    return str(client.scheduler.address).replace("tcp://", "dask://")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "filters.py"
    path.write_text(MODULE)
    return path


@pytest.fixture
def flow(reservation: str) -> str:
    """Steps of ``n`` in two blocks, with a text."""
    address = f"{reservation}/flow"
    write(address, range(STEPS))
    return address


def write(address: str, numbers: range, mode: str = "w", add: int = 0, **options: object) -> None:
    with forebay.open(address, mode, **options) as stream:  # type: ignore[call-overload]
        for number in numbers:
            with stream.step(number) as step:
                step["label"] = f"step {number}"
                for start in (0, 2):
                    values = np.full(2, float(number + add))
                    step.write("n", values, shape=(4,), start=(start,), dims=("x",))


def derived(address: str, name: str = "d") -> list[tuple[int, float]]:
    with forebay.open(address, timeout=0) as stream:
        return [(step.number, float(np.ravel(step[name][...])[0])) for step in stream]


def doubled(numbers: range, add: int = 0) -> list[tuple[int, float]]:
    return [(number, 2.0 * (number + add)) for number in numbers]


@pytest.mark.timeout(300)
def test_workers_make_what_this_process_would(flow: str, cluster: str) -> None:
    what = {"expressions": "d = n * 2", "precision": "float32", "stride": 2}
    for name, on in (("here", None), ("there", cluster)):
        progress = derive(flow, f"{flow}-{name}", on=on, **what)  # type: ignore[arg-type]
        assert (progress.steps, progress.last) == (STEPS, STEPS - 1)
    with forebay.open(f"{flow}-here", timeout=0) as here, forebay.open(f"{flow}-there", timeout=0) as there:
        for one, other in zip(here, there, strict=True):
            assert one.number == other.number
            assert one.variables == other.variables
            assert dict(one.attributes) == dict(other.attributes)
            assert other["label"].item() == f"step {one.number}"
            np.testing.assert_array_equal(one["d"][...], other["d"][...])
            assert [block.start for block in one["d"].blocks] == [block.start for block in other["d"].blocks]


@pytest.mark.timeout(300)
def test_a_function_of_a_file_runs_on_workers_that_lack_the_file(flow: str, cluster: str, module: Path) -> None:
    derive(flow, f"{flow}-d", function=f"{module}:process", on=cluster)
    assert derived(f"{flow}-d") == doubled(range(STEPS))
    processes = {pid for _, pid in derived(f"{flow}-d", "pid")}
    assert os.getpid() not in processes
    assert processes


@pytest.mark.timeout(300)
def test_steps_are_written_in_their_order_whichever_is_ready_first(
    flow: str, cluster: str, module: Path, gate: Path
) -> None:
    threading.Timer(1, gate.touch).start()
    derive(flow, f"{flow}-d", function=f"{module}:late", on=cluster, workers=2)
    assert derived(f"{flow}-d") == doubled(range(STEPS))
    gate.unlink()


@pytest.mark.timeout(300)
def test_a_step_does_not_wait_for_the_next_one(reservation: str, cluster: str) -> None:
    source, output = f"{reservation}/slow", f"{reservation}/slow-d"
    with forebay.open(source, "w") as stream:
        what = {"expressions": "d = n", "on": cluster}
        deriving = threading.Thread(target=derive, args=(source, output), kwargs=what)
        deriving.start()
        for number in range(3):
            stream.write("n", np.full(2, number))
            until(partial(is_committed, output, number), "it is derived")
    deriving.join()


def is_committed(address: str, number: int) -> bool:
    try:
        with forebay.open(address, timeout=0) as stream:
            return stream.info.committed == number
    except forebay.StreamNotFoundError:
        return False


# crash-matrix: `forebay derive --on` | the program, or a worker of the cluster | started again, it derives each step once, in its order; a worker that dies costs time only
@pytest.mark.timeout(300)
def test_killed_and_started_again_it_derives_each_step_once(
    flow: str, cluster: str, module: Path, gate: Path, client: Client
) -> None:
    line = [sys.executable, "-m", "forebay", "derive", flow, f"{flow}-d", "--with", f"{module}:late", "--on", cluster]
    with subprocess.Popen(line) as killed:
        until(lambda: bool(client.processing() and any(client.processing().values())), "workers have steps")
        killed.kill()
    with subprocess.Popen(line) as again:
        until(lambda: any(client.processing().values()), "workers have steps")
        victim = next(worker for worker, keys in client.processing().items() if keys)
        os.kill(client.run(os.getpid)[victim], signal.SIGKILL)
        gate.touch()
        assert again.wait(timeout=seconds(120)) == 0
    gate.unlink()
    assert derived(f"{flow}-d") == doubled(range(STEPS))


@pytest.mark.timeout(300)
def test_what_the_source_takes_back_is_taken_back(flow: str, cluster: str) -> None:
    derive(flow, f"{flow}-d", expressions="d = n * 2", on=cluster)
    write(flow, range(4, STEPS), "a", 100, append_after=3)
    derive(flow, f"{flow}-d", expressions="d = n * 2", on=cluster)
    assert derived(f"{flow}-d") == doubled(range(4)) + doubled(range(4, STEPS), 100)


@pytest.mark.timeout(300)
def test_errors_of_workers_are_those_of_this_process(flow: str, cluster: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(fields):\n    raise RuntimeError('no such luck')\n")
    with pytest.raises(InvalidArgumentError, match="RuntimeError: no such luck"):
        derive(flow, f"{flow}-d", function=f"{broken}:f", on=cluster)
    with pytest.raises(VariableNotFoundError, match="no variable 'm'"):
        derive(flow, f"{flow}-d", expressions="d = m", on=cluster)


def test_a_cluster_is_named_by_its_address(flow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("dask", "dask://", "tcp://localhost:8786", "ray://head"):
        with pytest.raises(InvalidArgumentError, match="dask://HOST:PORT"):
            derive(flow, f"{flow}-d", expressions="d = n", on=wrong)
    monkeypatch.setattr("forebay.connectors.derive.making._CONNECT_SECONDS", 0.5)
    with pytest.raises(UnavailableError, match="no Dask scheduler"):
        derive(flow, f"{flow}-d", expressions="d = n", on="dask://127.0.0.1:1")
