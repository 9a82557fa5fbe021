# SPDX-License-Identifier: Apache-2.0
"""What tests of all suites share: sweeps, and the order in which tests that run beside one another are begun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.instance_shares import is_of_share
from tests.support.randomness import TEST_SEED
from tests.support.sweeps import Sweep, stride_max
from tests.support.time_limits import TIME_SCALE, seconds

# How long a busy machine takes for a draw says nothing of what is tested.
settings.register_profile(
    "forebay",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("forebay")


def pytest_report_header() -> str:
    """What repeats a run."""
    return f"FOREBAY_TEST_SEED={TEST_SEED} FOREBAY_TEST_STRIDE_MAX={stride_max()}"


@pytest.fixture
def sweep(request: pytest.FixtureRequest) -> Iterator[Sweep]:
    """This run's share of the points at which the test is to be tried."""
    failed_before = request.session.testsfailed
    made = Sweep(request.node.nodeid)
    yield made
    if request.session.testsfailed == failed_before:
        made.check_ended()


def pytest_sessionfinish() -> None:
    """Readers of ADIOS2 leave a profile in /tmp for each file, named after the process, and cannot be told not to."""
    for profile in Path("/tmp").glob(f"*_{os.getpid():x}_profiling.json"):
        profile.unlink(missing_ok=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what sweeps, for `-m sweep`; and begins with what may take longest, so that all cores end together. Scales
    the time that each may take. Leaves out those with the mark `instance` that are not of this run's share."""
    if (shares := int(os.environ.get("FOREBAY_TEST_INSTANCE_SHARES") or 1)) > 1:
        left_out = [
            item
            for item in items
            if item.get_closest_marker("instance") and not is_of_share(item.nodeid, shares, TEST_SEED)
        ]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        if isinstance(item, pytest.Function) and "sweep" in item.fixturenames:
            item.add_marker(pytest.mark.sweep)
        if TIME_SCALE != 1:
            scaled = pytest.mark.timeout(seconds(_seconds_max(item) or float(item.config.getini("timeout"))))
            item.add_marker(scaled, append=False)  # before the test's own, which would count else
    # Its own options do not tell a worker of xdist that it is one.
    if items and (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))):
        # Whole modules, so that what a module shares is set up once on each worker.
        longest: dict[Path, float] = {}
        for item in items:
            longest[item.path] = max(longest.get(item.path, 0), _seconds_max(item))
        items.sort(key=lambda item: -longest[item.path])
        if not items[0].config.getoption("loadgroup", False):
            # "worksteal" begins with a part of the list for each worker, as it stands: they get the longest in turn.
            items[:] = [item for first in range(workers) for item in items[first::workers]]


def _seconds_max(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else 0.0
