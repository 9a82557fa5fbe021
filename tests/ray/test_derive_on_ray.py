# SPDX-License-Identifier: Apache-2.0
"""Derived streams whose steps a Ray cluster makes, reached by its client server."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.errors import InvalidArgumentError, UnavailableError
from tests.connectors.conftest import temperature
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

ray = pytest.importorskip("ray", reason="Ray is not installed: ./run test ray installs it")

from forebay.connectors.derive import derive  # noqa: E402 - as above

_RAY = Path(sys.executable).with_name("ray")


@pytest.fixture(scope="module")
def cluster(server: StagingServer) -> Iterator[str]:
    """A head with two workers, which inherit the environment that names the server. It ends with its process."""
    ports = [_free_port() for _ in range(2)]
    with tempfile.TemporaryDirectory(prefix="ray") as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_AUTH_MODE", "disabled")
        command = [str(_RAY), "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false"]
        command += [f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}", f"--temp-dir={folder}"]
        command += [f"--object-store-memory={100 << 20}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as head:
            assert head.stdout is not None
            said = ""
            for line in head.stdout:
                said += line
                if "Ray runtime started" in line:
                    break
            else:
                raise AssertionError(said)
            yield f"ray://127.0.0.1:{ports[1]}"
            head.terminate()
            head.communicate(timeout=seconds(60))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.timeout(400)
def test_workers_make_steps_in_their_order(flow: str, cluster: str, tmp_path: Path) -> None:
    module = tmp_path / "filters.py"
    module.write_text("def double(fields):\n    return {'d': fields['T'] * 2}\n")
    progress = derive(flow, f"{flow}-d", function=f"{module}:double", on=cluster)
    assert (progress.steps, progress.last) == (6, 5)
    with forebay.open(f"{flow}-d", timeout=0) as stream:
        for number, step in enumerate(stream):
            assert step.number == number
            np.testing.assert_array_equal(step["d"][...], 2 * temperature(number))
            assert step["label"].item() == f"step {number}"


@pytest.mark.timeout(400)
def test_errors_of_workers_are_those_of_this_process(flow: str, cluster: str, tmp_path: Path) -> None:
    module = tmp_path / "broken.py"
    module.write_text("def f(fields):\n    raise RuntimeError('no such luck')\n")
    with pytest.raises(InvalidArgumentError, match="RuntimeError: no such luck"):
        derive(flow, f"{flow}-d", function=f"{module}:f", on=cluster)
    with pytest.raises(UnavailableError, match="no Ray cluster answers"):
        derive(flow, f"{flow}-d", function=f"{module}:f", on=f"ray://127.0.0.1:{_free_port()}")
