# SPDX-License-Identifier: Apache-2.0
"""Arithmetic, comparison and conversion of what is read by indexing: single values as numbers, arrays as NumPy's."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from forebay.closing import PublicNames
from forebay.errors import InvalidArgumentError

__all__ = ["ArrayOperators"]

_Operator: TypeAlias = Callable[[Any, Any], Any]


def _both_ways(function: _Operator) -> tuple[_Operator, _Operator]:
    """An operator and its reflection: Python's own for single values, for example texts; NumPy's for arrays."""
    name = function.__name__
    element_wise, element_wise_reflected = (
        getattr(NDArrayOperatorsMixin, method) for method in (f"__{name}__", f"__r{name}__")
    )

    def forward(self: ArrayOperators, other: Any) -> Any:
        return function(self[()], _operand_of(other)) if self._has_one_value() else element_wise(self, other)

    def reflected(self: ArrayOperators, other: Any) -> Any:
        return function(_operand_of(other), self[()]) if self._has_one_value() else element_wise_reflected(self, other)

    return forward, reflected


class ArrayOperators(PublicNames, NDArrayOperatorsMixin):
    """Base of variables and series: operators and NumPy's functions act on the elements, which are read for it.

    A single value (shape ``()``) behaves as the number or text that it holds: ``step["n"] == 5``,
    ``if step["converged"]``, ``f"{step['time']:.3f}"``. With dimensions, operators work element by element and give
    NumPy arrays; ``bool`` is for one element only. Nothing here changes what a step holds: ``value += 1`` makes a new
    number or array.
    """

    __slots__ = ()

    # Compared by elements, so no key of a dict: that is what `identity` is for.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the variable."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Extents, slowest dimension first."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of elements."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abstractmethod
    def _has_one_value(self) -> bool:
        """Whether it behaves as a number or text, not as an array."""

    @abstractmethod
    def _seen_without_a_copy(self) -> NDArray[Any]:
        """All elements as a view; ValueError where they cannot be seen as one."""

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        array: NDArray[Any] = self._seen_without_a_copy() if copy is False else self[...]
        if dtype is not None and array.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError(f"a view of {self.name!r} as {np.dtype(dtype)} would need a copy: it is {array.dtype}")
            return array.astype(dtype)
        return array.copy() if copy else array

    def _operand(self) -> Any:
        """The scalar or the array that operators act on."""
        return self[()] if self._has_one_value() else self[...]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        changed = options.get("out") or ()
        if any(isinstance(array, ArrayOperators) for array in changed) or (
            method == "at" and isinstance(inputs[0], ArrayOperators)
        ):
            raise InvalidArgumentError(
                "what a step holds cannot be changed: give a NumPy array to write to", repr(self)
            )
        values = [_operand_of(value) for value in inputs]
        return getattr(ufunc, method)(*values, **{name: _operand_of(value) for name, value in options.items()})

    # By the operator and not by the function: a comparison with something of another kind is False, as in NumPy.
    def __eq__(self, other: object) -> Any:
        return self._operand() == _operand_of(other)

    def __ne__(self, other: object) -> Any:
        return self._operand() != _operand_of(other)

    __add__, __radd__ = _both_ways(operator.add)
    __sub__, __rsub__ = _both_ways(operator.sub)
    __mul__, __rmul__ = _both_ways(operator.mul)
    __mod__, __rmod__ = _both_ways(operator.mod)

    def __contains__(self, element: object) -> bool:
        return bool(np.any(self == element))

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError(f"{self!r} has no dimension to iterate over")
        return (self[index] for index in range(self.shape[0]))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self!r} has no dimension, so no len()")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.shape and self.size != 1:
            # NumPy's own answer, without reading the elements.
            return bool(np.broadcast_to(np.False_, self.shape))
        return bool(self._operand())

    def __int__(self) -> int:
        return int(self._only_element("int"))

    def __float__(self) -> float:
        return float(self._only_element("float"))

    def __complex__(self) -> complex:
        return complex(self._only_element("complex"))

    def __index__(self) -> int:
        if not self._has_one_value():
            raise TypeError(f"only a single integer can be an index, not {self!r}")
        return operator.index(self[()])

    def __round__(self, digits: int | None = None) -> Any:
        if not self._has_one_value():
            raise TypeError(f"round() takes a single number, not {self!r}: use numpy.round")
        return round(self[()], digits)

    def __str__(self) -> str:
        return str(self[()]) if self._has_one_value() else repr(self)

    def __format__(self, specification: str) -> str:
        if self._has_one_value():
            return format(self[()], specification)
        if specification:
            raise TypeError(f"only a single value takes the format {specification!r}, not {self!r}")
        return str(self)

    def _in_place(self, other: object) -> Any:
        return NotImplemented  # then Python takes the operator that makes a new object

    __iadd__ = __isub__ = __imul__ = __imatmul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = _in_place
    __ilshift__ = __irshift__ = __iand__ = __ixor__ = __ior__ = _in_place

    def _only_element(self, wanted: str) -> Any:
        if self._has_one_value():
            return self[()]
        if self.size != 1:
            raise TypeError(f"only one element can be made {wanted}, and there are {self.size} in {self!r}")
        return self[...].item()


def _operand_of(value: Any) -> Any:
    return value._operand() if isinstance(value, ArrayOperators) else value
