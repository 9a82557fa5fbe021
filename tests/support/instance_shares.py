# SPDX-License-Identifier: Apache-2.0
"""Which of the tests with the mark `instance` a run has."""

from __future__ import annotations

import zlib

__all__ = ["is_of_share"]


def is_of_share(name: str, shares: int, seed: int) -> bool:
    """Of so many runs in a row, by their seeds, one has the test of this name."""
    return (zlib.crc32(name.encode()) + seed) % shares == 0
