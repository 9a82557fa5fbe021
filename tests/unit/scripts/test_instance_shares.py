# SPDX-License-Identifier: Apache-2.0
"""The quick suites run a share of the tests that start instances of their own; all shares are together the whole."""

from __future__ import annotations

import os
import subprocess
import sys

from scripts.suites import SUITES, When
from scripts.test import QUICK_INSTANCE_SHARES, order_of
from tests.support.instance_shares import is_of_share
from tests.support.time_limits import seconds

#: Of which the last one starts none.
_FILES = [f"tests/integration/test_{name}.py" for name in ("drains", "lint")]


def collected(shares: int) -> set[str]:
    """The tests that a run with the seed 0 has."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only"]
    environment = os.environ | {"FOREBAY_TEST_INSTANCE_SHARES": str(shares), "FOREBAY_TEST_SEED": "0"}
    done = subprocess.run(
        [*command, *_FILES], env=environment, capture_output=True, text=True, timeout=seconds(60), check=False
    )
    assert done.returncode == 0, done.stdout
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_shares_of_seeds_in_a_row_are_the_whole() -> None:
    names = [f"tests/test_{number}.py::test[{number}]" for number in range(200)]
    shares = [
        [name for name in names if is_of_share(name, QUICK_INSTANCE_SHARES, seed)]
        for seed in range(QUICK_INSTANCE_SHARES)
    ]
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert all(shares)


def test_a_share_is_taken_of_tests_that_start_instances_alone() -> None:
    whole, share = collected(1), collected(QUICK_INSTANCE_SHARES)
    with_instances = {test for test in whole if "test_lint" not in test}
    assert {test for test in with_instances if is_of_share(test, QUICK_INSTANCE_SHARES, 0)} == share & with_instances
    assert share & with_instances != with_instances != set()
    assert whole - with_instances == share - with_instances != set()


def test_only_the_quick_run_takes_a_share_and_not_where_tests_are_chosen() -> None:
    quick = [name for name, suite in SUITES.items() if suite.when is When.QUICK]
    assert [name for name, suite in order_of([]).parts if suite.instance_shares != QUICK_INSTANCE_SHARES] == []
    assert [name for name, _ in order_of(["quick"]).parts] == quick
    for named in (["integration"], ["all"], ["quick", "--", "-k", "drain"]):
        assert {suite.instance_shares for _, suite in order_of(named).parts} == {1}
