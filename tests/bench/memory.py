# SPDX-License-Identifier: Apache-2.0
"""The memory that measurements begin with."""

from __future__ import annotations

import mmap

import numpy as np

__all__ = ["warm_memory"]

_WARM_BYTES = 3 << 30


def warm_memory() -> None:
    """Touches and frees 3 GiB, which what is measured then uses.

    A virtual machine gives free memory back to its host, within seconds; getting it again costs ten times as much as
    the copy that is measured. So this comes last, when everything that takes part is open.
    """
    with mmap.mmap(-1, _WARM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        touched = np.frombuffer(memory, dtype=np.uint8)
        touched[:: mmap.PAGESIZE] = 1
        del touched
