# SPDX-License-Identifier: Apache-2.0
"""Evaluates expressions by numexpr, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numexpr
import numpy as np
from numpy.typing import NDArray

from forebay import StepBeingWritten
from forebay.connectors.derive.expression import Expression
from forebay.connectors.derive.fields import Array, Box, Field, Fields, field_named
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Expressions", "threads_limited"]

#: Larger results are computed in the derived step's own storage instead of in memory that is used again. That saves
#: memory, not time: the kernel notes each page that is written there, anew after each sync.
_KEPT_BYTES_MAX = 64 << 20
#: The types that numexpr computes with: NumPy's kind, and the greatest size in bytes.
_SIZES_MAX = {"b": 1, "i": 8, "u": 4, "f": 8, "c": 16}


@contextmanager
def threads_limited(count: int) -> Iterator[None]:
    """numexpr uses this many threads within the block; the number is the whole process's."""
    before = numexpr.set_num_threads(count)
    try:
        yield
    finally:
        numexpr.set_num_threads(before)


class Expressions:
    """The operation ``--expr``: results in place of the arrays; single values come along."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        names = [one.name for one in expressions]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidArgumentError(f"two expressions make {twice!r}: give each result a name of its own")
        self._expressions = tuple(expressions)
        self._memory = _Memory()

    @property
    def text(self) -> str:
        return "; ".join(one.described for one in self._expressions)

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        results = {one.name: _evaluated(one, fields, self._memory) for one in self._expressions}
        return {name: made for name, made in fields.items() if made.is_value and name not in results} | results


def _evaluated(expression: Expression, fields: Fields, memory: _Memory) -> Field:
    """The field that the expression computes.

    Raises
    ------
    MissingVariableError
        A variable is missing.
    InvalidArgumentError, UnsupportedError
        Shapes differ, or an element type cannot be computed with.
    """
    operands = []
    for name in expression.variables:
        operands.append(field_named(name, fields))
        dtype = operands[-1].dtype
        if dtype.itemsize > _SIZES_MAX.get(dtype.kind, 0):
            raise UnsupportedError(f"expressions cannot compute with {dtype}, the type of {name!r}: use --with")
    return _ExpressionField(expression, operands, memory)


class _Memory:
    """That of results, used again for the next: fresh memory costs as much time as many an expression."""

    def __init__(self) -> None:
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)

    def __reduce__(self) -> tuple[type[_Memory], tuple[()]]:
        return _Memory, ()  # what is in it goes nowhere

    def array(self, count: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Until the next one."""
        size = math.prod(count) * dtype.itemsize
        if self._bytes.size < size:
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size].view(dtype).reshape(count)


class _ExpressionField(Field):
    def __init__(self, expression: Expression, operands: list[Field], memory: _Memory) -> None:
        self._expression = expression
        self._operands = operands
        self._memory = memory
        named = zip(expression.variables, operands, strict=True)
        arrays = [(name, field) for name, field in named if not field.is_value]
        first_name, first = arrays[0] if arrays else (expression.variables[0], operands[0])
        for name, field in arrays[1:]:
            # Blocks of local arrays belong together by their order.
            same = field.is_local == first.is_local and field.shape == first.shape
            if same and first.is_local:
                same = [box.count for box in field.boxes] == [box.count for box in first.boxes]
            if not same:
                raise InvalidArgumentError(
                    f"{first_name!r} has the shape {_described(first)} and {name!r} has {_described(field)}: an "
                    "expression takes arrays of one shape, and single values"
                )
        self.shape, self.is_local, self.boxes, self.dims = first.shape, first.is_local, first.boxes, first.dims
        self._computed = self._evaluate([np.ones(1, field.dtype) for field in operands]).dtype
        # A stream has no truth values.
        self.dtype = np.dtype(np.uint8) if self._computed.kind == "b" else self._computed

    def read(self, box: Box) -> Array:
        values = self._evaluate(self._of_operands(box))
        # Of an empty block numexpr forgets the dimensions.
        return values.astype(self.dtype, copy=False).reshape(box.count)

    def write(self, step: StepBeingWritten, name: str, box: Box) -> None:
        size = math.prod(box.count)
        if self._computed != self.dtype or not size:
            super().write(step, name, box)
        elif size * self.dtype.itemsize <= _KEPT_BYTES_MAX:
            values = self._memory.array(box.count, self.dtype)
            self._put(step, name, box, self._evaluate(self._of_operands(box), values))
        elif self.is_local:
            place = step.allocate(name, box.count, self.dtype, kind=ShapeKind.LOCAL_ARRAY, dims=self.dims)
            self._evaluate(self._of_operands(box), place)
        else:
            place = step.allocate(name, self.shape, self.dtype, start=box.start, count=box.count, dims=self.dims)
            self._evaluate(self._of_operands(box), place)

    def _of_operands(self, box: Box) -> list[Array]:
        return [self._operand(field, box) for field in self._operands]

    @staticmethod
    def _operand(field: Field, box: Box) -> Array:
        return field.read(Box(0, (), ()) if field.is_value else box)

    def _evaluate(self, operands: list[Array], out: Array | None = None) -> Array:
        names = {f"v{place}": operand for place, operand in enumerate(operands)}
        try:
            values: Any = numexpr.evaluate(
                self._expression.code, names, {}, out=out, casting="same_kind", truediv=True, order="C"
            )
        except (TypeError, ValueError, NotImplementedError, OverflowError, ZeroDivisionError, KeyError) as error:
            raise InvalidArgumentError(
                f"numexpr cannot evaluate {self._expression.text!r}: {str(error)[:120] or type(error).__name__}"
            ) from None
        return np.asarray(values)


def _described(field: Field) -> str:
    if field.is_local:
        counts = [box.count for box in field.boxes]
        shown = ", ".join(map(str, counts[:3]))
        return f"{len(counts)} local blocks ({shown}{', …' if len(counts) > 3 else ''})"
    return str(field.shape)
