# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them: ``"2GiB"``, ``"500MB"``, ``4096``."""

from __future__ import annotations

import re
from decimal import Decimal

from forebay.errors import InvalidArgumentError

__all__ = ["format_size", "parse_size"]

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
    "PIB": 2**50,
}
# Nothing can stand in two of its parts: what does not fit is found out in one pass.
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_SIZE_MAX = 2**63 - 1
_CHARACTERS_MAX = 64


def parse_size(size: int | str) -> int:
    """Bytes in a size.

    Parameters
    ----------
    size : int or str
        A number of bytes, or a number with a unit: ``KiB MiB GiB TiB PiB`` (powers of 1024), ``KB MB GB TB PB`` (powers
        of 1000), ``B`` or none. Case does not matter. ``"1.5GiB"`` is allowed where it makes whole bytes.

    Returns
    -------
    int
        Bytes, at least 0.

    Raises
    ------
    InvalidArgumentError
        Negative, not a whole number of bytes, larger than 8 EiB, or an unknown unit (also ``"2G"``: 1000 or 1024?).
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise InvalidArgumentError(f"a size is a whole number of bytes or a text such as '2GiB', not {size!r}")
    if isinstance(size, int):
        if not 0 <= size <= _SIZE_MAX:
            raise InvalidArgumentError(f"size {size} is out of range: 0 to 8 EiB")
        return size
    match = _SIZE.fullmatch(size.strip()) if len(size) <= _CHARACTERS_MAX else None
    if match is None:
        shown = f"{size[:_CHARACTERS_MAX]!r}{'...' if len(size) > _CHARACTERS_MAX else ''}"
        raise InvalidArgumentError(f"{shown} is not a size: write a number and a unit, for example '512MiB' or '2GiB'")
    number, unit = match.groups()
    factor = _UNITS.get(unit.upper())
    if factor is None:
        letter = unit.upper()
        advice = "known are B, KiB, MiB, GiB, TiB, PiB, KB, MB, GB, TB, PB"
        if letter in ("K", "M", "G", "T", "P"):
            advice = f"write {number}{letter}iB (powers of 1024) or {number}{letter}B (powers of 1000)"
        raise InvalidArgumentError(f"{size!r} has an unknown unit {unit!r}: {advice}")
    count = Decimal(number) * factor
    if count != count.to_integral_value():
        raise InvalidArgumentError(f"{size!r} is not a whole number of bytes")
    if count > _SIZE_MAX:
        raise InvalidArgumentError(f"{size!r} is out of range: at most 8 EiB")
    return int(count)


def format_size(size_bytes: int) -> str:
    """A size for people: the largest binary unit that leaves at least 1, with up to two decimals (``"1.5 GiB"``)."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        factor = _UNITS[unit.upper()]
        if size_bytes >= factor:
            text = f"{size_bytes / factor:.2f}".rstrip("0").rstrip(".")
            return f"{text} {unit}"
    return f"{size_bytes} B"
