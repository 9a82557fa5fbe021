# SPDX-License-Identifier: Apache-2.0
"""What describes arrays in a few numbers: ``--statistics`` and ``--histogram``, computed block by block."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.connectors.derive.fields import Array, ComputedField, Field, Fields, field_named
from forebay.errors import InvalidArgumentError

__all__ = ["Histogram", "Summaries", "parse_histogram"]

_BINS_MAX = 65536


class Histogram:
    """How many elements of a variable lie in each of ``bins`` intervals of one width between ``low`` and ``high``.

    The intervals are NumPy's: each includes its lower end, the last one both. Elements outside, and NaN, are not
    counted. Without a range it goes from the step's smallest to its largest element.
    """

    def __init__(self, name: str, bins: int, low: float | None = None, high: float | None = None) -> None:
        self.name = name
        self._bins = bins
        self._range = None if low is None or high is None else (low, high)
        self.text = f"histogram {name}:{bins}" + (f":{low!r}:{high!r}" if self._range else "")

    def counted(self, fields: Fields) -> Fields:
        """``NAME_histogram``, whole numbers, and ``NAME_edges``, one more than these."""
        field = _real(self.name, field_named(self.name, fields))
        low, high = self._range or field.extremes() or (0.0, 1.0)
        edges = np.histogram_bin_edges(np.empty(0), self._bins, (low, high))
        counts = np.zeros(self._bins, np.int64)
        for box in field.boxes:
            block = field.read(box).reshape(-1)
            counts += np.histogram(block[~np.isnan(block)] if block.dtype.kind == "f" else block, edges)[0]
        return {
            f"{self.name}_histogram": ComputedField(counts, (f"{self.name}_bin",)),
            f"{self.name}_edges": ComputedField(edges, (f"{self.name}_edge",)),
        }


class Summaries:
    """Single values and histograms in place of the arrays.

    With statistics, each array of real numbers gives ``NAME_min``, ``NAME_max``, ``NAME_mean``, ``NAME_std`` (of all
    elements, divided by their number) and ``NAME_count``. NaN counts in none of them.
    """

    def __init__(self, statistics: bool, histograms: Sequence[Histogram]) -> None:
        self._statistics = statistics
        self._histograms = tuple(histograms)

    @property
    def text(self) -> str:
        return "; ".join([*(["statistics"] if self._statistics else []), *(one.text for one in self._histograms)])

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        found = {name: made for name, made in fields.items() if made.is_value}
        arrays = {name: made for name, made in fields.items() if not made.is_value and made.dtype.kind in "iuf"}
        if self._statistics:
            if not arrays:
                raise InvalidArgumentError(
                    f"no array of the step has real numbers: it has {', '.join(fields) or 'none'}"
                )
            for name, made in arrays.items():
                found |= _statistics(name, made)
        for histogram in self._histograms:
            found |= histogram.counted(fields)
        return found


def _statistics(name: str, field: Field) -> Fields:
    """One pass: mean and deviations of blocks are put together by Chan, Golub and LeVeque's formula."""
    count, mean, squares = 0, 0.0, 0.0
    low: Any = None
    high: Any = None
    for box in field.boxes:
        block: Array = field.read(box).reshape(-1)
        if block.dtype.kind == "f":
            block = block[~np.isnan(block)]
        if not block.size:
            continue
        low = block.min() if low is None else min(low, block.min())
        high = block.max() if high is None else max(high, block.max())
        # Infinities make mean and deviation infinite or NaN, as they do in NumPy.
        with np.errstate(invalid="ignore", over="ignore"):
            own = float(block.mean(dtype=np.float64))
            own_squares = float(np.square(block - np.float64(own)).sum())
            total = count + block.size
            squares += own_squares + float(np.square(np.float64(own - mean))) * count * block.size / total
            mean += (own - mean) * block.size / total
        count = total
    none = np.dtype(field.dtype).type(0) if field.dtype.kind in "iu" else np.float64(np.nan)
    values = {
        "min": none if low is None else low,
        "max": none if high is None else high,
        "mean": np.float64(mean if count else math.nan),
        "std": np.float64(math.sqrt(squares / count) if count else math.nan),
        "count": np.int64(count),
    }
    units = {"units": field.attributes["units"]} if "units" in field.attributes else {}
    return {
        f"{name}_{what}": ComputedField(np.asarray(value), attributes={} if what == "count" else units)
        for what, value in values.items()
    }


def _real(name: str, field: Field) -> Field:
    if field.is_value or field.dtype.kind not in "iuf":
        raise InvalidArgumentError(f"a histogram is of an array of real numbers; {name!r} is none: {field.dtype}")
    return field


def parse_histogram(text: str) -> Histogram:
    """``NAME:BINS`` or ``NAME:BINS:LOW:HIGH``.

    Raises
    ------
    InvalidArgumentError
        It is neither.
    """
    match = re.fullmatch(r"(.+?):([0-9]{1,6})(?::([^:]+):([^:]+))?", text.strip())
    try:
        if match is None:
            raise ValueError
        low, high = (None, None) if match[3] is None else (float(match[3]), float(match[4]))
    except ValueError:
        raise InvalidArgumentError(
            f"--histogram is NAME:BINS or NAME:BINS:LOW:HIGH, for example speed:64:0:30, not {text[:80]!r}"
        ) from None
    bins = int(match[2])
    if not 1 <= bins <= _BINS_MAX:
        raise InvalidArgumentError(f"--histogram takes 1 to {_BINS_MAX} bins, not {bins}")
    if low is not None and high is not None and not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidArgumentError(f"--histogram {text[:80]}: the range begins below its end")
    return Histogram(match[1], bins, low, high)
