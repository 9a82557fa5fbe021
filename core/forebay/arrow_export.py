# SPDX-License-Identifier: Apache-2.0
"""Variables and series as Arrow data by the PyCapsule interface, by which Polars, DuckDB and pandas read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import UnsupportedError

if TYPE_CHECKING:
    from forebay.series import Series
    from forebay.variable import Variable

__all__ = ["array_capsules", "arrow_array", "check_arrow_type", "series_capsule"]


def check_arrow_type(dtype: np.dtype[Any], where: str) -> None:
    """UnsupportedError for what Arrow has no numbers or texts of."""
    if (dtype.kind in "iuf" and dtype.itemsize <= 8) or dtype.kind == "T":
        return
    advice = (
        "take its .real and .imag as columns of their own" if dtype.kind == "c" else "take variable[...] as NumPy array"
    )
    raise UnsupportedError(f"Arrow has no numbers of type {dtype}: {advice}", where)


def arrow_array(data: NDArray[Any], where: str) -> Any:
    """Rows of an array, without a copy: numbers of one dimension, tensors of one size for more.

    Raises
    ------
    UnsupportedError
        It has no dimensions, no such type in Arrow, or pyarrow is not installed.
    """
    arrow = _pyarrow(where)
    check_arrow_type(data.dtype, where)
    if data.ndim == 0:
        raise UnsupportedError("a single value is no Arrow array: take variable.item()", where)
    if data.ndim == 1:
        return arrow.array(data)
    if data.dtype.kind == "T":
        raise UnsupportedError("Arrow has no tensors of texts: take variable[...] as NumPy array", where)
    # Arrow wants the first stride to be the largest, which that of a single row may not be.
    rows = np.ascontiguousarray(data[0]).reshape(data.shape) if len(data) == 1 else np.ascontiguousarray(data)
    return arrow.FixedShapeTensorArray.from_numpy_ndarray(rows)


def array_capsules(variable: Variable, requested_schema: object | None) -> tuple[object, object]:
    """What ``__arrow_c_array__`` of a variable gives: its elements along the first dimension."""
    where = f"{variable.step.address}, variable {variable.name!r}"
    capsules: tuple[object, object] = arrow_array(variable[...], where).__arrow_c_array__(requested_schema)
    return capsules


def series_capsule(series: Series, requested_schema: object | None) -> object:
    """What ``__arrow_c_stream__`` of a series gives: a chunk for each step, with one row, read when it is asked for."""
    where = f"stream {series.stream.address}, variable {series.name!r}"
    arrow = _pyarrow(where)
    numbers = series.steps

    def batch_of(position: int) -> Any:
        chosen = slice(position, position + 1)
        rows = arrow_array(series[chosen], where)
        return arrow.record_batch([arrow.array(numbers[chosen]), rows], names=["step", series.name])

    def batches() -> Iterator[Any]:
        return (batch_of(position) for position in range(len(series)))

    schema = batch_of(0).schema
    capsule: object = arrow.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)
    return capsule


def _pyarrow(where: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UnsupportedError("Arrow data need pyarrow: pip install 'forebay[arrow]'", where) from None
    return pyarrow
