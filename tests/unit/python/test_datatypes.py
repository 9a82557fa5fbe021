# SPDX-License-Identifier: Apache-2.0
"""Element types and attribute values go to the native side and come back as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import forebay
from forebay.datatypes import (
    CODE_OF_KIND,
    DataType,
    attribute_from_native,
    attribute_to_native,
    code_of,
    common_dtype,
    dtype_of,
    plain_array,
)

DTYPES = {
    "S1": DataType.CHARACTER,
    "int8": DataType.INT8,
    "int16": DataType.INT16,
    "int32": DataType.INT32,
    "int64": DataType.INT64,
    "uint8": DataType.UINT8,
    "uint16": DataType.UINT16,
    "uint32": DataType.UINT32,
    "uint64": DataType.UINT64,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "longdouble": DataType.LONG_DOUBLE,
    "complex64": DataType.COMPLEX64,
    "complex128": DataType.COMPLEX128,
    "longlong": DataType.INT64,
    "ulonglong": DataType.UINT64,
    ">f8": DataType.FLOAT64,
}


@pytest.mark.parametrize(("dtype", "code"), DTYPES.items())
def test_dtype_has_its_native_type_and_back(dtype: str, code: DataType) -> None:
    assert code_of(np.dtype(dtype), "x") == code
    assert dtype_of(code) == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("dtype", ["bool", "float16", "S2", "U1", "datetime64[s]", "V8", "O", "clongdouble"])
def test_dtype_that_cannot_be_stored_names_the_way_out(dtype: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match=r"cannot be stored: .*'speed'"):
        code_of(np.dtype(dtype), "speed")


def test_values_of_kinds_are_those_of_the_format() -> None:
    assert CODE_OF_KIND == {
        "global_value": 1,
        "global_array": 2,
        "joined_array": 3,
        "local_value": 4,
        "local_array": 5,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("K", "K"),
        ("", ""),
        (["a", "bc"], ("a", "bc")),
        (("a",), ("a",)),
        (np.array(["a", "b"]), ("a", "b")),
        (3, np.int64(3)),
        (0.5, np.float64(0.5)),
        (np.float32(0.1), np.float32(0.1)),
        (1 + 2j, np.complex128(1 + 2j)),
        ([1, 2], np.array([1, 2])),
        (np.array([1, 2], "int16"), np.array([1, 2], "int16")),
        (np.array([1.5], ">f4"), np.array([1.5], "float32")),
        (np.longdouble("0.1"), np.longdouble("0.1")),
        (np.array([b"a", b"b"]), np.array([b"a", b"b"])),
    ],
)
def test_attribute_comes_back_as_it_was(value: Any, expected: Any) -> None:
    result = attribute_from_native(*attribute_to_native("units", value))
    assert type(result) is type(expected)
    assert np.array_equal(result, expected)
    if isinstance(expected, (np.ndarray, np.generic)):
        assert result.dtype == expected.dtype


@pytest.mark.parametrize("value", [True, None, np.zeros((2, 2)), [["a"], ["b"]], {"a": 1}, ["a", 1, None]])
def test_other_attribute_values_are_refused(value: Any) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="'units'"):
        attribute_to_native("units", value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("uint16", "uint16"), "uint16"),
        (("uint16", "int16"), "int32"),
        (("uint16", "float32"), "float32"),
        (("uint32", "float32"), "float64"),
        (("float32", "complex64"), "complex64"),
    ],
)
def test_common_type_holds_all_exactly(given: tuple[str, ...], expected: str) -> None:
    assert common_dtype(map(np.dtype, given), "x") == np.dtype(expected)


@pytest.mark.parametrize("given", [("uint64", "int64"), ("int64", "float64"), ("S1", "uint8")])
def test_types_without_a_common_one_are_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="no type holds all of"):
        common_dtype(map(np.dtype, given), "x")


@pytest.mark.parametrize("wrap", [lambda masked: masked, lambda masked: [masked, masked]])
def test_masked_elements_are_refused_and_others_taken(wrap: Any) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match=r"no mask: write .filled\(VALUE\).*'speed/_FillValue'"):
        plain_array(wrap(np.ma.masked_equal([1, 2, 3], 2)), "speed")
    assert plain_array(wrap(np.ma.array([1, 2, 3])), "speed").tolist() == wrap([1, 2, 3])
    with pytest.raises(forebay.InvalidArgumentError, match="no mask"):
        attribute_to_native("speed", np.ma.masked_equal([1, 2, 3], 2))
