# SPDX-License-Identifier: Apache-2.0
"""The server whose databases the managers of these tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.manager_database import SERVER_VARIABLE
from tests.support.postgresql import PostgreSQL, programs

_NEEDED = "needs PostgreSQL; ./run test postgresql installs it"


@pytest.fixture(scope="session", autouse=True)
def postgresql() -> Iterator[PostgreSQL]:
    """Runs for all of them."""
    if programs() is None:
        pytest.skip(_NEEDED)
    pytest.importorskip("psycopg", reason=_NEEDED)
    with PostgreSQL() as running, pytest.MonkeyPatch.context() as environment:
        environment.setenv(SERVER_VARIABLE, running.url)
        yield running
