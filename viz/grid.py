# SPDX-License-Identifier: Apache-2.0
"""The grid of a step: cells of equal size, or planes at coordinates, with the variables that lie on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forebay import Step
from forebay.errors import InvalidArgumentError
from forebay.mesh_attributes import mesh_attributes

__all__ = ["Grid", "step_time", "three_numbers"]

_REAL = "iuf"
# Of numbers of dimensions, which says what the grid is.
_PREFERENCE = {3: 0, 4: 1, 2: 2}
Coordinates: TypeAlias = NDArray[np.float64]
#: Along z, y and x.
Cells: TypeAlias = tuple[int, int, int]
#: Of x, y and z.
Three: TypeAlias = tuple[float, float, float]
Edges: TypeAlias = tuple[Coordinates, Coordinates, Coordinates]


@dataclass(frozen=True)
class Grid:
    """What one step has on its grid.

    Attributes
    ----------
    shape : tuple of int
        Cells in z, y and x; of a field of two dimensions one in z.
    spacing, origin : tuple of float
        Side of a cell, and the lower corner, in x, y and z: the stream's attributes ``spacing`` and ``origin`` (one
        number, or one for each), else those that ``vtk.xml`` or Fides' attributes name.
    time : float
        The single value ``time`` of the step, else its number.
    fields : dict of str to array
        Arrays of (z, y, x), and of (z, y, x, components).
    left_out : dict of str to str
        Variables that do not lie on the grid, with the reason.
    edges : three arrays, optional
        Where the cells begin and end along x, y and z, if their sides differ (a rectilinear grid): the stream's
        coordinates. ``spacing`` is the mean then.
    """

    shape: Cells
    spacing: Three
    origin: Three
    time: float
    fields: dict[str, NDArray[Any]]
    left_out: dict[str, str]
    edges: Edges | None = None

    @classmethod
    def of_step(cls, step: Step, names: Sequence[str] | None = None, *, elements: bool = True) -> Grid:
        """Takes the named variables, or all that lie on the grid of the first one of three dimensions, else of two.

        Without ``elements`` nothing is read of them: the fields have type and shape, and nothing but zeros.

        Raises
        ------
        InvalidArgumentError
            No variable has two or three dimensions, or a named one does not lie on the grid.
        """
        chosen, shape = _choose(step, names)
        fields, left_out = _read_fields(step, chosen, shape, elements)
        if names is not None and left_out:
            name, reason = next(iter(left_out.items()))
            raise InvalidArgumentError(f"{name} cannot be published: {reason}", str(step.address))
        spacing, origin, edges = _place(step, fields, shape)
        return cls(shape, spacing, origin, step_time(step), fields, left_out, edges)

    @property
    def is_flat(self) -> bool:
        """Whether it is one layer of cells, as that of fields of two dimensions."""
        return self.shape[0] == 1

    def regular(self, cells_max: int = 256) -> Grid:
        """The same with cells of equal size: each takes the value of the cell that its middle lies in.

        Along each axis the cells are as small as the smallest one was, but not more than ``cells_max``, or as many as
        there were.
        """
        if self.edges is None:
            return self
        places: list[NDArray[np.intp]] = []
        for along in self.edges:
            width, least = along[-1] - along[0], float(np.diff(along).min())
            count = max(len(along) - 1, min(int(np.ceil(width / least)), cells_max))
            middles = along[0] + (np.arange(count) + 0.5) * width / count
            places.append(np.clip(np.searchsorted(along, middles, "right") - 1, 0, len(along) - 2))
        x, y, z = places
        counts = (len(x), len(y), len(z))
        sx, sy, sz = (float(along[-1] - along[0]) / count for along, count in zip(self.edges, counts, strict=True))
        fields = {name: field[np.ix_(z, y, x)] for name, field in self.fields.items()}
        return dataclasses.replace(self, shape=counts[::-1], spacing=(sx, sy, sz), fields=fields, edges=None)


def _choose(step: Step, names: Sequence[str] | None) -> tuple[list[str], Cells]:
    """The variables that are wanted, and the cells of the grid that one of them has."""
    chosen = [name for name in step if names is None or name in names]
    if names is not None and len(chosen) < len(set(names)):
        missing = sorted(set(names) - set(chosen))
        raise InvalidArgumentError(f"the step has no variable {', '.join(missing)}", str(step.address))
    by_preference = sorted((step[name].shape for name in chosen), key=lambda found: _PREFERENCE.get(len(found), 9))
    shape = next((cells for cells in map(_cells, by_preference) if cells is not None), None)
    if shape is None:
        raise InvalidArgumentError(
            "no variable has the shape (y, x), (z, y, x) or (z, y, x, components), so there is no grid; the "
            f"step has {', '.join(f'{name} {step[name].shape}' for name in list(step)[:5]) or 'no variables'}",
            str(step.address),
        )
    return chosen, shape


def _read_fields(
    step: Step, chosen: Sequence[str], shape: Cells, elements: bool
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The variables that lie on the grid, and why the others do not; without ``elements`` they are zeros."""
    fields: dict[str, NDArray[Any]] = {}
    left_out: dict[str, str] = {}
    for name in chosen:
        variable = step[name]
        if not variable.shape:
            continue  # a single value: it is no field, and nobody expects it to be
        if _cells(variable.shape) != shape:
            left_out[name] = f"its shape is {variable.shape}, the grid's {shape}"
        elif variable.dtype.kind not in _REAL or variable.dtype.itemsize > 8:
            left_out[name] = f"{variable.dtype} is no type of these files"
        else:
            field = variable[...] if elements else np.broadcast_to(np.zeros((), variable.dtype), variable.shape)
            fields[name] = field.reshape(shape) if field.ndim == 2 else field
    return fields, left_out


