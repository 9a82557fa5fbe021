# SPDX-License-Identifier: Apache-2.0
"""A step that lies in memory: what stage-out asks of forebay.Step, for tests of the output formats without a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.datatypes import STRING_DTYPE, AttributeValue, ShapeKind
from forebay.errors import CorruptError, UnsupportedError
from forebay.records import Address
from forebay.variable import Block
from forebay.workflows.staging.array_checksum import array_checksum


class InMemoryVariable:
    """What stage-out asks of forebay.Variable."""

    def __init__(
        self,
        name: str,
        kind: ShapeKind,
        shape: tuple[int, ...],
        parts: Sequence[tuple[tuple[int, ...], NDArray[Any]]],
        *,
        checksums: bool = True,
    ) -> None:
        self.name = name
        self.kind = kind
        self.shape = shape
        self.dtype = parts[0][1].dtype
        self._parts = parts
        is_value = kind in (ShapeKind.GLOBAL_VALUE, ShapeKind.LOCAL_VALUE)
        self.blocks = [
            Block(
                rank,
                start,
                () if is_value else array.shape,
                array.nbytes,
                None,
                None,
                array_checksum(array) if checksums and not is_value else None,
            )
            for rank, (start, array) in enumerate(parts)
        ]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The writer gave none."""
        return None

    def block(self, number: int) -> NDArray[Any]:
        return self._parts[number][1]

    def verify(self) -> None:
        if self.kind in (ShapeKind.GLOBAL_VALUE, ShapeKind.LOCAL_VALUE):
            return
        for (_, array), block in zip(self._parts, self.blocks, strict=True):
            if block.checksum is None:
                raise UnsupportedError(f"a block of {self.name!r} was written without a checksum")
            if array_checksum(array) != block.checksum:
                raise CorruptError(f"a block of {self.name!r} does not match its checksum")

    def item(self) -> Any:
        return self._parts[0][1].item()

    def __getitem__(self, index: Any) -> Any:
        if self.kind is ShapeKind.LOCAL_VALUE:
            return np.array([array.item() for _, array in self._parts], self.dtype)[index]
        if self.kind is ShapeKind.GLOBAL_VALUE:
            return self._parts[0][1][index]
        whole = np.zeros(self.shape, self.dtype)
        for start, array in self._parts:
            place = tuple(slice(low, low + extent) for low, extent in zip(start, array.shape, strict=True))
            whole[place] = array
        return whole[index]


class InMemoryStep:
    """What the output formats ask of forebay.Step."""

    def __init__(
        self,
        variables: Sequence[InMemoryVariable],
        attributes: Mapping[str, AttributeValue] | None = None,
        number: int = 0,
    ) -> None:
        self.number = number
        self.attributes = dict(attributes or {})
        self._variables = {variable.name: variable for variable in variables}

    @property
    def address(self) -> Address:
        return Address("run1", "flow", self.number)

    def __getitem__(self, name: str) -> InMemoryVariable:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def text(value: str) -> NDArray[Any]:
    """A single text as a variable's block."""
    return np.array(value, STRING_DTYPE)
