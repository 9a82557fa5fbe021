# SPDX-License-Identifier: Apache-2.0
"""Which fields make up the variables of a step: members and levels of each, and the names of the dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forebay import Step
from forebay.connectors.grib.messages import Message
from forebay.errors import InvalidArgumentError

__all__ = ["Layout", "Places", "field_text", "level_kind_of"]

# Along these, levels go from large to small, as cfgrib has them.
_DECREASING = {"isobaricInhPa", "isobaricInPa"}
_MEMBER = "number"

Numbers = tuple[float, ...]


def level_kind_of(name: str) -> str:
    """The type of level in a variable's name, ``isobaricInhPa`` of ``isobaricInhPa/t``."""
    return name.partition("/")[0]


def field_text(name: str, level: float, member: int | None) -> str:
    """A field in words; without a member where the variable has one only."""
    return f"{name}, level {level:g}" + ("" if member is None else f", number {member}")


@dataclass(frozen=True)
class Places:
    """Where the fields of one variable lie: members of the ensemble, and levels, each in its order."""

    members: tuple[int, ...]
    levels: Numbers

    @property
    def count(self) -> int:
        """How many fields there are if none is missing."""
        return len(self.members) * len(self.levels)


@dataclass
class Layout:
    """What a step has: fields of one grid.

    Attributes
    ----------
    grid : str
        Fingerprint of the grid; empty while nothing is known.
    variables : dict of str to Places
        Each variable's fields.
    dims : dict of str to Numbers
        Dimensions beside those of the grid, with the coordinates along them: ``number`` or ``GROUP/NAME``.
    """

    grid: str = ""
    variables: dict[str, Places] = field(default_factory=dict)
    dims: dict[str, Numbers] = field(default_factory=dict)

    @classmethod
    def of_step(cls, step: Step) -> Layout:
        """That of a step which `write_step` wrote."""
        attributes = step.attributes
        layout = cls(str(attributes.get("GRIB_md5GridSection", "")))
        for name, variable in step.items():
            if variable.dims is not None and variable.dims == (name.rpartition("/")[2],):
                layout.dims[name] = tuple(float(place) for place in variable[...])
        for name, variable in step.items():
            if f"{name}/GRIB_typeOfLevel" not in attributes:
                continue
            members: tuple[int, ...] = (int(attributes.get("GRIB_number", 0)),)
            levels: Numbers = (float(attributes.get(f"{name}/level", 0.0)),)
            for dim in variable.dims or ():
                if dim in layout.dims and dim.startswith(_MEMBER):
                    members = tuple(int(place) for place in layout.dims[dim])
                elif (places := layout.dims.get(f"{level_kind_of(name)}/{dim}")) is not None:
                    levels = places
            layout.variables[name] = Places(members, levels)
        return layout

    def with_messages(self, messages: Iterable[Message]) -> tuple[Layout, dict[str, dict[tuple[int, float], Message]]]:
        """The layout of the next step, and its messages by variable and place.

        A variable keeps the members and levels that it has here, also those without a message.

        Raises
        ------
        InvalidArgumentError
            Two messages are for one place, or a message has another grid.
        """
        fields: dict[str, dict[tuple[int, float], Message]] = {}
        grid = self.grid
        for message in messages:
            grid = grid or message.grid
            if message.grid != grid:
                raise InvalidArgumentError(
                    f"{message.name} has another grid than the fields before it: give a stream to each grid, and "
                    "choose by where (--where), for example gridType=regular_ll",
                    str(message),
                )
            of_variable = fields.setdefault(message.name, {})
            other = of_variable.setdefault((message.member, message.level), message)
            if other is not message:
                raise InvalidArgumentError(
                    f"{message.name} comes twice for level {message.level:g}, number {message.member}"
                    f"{_difference(message, other)}",
                    f"{message} and {other}",
                )
        layout = Layout(grid, {}, dict(self.dims))
        for name, found in fields.items():
            known = self.variables.get(name, Places((), ()))
            members = sorted({*known.members, *(member for member, _ in found)})
            levels = sorted({*known.levels, *(level for _, level in found)}, reverse=level_kind_of(name) in _DECREASING)
            layout.variables[name] = Places(tuple(members), tuple(levels))
        used: set[str] = set()
        # The longest comes first, and so has the plain name in the first step.
        for name in sorted(layout.variables, key=lambda name: (-layout.variables[name].count, name)):
            used.update(layout.dimensions(name))
        layout.dims = {name: places for name, places in layout.dims.items() if name in used}
        return layout, fields

    def dimensions(self, name: str) -> list[str]:
        """The full names of a variable's dimensions before those of the grid; made if there are none yet."""
        places = self.variables[name]
        found = []
        if len(places.members) > 1:
            found.append(self._dimension(_MEMBER, places.members))
        if len(places.levels) > 1:
            kind = level_kind_of(name)
            found.append(self._dimension(f"{kind}/{kind}", places.levels))
        return found

    def missing(self, before: Layout, fields: dict[str, dict[tuple[int, float], Message]]) -> list[str]:
        """The fields that this step should have and has no message for, in words."""
        told = []
        for name in sorted({*self.variables, *before.variables}):
            places = self.variables.get(name)
            if places is None:
                told.append(f"{name}, which the step before has")
                continue
            for member in places.members:
                for level in places.levels:
                    if (member, level) not in fields[name]:
                        told.append(field_text(name, level, member if len(places.members) > 1 else None))
        return told

    def _dimension(self, base: str, places: Sequence[float]) -> str:
        """The dimension with these coordinates: the base's name, or with a number where others are."""
        wanted, name, number = tuple(float(place) for place in places), base, 1
        while self.dims.setdefault(name, wanted) != wanted:
            number += 1
            name = f"{base}_{number}"
        return name


def _difference(message: Message, other: Message) -> str:
    """What tells two messages for one place apart, and how to choose."""
    for key in ("stepType", "startStep", "dataType", "centre"):
        mine, theirs = message.keys.get(key), other.keys.get(key)
        if mine != theirs:
            if key == "startStep":
                key, mine, theirs = "stepRange", "its own", "another"
            return f", with {key} {mine} and {theirs}: choose one by where (--where {key}=…)"
    if message.reference != other.reference:
        return ", of two reference times: give the files of one cycle"
    return ": give each message once"
