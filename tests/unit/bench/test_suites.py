# SPDX-License-Identifier: Apache-2.0
"""Every suite of the benchmark can be judged: its rows name cases that it has, and figures of known units."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import SUITES
from tests.bench.command_line import BY_NAME, SUITE_NAMES
from tests.bench.measure import Row


def test_the_command_line_names_all_suites() -> None:
    assert tuple(SUITES) == SUITE_NAMES
    assert set(BY_NAME) <= set(SUITE_NAMES)


@pytest.mark.parametrize("name", SUITES)
def test_rows_name_cases_of_their_suite(name: str) -> None:
    try:
        suites = SUITES[name]()
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed: ./run bench {name} installs it")
    for suite in suites:
        cases = {case.name for case in suite.cases}
        assert len(cases) == len(suite.cases)
        for row in suite.rows:
            assert row.ours in cases
            assert row.peer in cases or isinstance(row.peer, float)


def test_figure_without_a_unit_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(ValueError, match="ends with none of the units"):
        Row("speed", "peer", "ours", "theirs", "bytes_per_second")
