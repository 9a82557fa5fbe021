# SPDX-License-Identifier: Apache-2.0
"""Fewer bytes for each element: ``--precision float32``, or ``bits=12`` as CF's packed data."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from forebay.connectors.derive.fields import Array, Box, Field, Fields
from forebay.errors import InvalidArgumentError

__all__ = ["Packed", "Single", "parse_precision"]

_BITS_MIN, _BITS_MAX = 2, 16


class Single:
    """``float32``: arrays of ``float64`` become ``float32``, and of ``complex128`` ``complex64``."""

    text = "precision float32"

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        return {
            name: _SingleField(name, made) if not made.is_value and made.dtype.char in "dD" else made
            for name, made in fields.items()
        }


class _SingleField(Field):
    def __init__(self, name: str, whole: Field) -> None:
        self._name = name
        self._whole = whole
        self.shape, self.is_local, self.boxes = whole.shape, whole.is_local, whole.boxes
        self.dims, self.attributes = whole.dims, whole.attributes
        self.dtype = np.dtype(np.float32 if whole.dtype.kind == "f" else np.complex64)

    def read(self, box: Box) -> Array:
        try:
            with np.errstate(over="raise"):
                return self._whole.read(box).astype(self.dtype)
        except FloatingPointError:
            raise InvalidArgumentError(
                f"an element of {self._name!r} is too large for float32, which ends at 3.4e38: name the variables that "
                "it is to hold for by --variables, or scale it by --expr"
            ) from None


class Packed:
    """``bits=N``: arrays of real numbers become whole numbers of N bits, with ``scale_factor`` and ``add_offset``.

    An element is at most half a ``scale_factor`` away from what it was. The largest number stands for NaN
    (``_FillValue``). Infinities, and what lies outside a range that was given, are refused.

    Parameters
    ----------
    bits : int
        2 to 16, stored in one or two bytes.
    low, high : float, optional
        What the numbers reach from and to. Not given: each step's own extremes, so that the scale changes from step to
        step.
    """

    def __init__(self, bits: int, low: float | None = None, high: float | None = None) -> None:
        self._bits = bits
        self._range = None if low is None or high is None else (low, high)
        self.text = f"precision bits={bits}" + (f":{low!r}:{high!r}" if self._range else "")

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        return {
            name: made if made.is_value or made.dtype.kind != "f" else self._packed(name, made)
            for name, made in fields.items()
        }

    def _packed(self, name: str, field: Field) -> Field:
        for taken in ("scale_factor", "add_offset"):
            if taken in field.attributes:
                raise InvalidArgumentError(f"{name!r} is packed already: it has the attribute {taken}")
        return _PackedField(name, field, self._bits, self._range or field.extremes() or (0.0, 0.0))


class _PackedField(Field):
    def __init__(self, name: str, whole: Field, bits: int, extremes: tuple[float, float]) -> None:
        self._name = name
        self._whole = whole
        self.shape, self.is_local, self.boxes, self.dims = whole.shape, whole.is_local, whole.boxes, whole.dims
        self.dtype = np.dtype(np.uint8 if bits <= 8 else np.uint16)
        self._low, self._high = extremes
        self._fill = 2**bits - 1
        # Half of the width first: the whole may be beyond the largest number.
        self._scale = (self._high / 2 - self._low / 2) / (self._fill - 1) * 2 or 1.0
        self.attributes = {
            **whole.attributes,
            "scale_factor": self._scale,
            "add_offset": self._low,
            "_FillValue": self.dtype.type(self._fill),
        }

    def read(self, box: Box) -> Array:
        values = self._whole.read(box)
        missing = np.isnan(values)
        with np.errstate(over="ignore", invalid="ignore"):
            places = np.rint((values.astype(np.float64) - self._low) / self._scale)
        outside = ~missing & ~((values >= self._low) & (values <= self._high))
        if outside.any():
            first = values[outside].flat[0]
            raise InvalidArgumentError(
                f"{self._name!r} has {first!s}, which lies outside {self._low:g} to {self._high:g}: "
                + ("give a wider range, bits=N:LOW:HIGH" if np.isfinite(first) else "packed data have no infinities")
            )
        # What rounding brings above the last number belongs to that.
        packed: Array = np.where(missing, self._fill, np.minimum(places, self._fill - 1)).astype(self.dtype)
        return packed


def parse_precision(text: str) -> Single | Packed:
    """``float32``, ``bits=N`` or ``bits=N:LOW:HIGH``.

    Raises
    ------
    InvalidArgumentError
        It is none of these.
    """
    if text.strip() == "float32":
        return Single()
    match = re.fullmatch(r"bits=([0-9]{1,3})(?::([^:]+):([^:]+))?", text.strip())
    try:
        if match is None:
            raise ValueError
        bits = int(match[1])
        low, high = (None, None) if match[2] is None else (float(match[2]), float(match[3]))
    except ValueError:
        raise InvalidArgumentError(
            f"--precision is float32, bits=N, or bits=N:LOW:HIGH, for example bits=12:0:30, not {text[:80]!r}"
        ) from None
    if not _BITS_MIN <= bits <= _BITS_MAX:
        raise InvalidArgumentError(f"--precision takes {_BITS_MIN} to {_BITS_MAX} bits, not {bits}")
    if low is not None and high is not None and not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidArgumentError(f"--precision bits={bits}: the range begins below its end, not {text[:80]!r}")
    return Packed(bits, low, high)
