# SPDX-License-Identifier: Apache-2.0
"""Evaluates expressions by numexpr, block by block, straight into the derived step's own storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numexpr
import numpy as np

from forebay import StepBeingWritten
from forebay.connectors.derive.expression import Expression
from forebay.connectors.derive.fields import Array, Box, Field, Fields, field_named
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Expressions", "evaluated", "threads_limited"]

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

    @property
    def text(self) -> str:
        return "; ".join(one.described for one in self._expressions)

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        results = {one.name: evaluated(one, fields) for one in self._expressions}
        return {name: made for name, made in fields.items() if made.is_value and name not in results} | results


def evaluated(expression: Expression, fields: Fields) -> Field:
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
    return _ExpressionField(expression, operands)


class _ExpressionField(Field):
    def __init__(self, expression: Expression, operands: list[Field]) -> None:
        self._expression = expression
        self._operands = operands
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
        values = self._evaluate([self._operand(field, box) for field in self._operands])
        # Of an empty block numexpr forgets the dimensions.
        return values.astype(self.dtype, copy=False).reshape(box.count)

    def write(self, step: StepBeingWritten, name: str, box: Box) -> None:
        if not box.count or 0 in box.count or self._computed != self.dtype:
            super().write(step, name, box)
            return
        if self.is_local:
            place = step.allocate(name, box.count, self.dtype, kind=ShapeKind.LOCAL_ARRAY, dims=self.dims)
        else:
            place = step.allocate(name, self.shape, self.dtype, start=box.start, count=box.count, dims=self.dims)
        self._evaluate([self._operand(field, box) for field in self._operands], place)

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
