# SPDX-License-Identifier: Apache-2.0
"""Fixtures that need a running staging server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import forebay
from tests.support.staging_server import StagingServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagingServer]:
    """One server for all tests that leave it running; clients of this process and its children find it."""
    with (
        StagingServer(tmp_path_factory.mktemp("instance") / "root") as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in running.environment.items():
            environment.setenv(name, value)
        yield running


@pytest.fixture
def reservation(server: StagingServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A reservation of the test's own, of 64 MiB."""
    name = "t-" + re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:50]
    with forebay.Admin() as admin:
        admin.create(name, "64MiB")
        try:
            yield name
        finally:
            admin.destroy(name, force=True)
