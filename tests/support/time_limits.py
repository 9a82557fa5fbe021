# SPDX-License-Identifier: Apache-2.0
"""How long tests wait before they call something hung. FOREBAY_TEST_TIME_SCALE=4 makes these limits four times as long,
for a machine that is slow or busy. No test waits for them when all is well.
"""

from __future__ import annotations

import os

__all__ = ["TIME_SCALE", "seconds"]

TIME_SCALE = float(os.environ.get("FOREBAY_TEST_TIME_SCALE") or 1)
if not TIME_SCALE > 0:
    raise ValueError(f"FOREBAY_TEST_TIME_SCALE is {TIME_SCALE}; it is a number above 0")


def seconds(limit: float) -> float:
    """A limit of so many seconds on an idle machine."""
    return limit * TIME_SCALE
