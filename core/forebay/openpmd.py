# SPDX-License-Identifier: Apache-2.0
"""Particles as openPMD lays them out: variables ``/data/N/particles/SPECIES/RECORD/COMPONENT`` and their attributes.

openPMD 1.1 and 2.0, https://github.com/openPMD/openPMD-standard: a component is a variable, or constant by the
attributes ``value`` and ``shape``; ``unitSI`` times a stored number is in SI units; a position is the sum of the
records ``position`` and ``positionOffset``. The iteration's number N may be missing (variable-based encoding).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import InvalidArgumentError, VariableNotFoundError

if TYPE_CHECKING:
    from forebay.step import Step
    from forebay.variable import Variable

__all__ = ["Component", "Species", "find_species", "species_paths"]

#: Also without the first slash, as other programs than openPMD-api may write it.
_NAME = re.compile(
    r"(?P<species>(?P<base>/?data(?:/(?P<iteration>[0-9]+))?)/particles/(?P<name>[^/]+))/(?P<record>[^/]+)(?:/(?P<component>[^/]+))?"
)
_PATCHES = "particlePatches"
_POSITION, _OFFSET = "position", "positionOffset"


@dataclass(frozen=True)
class Component:
    """One number of each particle.

    Attributes
    ----------
    record, name : str
        ``position`` and ``x``; the name of a scalar record's component is empty.
    variable : Variable, optional
        Where the numbers are; None: all particles have ``value``.
    value : number, optional
        Of a constant component.
    count : int
        How many particles there are.
    unit_si : float
        A number times this is in SI units.
    """

    record: str
    name: str
    variable: Variable | None
    value: Any
    count: int
    unit_si: float

    @property
    def column(self) -> str:
        """Name in a table, as openPMD-api's ``to_df`` has it: ``position_x``, ``weighting``."""
        return f"{self.record}_{self.name}" if self.name else self.record

    def stored(self) -> NDArray[Any]:
        """The numbers as they are stored; no copy where one block has them."""
        if self.variable is None:
            return np.full(self.count, self.value)
        found: NDArray[Any] = self.variable[...]
        return found


