# SPDX-License-Identifier: Apache-2.0
"""Somebody who exchanges names as fast as the machine can, in folders where they may write."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.other_user import Child

__all__ = ["exchange", "exchanging"]

_RENAME_EXCHANGE = 2
_CURRENT = -100
_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one: Path | str, other: Path | str) -> bool:
    """Whether both were there and may be renamed."""
    return bool(_libc.renameat2(_CURRENT, os.fsencode(one), _CURRENT, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def exchanging(uid: int, pairs: Callable[[], list[tuple[Path, Path]]]) -> Child:
    """A process of that user that exchanges these pairs until its context ends; what it begins with: "ready".

    `pairs` is asked again in each round, so that names that come meanwhile are found.
    """

    def loop(tell: Callable[[Any], None]) -> None:
        tell("ready")
        while True:
            for one, other in pairs():
                exchange(one, other)

    return Child(uid, loop)
