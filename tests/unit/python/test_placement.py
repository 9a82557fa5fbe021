# SPDX-License-Identifier: Apache-2.0
"""What a writer may leave out of a block's place is derived."""

from __future__ import annotations

from typing import Any

import pytest

import forebay
from forebay.writing import placement

JOINED = forebay.joined_dimension


@pytest.mark.parametrize(
    ("count", "given", "expected"),
    [
        ((), {}, ("global_value", (), ())),
        ((), {"kind": "local_value"}, ("local_value", (), ())),
        ((2, 3), {}, ("global_array", (2, 3), (0, 0))),
        ((2, 3), {"shape": [4, 3]}, ("global_array", (4, 3), (0, 0))),
        ((2, 3), {"shape": [4, 3], "start": [2, 0]}, ("global_array", (4, 3), (2, 0))),
        ((2, 3), {"kind": "local_array"}, ("local_array", (), ())),
        ((2, 3), {"kind": "joined_array"}, ("joined_array", (JOINED, 3), ())),
        ((2, 3), {"shape": (2, JOINED)}, ("joined_array", (2, JOINED), ())),
    ],
)
def test_place_is_derived(count: tuple[int, ...], given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    given = {"shape": None, "start": None, "kind": None} | given
    assert placement("T", count, **given) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "local_array", "start": (0, 0)},
        {"kind": "local_array", "shape": (4, 3)},
        {"kind": "joined_array", "start": (0, 0)},
        {"kind": "sparse"},
    ],
)
def test_contradictions_are_refused(given: dict[str, Any]) -> None:
    given = {"shape": None, "start": None, "kind": None} | given
    with pytest.raises(forebay.InvalidArgumentError, match=r"'T'|'sparse'"):
        placement("T", (2, 3), **given)
