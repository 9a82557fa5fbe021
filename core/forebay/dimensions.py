# SPDX-License-Identifier: Apache-2.0
"""Names of a variable's dimensions: the attribute ``VARIABLE/dims`` (``docs/formats/conventions.md``)."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.datatypes import AttributeValue
from forebay.errors import InvalidArgumentError

__all__ = ["attribute_of", "checked_dims", "dims_of"]


def attribute_of(variable: str) -> str:
    """Name of the attribute that holds the variable's dimension names."""
    return f"{variable}/dims"


def checked_dims(variable: str, dims: Sequence[str], dimensions: int) -> tuple[str, ...]:
    """The names as they are stored.

    Raises
    ------
    InvalidArgumentError
        Not one name for each dimension, or names that are empty or occur twice.
    """
    where = f"variable {variable!r}"
    if isinstance(dims, str):
        raise InvalidArgumentError(f"dims is a sequence of names, not one text: write dims=({dims!r},)", where)
    names = tuple(dims)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidArgumentError(f"the names in dims are texts that are not empty, not {names!r}", where)
    if len(names) != dimensions:
        raise InvalidArgumentError(
            f"dims names {len(names)} dimensions, and the block has {dimensions}: give one name for each, the slowest "
            "first",
            where,
        )
    if len(set(names)) != len(names):
        raise InvalidArgumentError(f"a name occurs twice in dims: {names!r}", where)
    return names


def dims_of(value: AttributeValue | None, dimensions: int) -> tuple[str, ...] | None:
    """The names that the attribute holds; None where there is none, or it does not fit this many dimensions.

    Other programs may use the attribute's name for something else.
    """
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, tuple) or len(names) != dimensions or not all(names) or len(set(names)) != len(names):
        return None
    return names
