# SPDX-License-Identifier: Apache-2.0
"""Runs the examples as their heads say, beside a server with the reservation `demo`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import forebay
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

__all__ = ["EXAMPLES", "demo_reservation", "example_module", "lines_of"]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def demo_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server with the reservation `demo`, which the environment names."""
    with StagingServer(tmp_path / "root") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("demo", "256MiB")
        yield


def example_module(file: str) -> ModuleType:
    """A file of an example, imported."""
    path = EXAMPLES / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def lines_of(example: str, *arguments: str) -> list[str]:
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / example, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds(200),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