class Species:
    """A species of particles in a step; see :func:`find_species`.

    Parameters
    ----------
    step : Step
        The step; it must stay open as long as numbers are read.
    path : str
        For example ``/data/100/particles/electrons``.
    """

    def __init__(self, step: Step, path: str) -> None:
        self.path = path
        self.where = f"{step.address}, species {path!r}"
        self._attributes = dict(step.attributes)
        self._components = _components(step, path, self._attributes)
        match = _NAME.fullmatch(f"{path}/x")
        assert match is not None
        #: Number of the iteration; None: the encoding is variable-based.
        self.iteration = None if match["iteration"] is None else int(match["iteration"])
        self._base = match["base"]

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without those of ``positionOffset``, which are part of the positions."""
        return [part.column for part in self._components.values() if not self._is_added(part)]

    @property
    def time_s(self) -> float | None:
        """Simulated time in seconds; None if the attributes do not tell it."""
        time, unit = (self._attributes.get(f"{self._base}/{name}") for name in ("time", "timeUnitSI"))
        return None if time is None else float(time) * (1.0 if unit is None else float(unit))

    def chosen(self, names: Sequence[str] | None = None) -> list[Component]:
        """Components by column (``position_x``), by path (``position/x``) or by record (``position``: all of it).

        Raises
        ------
        VariableNotFoundError
            There is none of that name.
        InvalidArgumentError
            They are not of one length.
        """
        found: dict[str, Component] = {}
        for name in self.columns if names is None else names:
            of_name = [
                part
                for part in self._components.values()
                if name in (part.column, part.record, f"{part.record}/{part.name}")
            ]
            if not of_name:
                raise VariableNotFoundError(
                    f"the species has no {name!r}; it has {', '.join(self.columns[:12])}", self.where
                )
            found |= {part.column: part for part in of_name}
        counts = {part.column: part.count for part in found.values()}
        if len(set(counts.values())) > 1:
            raise InvalidArgumentError(f"the columns have different lengths: {counts}", self.where)
        return list(found.values())

    def values(self, part: Component, *, si: bool = False) -> NDArray[Any]:
        """The numbers of a component; positions with their offset, in the unit of ``position``.

        Parameters
        ----------
        si : bool
            In SI units, as ``float64``. Else as they are stored; a position with an offset is ``float64``.
        """
        offset = self._components.get((_OFFSET, part.name)) if part.record == _POSITION else None
        numbers = part.stored()
        if offset is not None and not (offset.variable is None and offset.value == 0):
            if offset.count != part.count:
                raise InvalidArgumentError(
                    f"{part.column} has {part.count} particles and its offset {offset.count}", self.where
                )
            if si:
                return numbers * np.float64(part.unit_si) + offset.stored() * np.float64(offset.unit_si)
            return numbers + offset.stored() * np.float64(offset.unit_si / part.unit_si)
        return numbers * np.float64(part.unit_si) if si and part.unit_si != 1.0 else numbers

    def facts(self, part: Component, *, si: bool = False) -> dict[str, str]:
        """What openPMD says of a component, as texts: unit and dimension, and what it means for macroparticles."""
        found = {"unitSI": repr(1.0 if si else part.unit_si)}
        for name in ("unitDimension", "timeOffset", "macroWeighted", "weightingPower"):
            value = self._attributes.get(f"{self.path}/{part.record}/{name}")
            if value is not None:
                found[name] = " ".join(f"{number:g}" for number in np.atleast_1d(np.asarray(value, np.float64)))
        return found

    def positions(self) -> NDArray[np.float64]:
        """Positions in metres, shape (particles, 3); those of fewer dimensions are 0 along the others.

        Raises
        ------
        VariableNotFoundError
            The species has no positions.
        """
        parts = {part.name: part for part in self.chosen([_POSITION])}
        if further := sorted(set(parts) - set("xyz")):
            raise InvalidArgumentError(f"its positions are along {', '.join(further)}, not along x, y, z", self.where)
        count = next(iter(parts.values())).count
        found = np.zeros((count, 3))
        for axis, name in enumerate("xyz"):
            if name in parts:
                found[:, axis] = self.values(parts[name], si=True)
        return found

    def _is_added(self, part: Component) -> bool:
        return part.record == _OFFSET and (_POSITION, part.name) in self._components


def species_paths(step: Step) -> list[str]:
    """Paths of the species in a step, for example ``/data/100/particles/electrons``."""
    matches = (_NAME.fullmatch(name) for name in step)
    return list(dict.fromkeys(match["species"] for match in matches if match is not None))


def find_species(step: Step, name: str) -> Species:
    """A species by its name, ``electrons``, or by its path.

    Raises
    ------
    VariableNotFoundError
        The step has none of that name.
    InvalidArgumentError
        It has several iterations with one: give the path.
    """
    paths = species_paths(step)
    found = [path for path in paths if name in (path, path.rpartition("/")[2])]
    if not found:
        known = ", ".join(paths[:8]) or "none; openPMD's are variables /data/N/particles/SPECIES/RECORD/COMPONENT"
        raise VariableNotFoundError(
            f"there is no species {name!r} of particles; the step has {known}", str(step.address)
        )
    if len(found) > 1:
        raise InvalidArgumentError(
            f"the step has {name!r} in {len(found)} iterations: give the path of one, {', '.join(found[:3])}",
            str(step.address),
        )
    return Species(step, found[0])


def _components(step: Step, path: str, attributes: Mapping[str, Any]) -> dict[tuple[str, str], Component]:
    found: dict[tuple[str, str], Component] = {}
    for name in step:
        match = _NAME.fullmatch(name)
        if match is None or match["species"] != path or match["record"] == _PATCHES:
            continue
        variable = step[name]
        if len(variable.shape) != 1:
            continue
        key = (match["record"], match["component"] or "")
        found[key] = Component(*key, variable, None, variable.shape[0], _unit(attributes, name))
    for attribute, value in attributes.items():
        name, _, last = attribute.rpartition("/")
        match = _NAME.fullmatch(name) if last == "value" else None
        shape = np.asarray(attributes.get(f"{name}/shape", ())).reshape(-1)
        if match is None or match["species"] != path or match["record"] == _PATCHES or shape.size != 1:
            continue
        key = (match["record"], match["component"] or "")
        if key not in found:
            found[key] = Component(*key, None, value, int(shape[0]), _unit(attributes, name))
    # Components of a record together, in order of their names; records as the step has them.
    records = list(dict.fromkeys(record for record, _ in found))
    return {key: found[key] for key in sorted(found, key=lambda key: (records.index(key[0]), key[1]))}


def _unit(attributes: Mapping[str, Any], name: str) -> float:
    value = np.asarray(attributes.get(f"{name}/unitSI", 1.0))
    return float(value) if value.shape == () and value.dtype.kind in "iuf" else 1.0