def _place(step: Step, fields: Iterable[str], shape: Cells) -> tuple[Three, Three, Edges | None]:
    """Spacing, origin and, if cells differ in size, edges."""
    attributes = step.attributes
    mesh, where = mesh_attributes(attributes), str(step.address)
    spacing = three_numbers(attributes, "spacing", mesh.spacing or 1.0, where, is_flat=shape[0] == 1)
    origin = three_numbers(attributes, "origin", mesh.origin or 0.0, where, is_flat=shape[0] == 1)
    if "spacing" in attributes or mesh.spacing is not None:
        return spacing, origin, None
    edges = _edges(step, next((step[name].dims for name in fields if step[name].dims), None), shape)
    if edges is None:
        return spacing, origin, None
    x, y, z = ((float(along[0]), float(along[-1] - along[0]) / (len(along) - 1)) for along in edges)
    are_even = all(_is_even(along) for along in edges)
    return (x[1], y[1], z[1]), (x[0], y[0], z[0]), None if are_even else edges


def _cells(shape: tuple[int, ...]) -> Cells | None:
    """Cells of an array of (y, x), (z, y, x) or, with up to 9 components, (z, y, x, components)."""
    if len(shape) == 2:
        return (1, *shape) if min(shape) > 0 else None
    if len(shape) == 3 or (len(shape) == 4 and shape[3] <= 9):
        return (shape[0], shape[1], shape[2]) if min(shape) > 0 else None
    return None


def _edges(step: Step, dims: Sequence[str] | None, shape: Cells) -> Edges | None:
    """Where cells begin and end along x, y and z, by the variables that are called as the dimensions are.

    They hold a number for each cell (its middle) or one more (its edges). None: not all are there. Fields of two
    dimensions lie in one layer of cells, as thick as these are wide.
    """
    found: list[Coordinates] = []
    names = (dims or ())[:3]
    for name, cells in zip(names, shape[-len(names) :] if len(names) == 2 else shape, strict=False):
        if name not in step or step[name].shape not in ((cells,), (cells + 1,)) or step[name].dtype.kind not in _REAL:
            return None
        places = np.asarray(step[name][...], np.float64)
        if not np.isfinite(places).all() or (np.diff(places) <= 0).any():
            raise InvalidArgumentError(f"the coordinates {name!r} must grow from element to element", str(step.address))
        if len(places) == cells:
            half = np.diff(places) / 2 if cells > 1 else np.array([0.5])
            places = np.concatenate(([places[0] - half[0]], places[:-1] + half[: cells - 1], [places[-1] + half[-1]]))
        found.append(places)
    if len(found) == len(names) == 2:
        found.insert(0, np.array([0.0, (found[1][-1] - found[1][0]) / (len(found[1]) - 1)]))
    return (found[2], found[1], found[0]) if len(found) == 3 else None


def _is_even(edges: Coordinates) -> bool:
    sides = np.diff(edges)
    # Coordinates may be of single precision.
    return bool(np.allclose(sides, sides.mean(), rtol=1e-4, atol=0))


def step_time(step: Step) -> float:
    """The single value ``time`` of a step, else its number."""
    return float(step["time"].item()) if "time" in step and not step["time"].shape else float(step.number)


def three_numbers(attributes: Mapping[str, Any], name: str, default: Any, where: str, *, is_flat: bool) -> Three:
    """An attribute of one number or three (x, y, z); of a plane also of two.

    Raises
    ------
    InvalidArgumentError
        It is something else, or a spacing that is not above 0.
    """
    value = np.asarray(attributes.get(name, default))
    if is_flat and value.shape == (2,):
        # Of x and y: the only layer is as thick as cells are wide, and begins at 0.
        value = np.append(value, value[0] if name.endswith("spacing") else 0)
    if value.dtype.kind not in _REAL or value.size not in (1, 3) or not np.isfinite(value).all():
        raise InvalidArgumentError(
            f"the attribute {name!r} is one number or three (x, y, z), not {value.tolist()}", where
        )
    x, y, z = np.broadcast_to(value.reshape(-1), 3).astype(float).tolist()
    if name.endswith("spacing") and min(x, y, z) <= 0:
        raise InvalidArgumentError(f"the attribute {name!r} must be above 0, not {value.tolist()}", where)
    return x, y, z
