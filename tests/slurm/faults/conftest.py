# SPDX-License-Identifier: Apache-2.0
"""A job of its own for each fault; the centre of tests/slurm is theirs together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.centre import Centre
from tests.slurm.faults.faulty import Fault


@pytest.fixture
def fault(centre: Centre, destination: Path) -> Fault:
    return Fault(centre, destination)
