# SPDX-License-Identifier: Apache-2.0
"""Levels of refinement in a step: variables ``level_N/FIELD``, of which level N covers a part by its blocks.

``forebay.connectors.amrex`` and ``chombo`` write such steps, and so may any program (docs/formats/conventions.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import ShapeKind, Step, Variable
from forebay.errors import InvalidArgumentError, UnsupportedError
from forebay.viz.grid import Grid, step_time, three_numbers

__all__ = ["Box", "Level", "Levels", "first_field", "grid_to_draw", "has_levels"]

Extents = tuple[int, ...]
Three = tuple[float, float, float]

_NAME = re.compile(r"level_(0|[1-9][0-9]{0,2})/(.+)")
_COMPONENT_NAMES = "xyz"


@dataclass(frozen=True)
class Box:
    """A box of cells: where it begins in its level and how many it has, slowest dimension first."""

    start: Extents
    count: Extents

    @property
    def last(self) -> Extents:
        """Its last cell."""
        return tuple(first + count - 1 for first, count in zip(self.start, self.count, strict=True))


@dataclass(frozen=True)
class Level:
    """One level of refinement.

    Attributes
    ----------
    shape : tuple of int
        Cells of the whole domain at this level, slowest dimension first.
    spacing : three float
        Sides of its cells along x, y, z.
    boxes : tuple of Box
        What it covers.
    """

    shape: Extents
    spacing: Three
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Levels:
    """The fields of a step on levels of refinement, coarsest first.

    Attributes
    ----------
    levels : tuple of Level
        At least one.
    fields : dict of str to array
        ``fields[name][level][box]``: arrays of the box's extents, vectors with a further dimension of components.
    origin : three float
        Lower corner of the domain in x, y and z.
    time : float
        The single value ``time`` of the step, else its number.
    left_out : dict of str to str
        Variables that are not among the fields, with the reason.
    where : str
        Address of the step, for messages.
    """

    levels: tuple[Level, ...]
    fields: dict[str, tuple[tuple[NDArray[Any], ...], ...]]
    origin: Three
    time: float
    left_out: dict[str, str]
    where: str

    @classmethod
    def of_step(cls, step: Step, names: Sequence[str] | None = None) -> Levels:
        """Takes the named fields, or all that lie on the boxes of the first one. Names are without ``level_N/``.

        Raises
        ------
        InvalidArgumentError
            The step has no levels, or lacks a named field, or a named field does not lie on the boxes.
        """
        return _of_step(step, names)

    @classmethod
    def of_grid(cls, grid: Grid, where: str) -> Levels:
        """A regular grid as one level of one box."""
        level = Level(grid.shape, grid.spacing, (Box((0, 0, 0), grid.shape),))
        fields: dict[str, tuple[tuple[NDArray[Any], ...], ...]] = {
            name: ((field,),) for name, field in grid.fields.items()
        }
        return cls((level,), fields, grid.origin, grid.time, grid.left_out, where)

    @property
    def dimensions(self) -> int:
        """2 or 3."""
        return len(self.levels[0].shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of files that have one type for all fields: ``float32`` if all fields are, else ``float64``."""
        single = all(boxes[0].dtype == np.float32 for field in self.fields.values() for boxes in field if boxes)
        return np.dtype(np.float32 if single else np.float64)

    @property
    def components(self) -> dict[str, tuple[str, int | None]]:
        """Names for files of scalars, with field and component: vectors become ``velocity_x`` and so on."""
        found: dict[str, tuple[str, int | None]] = {}
        for name, field in self.fields.items():
            first = next(box for boxes in field for box in boxes)
            if first.ndim == self.dimensions:
                found[name] = (name, None)
                continue
            for component in range(first.shape[-1]):
                suffix = _COMPONENT_NAMES[component] if first.shape[-1] <= 3 else str(component)
                found[f"{name}_{suffix}"] = (name, component)
        return found

    def values(self, level: int, box: int, field: str, component: int | None) -> NDArray[Any]:
        """One of the :attr:`components` in a box."""
        array = self.fields[field][level][box]
        return array if component is None else array[..., component]

    def ratios(self) -> list[int]:
        """By how much each level but the last is refined.

        Raises
        ------
        UnsupportedError
            It differs between the directions, or is no whole number: files have one number for each level.
        """
        found = []
        for number, (coarse, fine) in enumerate(zip(self.levels, self.levels[1:], strict=False)):
            ratio = fine.shape[0] // coarse.shape[0]
            if ratio < 2 or any(there != ratio * here for here, there in zip(coarse.shape, fine.shape, strict=True)):
                raise UnsupportedError(
                    f"level {number} has {coarse.shape} cells and level {number + 1} {fine.shape}; these files need "
                    "one whole ratio in all directions",
                    self.where,
                )
            found.append(ratio)
        return found

    def on_one_grid(self, cells_max: int = 256) -> Grid:
        """All levels on one regular grid, finer ones in place of coarser ones; NaN where no box is.

        Each cell takes the value of the finest cell that its middle lies in. Along each axis there are as many cells
        as the finest level has, but not more than ``cells_max``, or as many as the coarsest level has.
        """
        coarsest, finest = self.levels[0], self.levels[-1]
        shape = tuple(
            max(here, min(there, cells_max)) for here, there in zip(coarsest.shape, finest.shape, strict=True)
        )
        single = self.dtype == np.float32
        fields: dict[str, NDArray[Any]] = {}
        for name, field in self.fields.items():
            components = next(box for boxes in field for box in boxes).shape[len(shape) :]
            whole = np.full(shape + components, np.nan, np.float32 if single else np.float64)
            for level, arrays in zip(self.levels, field, strict=True):
                # In which of the level's cells the middles lie, along each axis.
                places = [
                    (2 * np.arange(cells) + 1) * own // (2 * cells)
                    for cells, own in zip(shape, level.shape, strict=True)
                ]
                for box, array in zip(level.boxes, arrays, strict=True):
                    target, source = [], []
                    for along, start, count in zip(places, box.start, box.count, strict=True):
                        first, end = np.searchsorted(along, (start, start + count))
                        target.append(slice(first, end))
                        source.append(along[first:end] - start)
                    whole[tuple(target)] = array[np.ix_(*source)]
            fields[name] = whole if len(shape) == 3 else whole[np.newaxis]
        sides = [
            side * here / there
            for side, here, there in zip(coarsest.spacing, coarsest.shape[::-1], shape[::-1], strict=False)
        ]
        if len(shape) == 2:
            shape, sides = (1, *shape), [*sides, sides[0]]  # one layer, as thick as its cells are wide
        return Grid(
            (shape[0], shape[1], shape[2]),
            (sides[0], sides[1], sides[2]),
            self.origin,
            self.time,
            fields,
            self.left_out,
        )

    def at(self, time: float) -> Levels:
        """The same with another time."""
        return replace(self, time=time)


