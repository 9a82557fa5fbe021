# SPDX-License-Identifier: Apache-2.0
"""What makes a derived step of one of the source: the variables, and the operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from forebay import Step
from forebay.connectors.derive.fields import Fields, SourceField, field_named

__all__ = ["Operation", "Recipe"]

#: Attributes that describe a mesh of the source's variables by name, and of its extents.
_MESH_ATTRIBUTES = ("vtk.xml", "Fides_")


class Operation(Protocol):
    """Makes the fields of a derived step of those of its source, or of what another operation made. Can be pickled."""

    @property
    def text(self) -> str:
        """What it does, for the attributes of the derived steps."""

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        """The new fields. ``attributes`` are those of no variable, which it may change."""


@dataclass(frozen=True)
class Recipe:
    """One for all steps.

    Attributes
    ----------
    operations : tuple of Operation
        In their order.
    variables : frozenset of str, optional
        Those that the operations get; None: all. Single values come along.
    """

    operations: tuple[Operation, ...]
    variables: frozenset[str] | None = None

    def fields(self, step: Step) -> tuple[Fields, dict[str, Any]]:
        """What the derived step has, and its attributes that belong to no variable.

        Raises
        ------
        MissingVariableError
            The step lacks a variable that is needed.
        """
        names = step.variables
        attributes = dict(step.attributes)
        fields: Fields = {}
        for name in names:
            made = SourceField(step[name], attributes)
            if self.variables is None or name in self.variables or made.is_value:
                fields[name] = made
        loose = {name: value for name, value in attributes.items() if _is_loose(name, names)}
        for name in sorted(self.variables or ()):
            field_named(name, fields)
        for operation in self.operations:
            fields = operation.apply(fields, loose)
        return fields, loose


def _is_loose(attribute: str, variables: Sequence[str]) -> bool:
    """It belongs to no variable, and describes no mesh of the source's variables."""
    return not attribute.startswith(_MESH_ATTRIBUTES) and not any(
        attribute.startswith(f"{name}/") for name in variables
    )
