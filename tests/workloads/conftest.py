# SPDX-License-Identifier: Apache-2.0
"""An instance that the environment names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import CommandLineInstance


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    """Server and manager."""
    with CommandLineInstance(tmp_path / "root") as up:
        for name, value in up.environment.items():
            monkeypatch.setenv(name, value)
        yield up
