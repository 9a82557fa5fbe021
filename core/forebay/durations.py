# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them: ``"90s"``, ``"30m"``, ``"12h"``, ``"14d"``."""

from __future__ import annotations

import re

from forebay.errors import InvalidArgumentError

__all__ = ["format_duration", "parse_duration"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds in a duration.

    Parameters
    ----------
    text : str
        A number with a unit: ``s``, ``m`` (minutes), ``h`` or ``d`` (24 hours).

    Raises
    ------
    InvalidArgumentError
        It is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidArgumentError(
            f"{text[:80]!r} is no duration: write a number and s, m, h or d, for example '90s' or '12h'"
        )
    return float(match[1]) * _UNITS[match[2]]


def format_duration(seconds: float) -> str:
    """A duration for people, in its two largest units: ``"2 h 5 min"``, ``"14 d"``, ``"3 s"``."""
    rest = max(0, round(seconds))
    parts = []
    for unit, unit_seconds in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, unit_seconds)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
