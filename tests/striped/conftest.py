# SPDX-License-Identifier: Apache-2.0
"""A striped tree for each test that asks for one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.striped.striped_tree import StripedTree, striped_tree, why_no_striping


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    """Says why the tests of this folder cannot run."""
    if reason := why_no_striping():
        pytest.skip(reason)


@pytest.fixture
def tree() -> Iterator[StripedTree]:
    """Prepared and started, of two parts and two nodes that mount."""
    with tempfile.TemporaryDirectory(prefix="striped-", dir="/var/tmp") as name, striped_tree(Path(name)) as made:
        yield made
