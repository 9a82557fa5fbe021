# SPDX-License-Identifier: Apache-2.0
"""FOREBAY_TEST_TIME_SCALE scales each limit of a test; with a scale of 1 there is nothing to see."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.time_limits import seconds


@pytest.mark.timeout(50)
def test_a_limit_of_its_own_is_scaled(request: pytest.FixtureRequest) -> None:
    limit = request.node.get_closest_marker("timeout")
    assert limit is not None
    assert limit.args[0] == seconds(50)


def test_limits_are_scaled() -> None:
    selected = f"{__file__}::test_a_limit_of_its_own_is_scaled"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", selected]
    environment = os.environ | {"FOREBAY_TEST_TIME_SCALE": "8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds(60), check=False)
    assert done.returncode == 0, done.stdout
