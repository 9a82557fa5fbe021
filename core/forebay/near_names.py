# SPDX-License-Identifier: Apache-2.0
"""Finds existing names that are similar to one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["near_names", "near_text"]

_NAMES_MAX = 3
#: What is longer is like no name: to compare it would take long.
_CHARACTERS_MAX = 128


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are most like ``name``, at most three, the likeliest first. Case does not matter."""
    if len(name) > _CHARACTERS_MAX:
        return []
    by_lower: dict[str, list[str]] = {}
    for known in sorted(names):
        by_lower.setdefault(known.lower(), []).append(known)
    near = difflib.get_close_matches(name.lower(), list(by_lower), _NAMES_MAX)
    return [known for lower in near for known in by_lower[lower] if known != name][:_NAMES_MAX]


def near_text(name: str, names: Iterable[str]) -> str:
    """``"; did you mean a or b?"``, or nothing."""
    near = near_names(name, names)
    return f"; did you mean {' or '.join(near)}?" if near else ""
