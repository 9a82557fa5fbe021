# SPDX-License-Identifier: Apache-2.0
"""Times as WRF writes them in its variable ``Times``: ``2026-11-01_06:00:00``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["seconds_of", "times_of"]

_FORM = re.compile(r"(\d{4})-(\d\d)-(\d\d)_(\d\d):(\d\d):(\d\d)", re.ASCII)


def seconds_of(text: str) -> int | None:
    """Seconds since 1970, in UTC; None where it is no such time."""
    match = _FORM.fullmatch(text.rstrip("\0 "))
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups())
    try:
        return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())
    except ValueError:
        return None


def times_of(texts: Iterable[Any]) -> NDArray[np.datetime64] | None:
    """As NumPy has times; None where one of them is no such time."""
    seconds = [seconds_of(text) if isinstance(text, str) else None for text in texts]
    if None in seconds:
        return None
    return np.array(seconds, "datetime64[s]").astype("datetime64[ns]")
