# SPDX-License-Identifier: Apache-2.0
"""Ends of colour scales: round, and there also for fields without numbers."""

from __future__ import annotations

import numpy as np
import pytest

from forebay.viz.scenes.colors import ColorScale, round_top


@pytest.mark.parametrize(("fastest", "top"), [(0.019, 0.02), (0.02, 0.02), (0.0201, 0.025), (9.7, 10.0), (0.0, 1.0)])
def test_colours_end_at_a_round_number(fastest: float, top: float) -> None:
    assert round_top(np.full(8, fastest)) == pytest.approx(top)


def test_ends_are_those_of_the_numbers_among_the_values() -> None:
    scale = ColorScale("T", "viridis", None)
    assert scale.fit(np.array([1.0, np.nan, 3.0, np.inf])) == (1.0, 3.0)
    assert scale.fit(np.full(3, np.nan)) == (0.0, 1.0)
    low, high = scale.fit(np.full(3, 5.0))
    assert low == 5.0 < high
    assert ColorScale("T", "viridis", (0.0, 2.0)).fit(np.array([7.0])) == (0.0, 2.0)
