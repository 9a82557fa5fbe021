# SPDX-License-Identifier: Apache-2.0
"""The quick suites run a share of the tests that start instances of their own; all shares are together the whole."""

from __future__ import annotations

import os
import subprocess
import sys

from scripts.suites import SUITES, When
from scripts.test import QUICK_INSTANCE_SHARES, order_of
from tests.support.time_limits import seconds

_FILES = [f"tests/integration/test_{name}.py" for name in ("drains", "create_waits", "lint")]


def collected(shares: int, seed: int) -> set[str]:
    """The tests that a run with that seed has."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only"]
    environment = os.environ | {"FOREBAY_TEST_INSTANCE_SHARES": str(shares), "FOREBAY_TEST_SEED": str(seed)}
    done = subprocess.run(
        [*command, *_FILES], env=environment, capture_output=True, text=True, timeout=seconds(60), check=False
    )
    assert done.returncode == 0, done.stdout
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_shares_of_seeds_in_a_row_are_the_whole() -> None:
    whole = collected(1, 0)
    with_instances = {test for test in whole if "test_lint" not in test}
    shares = [collected(QUICK_INSTANCE_SHARES, seed) for seed in range(QUICK_INSTANCE_SHARES)]
    assert set().union(*shares) == whole
    assert sum(len(share & with_instances) for share in shares) == len(with_instances) > 0
    assert all(whole - with_instances <= share for share in shares)


def test_only_the_quick_run_takes_a_share_and_not_where_tests_are_chosen() -> None:
    quick = [name for name, suite in SUITES.items() if suite.when is When.QUICK]
    assert [name for name, suite in order_of([]).parts if suite.instance_shares != QUICK_INSTANCE_SHARES] == []
    assert [name for name, _ in order_of(["quick"]).parts] == quick
    for named in (["integration"], ["all"], ["quick", "--", "-k", "drain"]):
        assert {suite.instance_shares for _, suite in order_of(named).parts} == {1}
