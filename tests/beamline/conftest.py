# SPDX-License-Identifier: Apache-2.0
"""A server with a reservation for scans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.support.staging_server import StagingServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StagingServer]:
    with StagingServer(tmp_path / "root") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def beamline(server: StagingServer) -> Iterator[str]:
    """The reservation; clean at the end."""
    with forebay.Admin() as admin:
        admin.create("beamline", "64MiB", persistent=True)
    yield "beamline"
    with forebay.Admin() as admin:
        assert [finding.what for finding in admin.audit(read_data=True) if finding.severity == "problem"] == []