def has_levels(step: Step, names: Sequence[str] | None = None) -> bool:
    """Whether the step has levels of refinement, and not all names are those of its own variables."""
    if names and all(name in step for name in names):
        return False
    return any(name.startswith("level_0/") for name in step)


def grid_to_draw(step: Step, names: Sequence[str] | None = None, *, cells_max: int = 256) -> Grid:
    """The fields of a step on a grid of equal cells: levels in one, or the step's own grid.

    Raises
    ------
    InvalidArgumentError
        As :meth:`Grid.of_step` and :meth:`Levels.of_step`.
    """
    if has_levels(step, names):
        return Levels.of_step(step, names).on_one_grid(cells_max)
    return Grid.of_step(step, names).regular(cells_max)


def first_field(step: Step) -> tuple[str, bool]:
    """Name of the first field that can be drawn, and whether it lies on one layer of cells.

    Raises
    ------
    InvalidArgumentError
        There is none.
    """
    if has_levels(step):
        levels = Levels.of_step(step)
        return next(iter(levels.fields)), levels.dimensions == 2
    grid = Grid.of_step(step, elements=False)
    return next(iter(grid.fields)), grid.is_flat


def _of_step(step: Step, names: Sequence[str] | None) -> Levels:
    by_field: dict[str, dict[int, Variable]] = {}
    left_out: dict[str, str] = {}
    for name in step:
        match = _NAME.fullmatch(name)
        if match is not None:
            by_field.setdefault(match[2], {})[int(match[1])] = step[name]
        elif step[name].shape:
            left_out[name] = "it lies on no level of refinement"
    where, attributes = str(step.address), step.attributes
    if names is not None and (missing := sorted(set(names) - set(by_field))):
        raise InvalidArgumentError(
            f"no level has the field {', '.join(missing)}; fields are {', '.join(list(by_field)[:10]) or 'none'}", where
        )
    levels: tuple[Level, ...] = ()
    fields: dict[str, tuple[tuple[NDArray[Any], ...], ...]] = {}
    for name, variables in by_field.items():
        if names is not None and name not in names:
            continue
        found = _levels_of(attributes, where, variables)
        if isinstance(found, str):
            reason = found
        elif levels and not _same_boxes(levels, found):
            reason = "its boxes are not those of the other fields"
        else:
            levels = levels or found
            fields[name] = tuple(_arrays(variables[number], level.boxes) for number, level in enumerate(levels))
            continue
        if names is not None:
            raise InvalidArgumentError(f"{name} cannot be taken: {reason}", where)
        left_out[name] = reason
    if not levels:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise InvalidArgumentError(f"the step has no field on levels of refinement ({reasons or 'none'})", where)
    is_flat = len(levels[0].shape) == 2
    origin = three_numbers(attributes, "level_0/origin", attributes.get("origin", 0.0), where, is_flat=is_flat)
    return Levels(levels, fields, origin, step_time(step), left_out, where)


