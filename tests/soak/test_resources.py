# SPDX-License-Identifier: Apache-2.0
"""When the resources at the quiet points of a soak count as grown."""

from __future__ import annotations

import pytest

from tests.soak.resources import Holding, growths


def holding(number: int, **changes: int) -> Holding:
    """A quiet point of a server."""
    usual = {"memory_bytes": 20 << 20, "descriptors": 30, "threads": 3, "mappings": 90}
    return Holding(10.0 * number, "server", 1, **{**usual, **changes})


def test_steady_resources_pass_and_warm_up_does_not_count() -> None:
    assert (
        growths([holding(0, memory_bytes=5 << 20, descriptors=9), *(holding(number) for number in range(1, 5))]) == []
    )


@pytest.mark.parametrize(
    ("name", "step"), [("descriptors", 4), ("threads", 3), ("mappings", 25), ("memory_bytes", 8 << 20)]
)
def test_resource_that_grows_from_quiet_point_to_quiet_point_is_told(name: str, step: int) -> None:
    usual = getattr(holding(0), name)
    grown = growths([holding(number, **{name: usual + step * number}) for number in range(5)])
    assert len(grown) == 1
    assert ("memory" if name == "memory_bytes" else name) in grown[0]
