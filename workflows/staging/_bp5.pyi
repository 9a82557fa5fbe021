# SPDX-License-Identifier: Apache-2.0
"""The native module for BP5 files; arrays are bytes, types are forebay.datatypes.DataType's values."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

class Writer:
    def __init__(self, path: str) -> None: ...
    def put(
        self,
        name: str,
        type: int,
        shape: Sequence[int],
        start: Sequence[int],
        count: Sequence[int],
        data: NDArray[Any],
    ) -> None: ...
    def put_string(self, name: str, value: str) -> None: ...
    def set_attribute(self, name: str, type: int, is_array: bool, data: bytes, texts: list[str]) -> None: ...
    def close(self) -> None: ...

class Reader:
    def __init__(self, path: str) -> None: ...
    @property
    def steps(self) -> int: ...
    def variables(self) -> list[tuple[str, int, bool, list[int], list[tuple[list[int], list[int]]]]]:
        """Name, type, is it a single value, shape, and (start, count) of each block."""
    def attributes(self) -> list[tuple[str, int, bool, bytes, list[str]]]: ...
    def read_block(self, variable: int, block: int, out: NDArray[Any]) -> None:
        """`variable` is its place in `variables()`."""
    def read_string(self, name: str) -> str: ...
