# SPDX-License-Identifier: Apache-2.0
"""What attributes say of a variable, by convention: ``VARIABLE/dims`` names its dimensions
(``docs/formats/conventions.md``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.datatypes import AttributeValue
from forebay.errors import InvalidArgumentError
from forebay.read_only_dict import ReadOnlyDict

__all__ = ["attribute_of", "attributes_of", "checked_dims", "dims_of", "dims_of_wrf"]


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


def attributes_of(
    variable: str, attributes: Mapping[str, AttributeValue], dims: tuple[str, ...] | None
) -> Mapping[str, AttributeValue]:
    """The attributes of a variable by name: those of a step that are called ``VARIABLE/NAME``, without its ``dims``."""
    prefix = f"{variable}/"
    return ReadOnlyDict(
        {
            name.removeprefix(prefix): value
            for name, value in attributes.items()
            if name.startswith(prefix) and (dims is None or name != attribute_of(variable))
        }
    )


def dims_of(value: AttributeValue | None, dimensions: int) -> tuple[str, ...] | None:
    """The names that the attribute holds; None where there is none, or it does not fit this many dimensions.

    Other programs may use the attribute's name for something else.
    """
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, tuple) or len(names) != dimensions or not all(names) or len(set(names)) != len(names):
        return None
    return names


def dims_of_wrf(value: AttributeValue | None, dimensions: int) -> tuple[str, ...] | None:
    """The names in ``VARIABLE/Dims`` as WRF writes it by ADIOS2 (external/io_adios2): the fastest dimension first, and
    ``Time`` at the end, which the steps stand for. None where it is none of WRF's, or does not fit.
    """
    if not isinstance(value, tuple) or not value or value[-1] != "Time":
        return None
    return dims_of(tuple(reversed(value[:-1])), dimensions)
