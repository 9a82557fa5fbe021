# SPDX-License-Identifier: Apache-2.0
"""The memory that measurements begin with."""

from __future__ import annotations

import mmap
import os

import numpy as np

__all__ = ["warm_memory"]

_LARGE_PAGES_BYTES = 2 << 30
_SMALL_PAGES_BYTES = 3 << 30


def warm_memory() -> None:
    """Touches and frees up to 5 GiB, at most half of what is free; what is measured then uses it.

    A virtual machine gives free memory back to its host, within seconds; getting it again costs ten times as much as
    the copy that is measured. So this comes last, when everything that takes part is open. Large pages and small ones,
    because the kernel takes small ones from what lies in fragments.
    """
    quarter = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    small, large = min(_SMALL_PAGES_BYTES, quarter), min(_LARGE_PAGES_BYTES, quarter)
    with _touched(small, mmap.MADV_NOHUGEPAGE), _touched(large, mmap.MADV_HUGEPAGE):
        pass


def _touched(length: int, advice: int) -> mmap.mmap:
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    np.frombuffer(memory, dtype=np.uint8)[:: mmap.PAGESIZE] = 1
    return memory
