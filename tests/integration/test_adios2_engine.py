# SPDX-License-Identifier: Apache-2.0
"""The engine's tests in C++ (tests/integration/adios2), against a server."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.support.plugin import plugin_library
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

SUITES = [
    "EngineTypes",
    "EngineArrayOrder",
    "EngineFortranOrder",
    "EngineStrings",
    "EngineSelections",
    "EngineSteps",
    "EngineSeveral",
    "EngineRandomAccess",
    "EngineFinishedStream",
    "EngineParameters",
]


def program() -> Path:
    """What CMake built."""
    build = os.environ.get("FOREBAY_BUILD_DIR")
    if not build:
        pytest.skip("FOREBAY_BUILD_DIR does not say where the test programs are; ./run test sets it")
    return Path(build) / "tests" / "integration" / "adios2" / "engine_tests"


@pytest.fixture
def large_reservation(server: StagingServer) -> Iterator[str]:
    """Room for a suite's streams."""
    with forebay.Admin() as admin:
        admin.create("engine", "512MiB")
        try:
            yield "engine"
        finally:
            admin.destroy("engine", force=True)


@pytest.mark.parametrize("suite", SUITES)
def test_suite_passes(large_reservation: str, suite: str) -> None:
    result = subprocess.run(
        [program(), f"--gtest_filter={suite}.*:{suite}/*"],
        env={
            **os.environ,
            "FOREBAY_ADIOS2_LIBRARY": str(plugin_library()),
            "FOREBAY_TEST_RESERVATION": large_reservation,
        },
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"^\[  PASSED  \] (\d+) test", result.stdout, re.MULTILINE)
    assert passed is not None, result.stdout
    assert int(passed[1]) > 0
    assert "SKIPPED" not in result.stdout


def test_suites_are_all_run() -> None:
    listed = subprocess.run([program(), "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    suites = {line.split(".")[0].split("/")[0] for line in listed.splitlines() if line.strip().startswith("Engine")}
    assert suites == set(SUITES)
