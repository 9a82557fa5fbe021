# SPDX-License-Identifier: Apache-2.0
"""Seeds and counts of random tests: FOREBAY_TEST_SEED repeats a failure, FOREBAY_TEST_COUNT makes a run longer."""

from __future__ import annotations

import os
import random

__all__ = ["TEST_SEED", "times"]

#: This run's: the one asked for, else another one each time. Tests tell it when they fail.
TEST_SEED = int(os.environ.get("FOREBAY_TEST_SEED") or random.SystemRandom().randrange(1 << 32))


def times(otherwise: int) -> int:
    """How often to do it."""
    return int(os.environ.get("FOREBAY_TEST_COUNT") or otherwise)
