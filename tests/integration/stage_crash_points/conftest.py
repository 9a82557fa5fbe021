# SPDX-License-Identifier: Apache-2.0
"""A stage that dies at any change to the file system, or is told that it failed, leaves nothing half done in sight; the
next run completes it.

What counts as a change is in tests/support/file_changes.cpp, also where ADIOS2, HDF5 or Python's own library makes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.file_changes import quick_folder
from tests.support.staging_server import StagingServer
from tests.support.watched_stager import WatchedStager


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        yield folder


@pytest.fixture(scope="module")
def server(quick: Path) -> Iterator[StagingServer]:
    with StagingServer(quick / "root") as running, pytest.MonkeyPatch.context() as environment:
        for name, value in running.environment.items():
            environment.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def stager(server: StagingServer, quick: Path) -> Iterator[WatchedStager]:
    assert server.running()
    with WatchedStager(quick) as watched:
        yield watched


@pytest.fixture
def folder(quick: Path) -> Iterator[Path]:
    """Holds the destination."""
    with tempfile.TemporaryDirectory(dir=quick) as name:
        yield Path(name)
