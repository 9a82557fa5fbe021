# SPDX-License-Identifier: Apache-2.0
"""Element types of variables as NumPy dtypes, and the kinds of variables.

C++ ``char`` (ADIOS2 tells it from ``int8_t``) is NumPy's ``S1``; ``long double`` is ``np.longdouble`` where that is x87
extended in 16 bytes; strings, which are single values only, are NumPy's ``StringDType``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np

from forebay.errors import InvalidArgumentError, UnsupportedError

__all__ = ["AttributeValue", "ShapeKind", "joined_dimension"]

#: The marker of the joined dimension in a joined array's shape; the same value as ``adios2.JoinedDim``.
joined_dimension = 2**64 - 2

#: One value of an attribute: a text, a number, or a one-dimensional sequence of texts or numbers.
AttributeValue = Any


class ShapeKind(StrEnum):
    """How the blocks of a variable make up its whole; ADIOS2's shape ids."""

    GLOBAL_VALUE = "global_value"  #: one value for all ranks
    GLOBAL_ARRAY = "global_array"  #: blocks at (start, count) of a global shape
    JOINED_ARRAY = "joined_array"  #: blocks laid one after another along one dimension
    LOCAL_VALUE = "local_value"  #: one value per rank; readers see a 1-d array of them
    LOCAL_ARRAY = "local_array"  #: unrelated blocks


KINDS: dict[int, ShapeKind] = dict(enumerate(ShapeKind, 1))
CODE_OF_KIND: dict[ShapeKind, int] = {kind: code for code, kind in KINDS.items()}


def kind_of(name: ShapeKind | str) -> ShapeKind:
    """The kind that is called ``name``; else InvalidArgumentError."""
    try:
        return ShapeKind(name)
    except ValueError:
        raise InvalidArgumentError(f"kind is one of {', '.join(ShapeKind)}, not {name!r}") from None


class DataType(IntEnum):
    """The native element types; values are those of the format."""

    CHARACTER = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    LONG_DOUBLE = 12
    COMPLEX64 = 13
    COMPLEX128 = 14
    STRING = 15


# Programs that bring a NumPy of their own, such as Debian's ParaView, may have one before 2.0: texts are objects there.
STRING_DTYPE: np.dtype[Any] = (
    np.dtypes.StringDType() if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else np.dtype(object)
)

# x87 extended: a mantissa of 64 bits in 16 bytes. Elsewhere np.longdouble is another format of the same name.
_LONG_DOUBLE_IS_NATIVE = np.dtype(np.longdouble).itemsize == 16 and np.finfo(np.longdouble).nmant == 63

_DTYPES: tuple[np.dtype[Any] | None, ...] = (
    None,
    np.dtype("S1"),
    np.dtype(np.int8),
    np.dtype(np.int16),
    np.dtype(np.int32),
    np.dtype(np.int64),
    np.dtype(np.uint8),
    np.dtype(np.uint16),
    np.dtype(np.uint32),
    np.dtype(np.uint64),
    np.dtype(np.float32),
    np.dtype(np.float64),
    np.dtype(np.longdouble) if _LONG_DOUBLE_IS_NATIVE else None,
    np.dtype(np.complex64),
    np.dtype(np.complex128),
    STRING_DTYPE,
)
_CODES: dict[tuple[str, int], int] = {
    (dtype.kind, dtype.itemsize): code
    for code, dtype in enumerate(_DTYPES)
    if dtype is not None and code != DataType.STRING
}


def dtype_of(code: int) -> np.dtype[Any]:
    """The NumPy dtype of a native type."""
    dtype = _DTYPES[code]
    if dtype is None:
        raise UnsupportedError("long double is x87 extended in 16 bytes, which NumPy does not have on this machine")
    return dtype


def code_of(dtype: np.dtype[Any], name: str) -> int:
    """The native type of a dtype; ``name`` is the variable or attribute, for the error."""
    code = _CODES.get((dtype.kind, dtype.itemsize))
    if code is None:
        raise InvalidArgumentError(
            f"elements of type {dtype} cannot be stored: {_advice(dtype)}", f"variable or attribute {name!r}"
        )
    return code


def _advice(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return "write .astype(np.uint8)"
    if dtype.kind in "SUTO":
        return "a variable holds one text or an array of numbers; write texts one by one, or bytes with .view('S1')"
    if dtype.kind in "mM":
        return "write .astype(np.int64) and keep the unit in an attribute"
    if dtype.kind == "f" and dtype.itemsize == 2:
        return "write .astype(np.float32)"
    if dtype.kind == "V":
        return "write one variable per field"
    return "convert it to one of int8 … int64, uint8 … uint64, float32, float64, longdouble, complex64, complex128, S1"


def plain_array(value: Any, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """A value as an array; ``name`` is the variable or attribute, for the error.

    Raises
    ------
    InvalidArgumentError
        A mask hides elements of it: a stream has no masks, so what is hidden would be read as data.
    """
    parts = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise InvalidArgumentError(
            "it has masked elements, and a stream has no mask: write .filled(VALUE), and VALUE as the attribute "
            f"{name + '/_FillValue'!r}",
            f"variable or attribute {name!r}",
        )
    return np.asarray(value)


def common_dtype(dtypes: Iterable[np.dtype[Any]], what: str) -> np.dtype[Any]:
    """The type that holds the elements of all these types exactly; ``what`` says whose they are, for the error.

    Raises
    ------
    InvalidArgumentError
        There is none.
    """
    given = list(dict.fromkeys(dtypes))
    if len(given) == 1:
        return given[0]
    found = np.result_type(*given) if all(dtype.kind in "iufc" for dtype in given) else None
    if found is not None and found.kind in "fc":
        digits = np.finfo(found).nmant + 1
        if any(dtype.kind in "iu" and 8 * dtype.itemsize - (dtype.kind == "i") > digits for dtype in given):
            found = None
    if found is None:
        raise InvalidArgumentError(f"no type holds all of {', '.join(map(str, given))} exactly: write one type", what)
    return found


def attribute_to_native(name: str, value: AttributeValue) -> tuple[int, bool, bytes, list[str]]:
    """An attribute's value as (type, is it an array, bytes of the elements, texts)."""
    if isinstance(value, str):
        return DataType.STRING, False, b"", [str(value)]
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
        return DataType.STRING, True, b"", [str(item) for item in value]
    array = plain_array(value, name)
    if array.dtype.kind in "UT":
        if array.ndim > 1:
            raise InvalidArgumentError(
                f"an attribute has at most one dimension, not {array.ndim}", f"attribute {name!r}"
            )
        return DataType.STRING, array.ndim == 1, b"", [str(item) for item in array.reshape(-1)]
    if array.ndim > 1:
        raise InvalidArgumentError(f"an attribute has at most one dimension, not {array.ndim}", f"attribute {name!r}")
    code = code_of(array.dtype, name)
    native = np.ascontiguousarray(array, dtype=dtype_of(code))
    return code, array.ndim == 1, native.tobytes(), []


def attribute_from_native(code: int, is_array: bool, data: bytes, texts: list[str]) -> AttributeValue:
    """The Python value: a str or a tuple of str, a NumPy scalar, or a read-only one-dimensional array."""
    if code == DataType.STRING:
        return tuple(texts) if is_array else texts[0]
    array = np.frombuffer(data, dtype_of(code))
    return array if is_array else array[0]