def _levels_of(attributes: Mapping[str, Any], where: str, variables: dict[int, Variable]) -> tuple[Level, ...] | str:
    """The levels of a field, or why it has none that can be shown."""
    if sorted(variables) != list(range(len(variables))):
        return f"it lies on the levels {sorted(variables)}, not on all from 0 on"
    dimensions = min(len(variables[0].shape), 3)
    spacing: Three | None = None
    levels: list[Level] = []
    for number in range(len(variables)):
        variable = variables[number]
        if variable.dtype.kind not in "iuf" or variable.dtype.itemsize > 8:
            return f"{variable.dtype} is no type of these files"
        shape, further = variable.shape[:dimensions], variable.shape[dimensions:]
        if dimensions < 2 or len(further) > 1 or any(extent > 9 for extent in further) or 0 in variable.shape:
            return f"its shape on level {number} is {variable.shape}, not (y, x), (z, y, x) or (z, y, x, components)"
        if variable.kind is not ShapeKind.GLOBAL_ARRAY or further != variables[0].shape[dimensions:]:
            return f"on level {number} it is no global array like that on level 0"
        if any(block.count[dimensions:] != further for block in variable.blocks):
            return f"blocks of level {number} have a part of the components"
        boxes = sorted(
            {(block.start[:dimensions], block.count[:dimensions]) for block in variable.blocks if 0 not in block.count}
        )
        if not boxes:
            return f"level {number} has no blocks"
        if spacing is None:
            default: Any = attributes.get("spacing", 1.0)
        else:
            before = levels[-1].shape[::-1]
            default = (
                tuple(side * here / there for side, here, there in zip(spacing, before, shape[::-1], strict=False))
                + spacing[dimensions:]
            )
        spacing = three_numbers(attributes, f"level_{number}/spacing", default, where, is_flat=dimensions == 2)
        levels.append(Level(shape, spacing, tuple(Box(start, count) for start, count in boxes)))
    return tuple(levels)


def _same_boxes(levels: tuple[Level, ...], others: tuple[Level, ...]) -> bool:
    return len(levels) == len(others) and all(
        one.shape == other.shape and one.boxes == other.boxes for one, other in zip(levels, others, strict=True)
    )


def _arrays(variable: Variable, boxes: tuple[Box, ...]) -> tuple[NDArray[Any], ...]:
    """The blocks in the order of the boxes."""
    dimensions = len(boxes[0].start)
    places = {(block.start[:dimensions], block.count[:dimensions]): n for n, block in enumerate(variable.blocks)}
    return tuple(variable.block(places[box.start, box.count]) for box in boxes)
