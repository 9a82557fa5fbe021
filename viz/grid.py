# SPDX-License-Identifier: Apache-2.0
"""The regular grid of a step: cells of equal size, with the variables that lie on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import Step
from forebay.errors import InvalidArgumentError

__all__ = ["Grid"]

_REAL = "iuf"


@dataclass(frozen=True)
class Grid:
    """What one step has on its grid.

    Attributes
    ----------
    shape : tuple of int
        Cells in z, y and x.
    spacing, origin : tuple of float
        Side of a cell, and the lower corner, in x, y and z: the stream's attributes ``spacing`` and ``origin`` (one
        number, or one for each).
    time : float
        The single value ``time`` of the step, else its number.
    fields : dict of str to array
        Arrays of (z, y, x), and of (z, y, x, components).
    left_out : dict of str to str
        Variables that do not lie on the grid, with the reason.
    """

    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]
    origin: tuple[float, float, float]
    time: float
    fields: dict[str, NDArray[Any]]
    left_out: dict[str, str]

    @classmethod
    def of_step(cls, step: Step, names: Sequence[str] | None = None) -> Grid:
        """Takes the named variables, or all that lie on the grid of the first one of three dimensions.

        Raises
        ------
        InvalidArgumentError
            No variable has three dimensions, or a named one does not lie on the grid.
        """
        chosen = [name for name in step if names is None or name in names]
        if names is not None and len(chosen) < len(set(names)):
            missing = sorted(set(names) - set(chosen))
            raise InvalidArgumentError(f"the step has no variable {', '.join(missing)}", str(step.address))
        shape = next((_cells(step[name].shape) for name in chosen if len(step[name].shape) == 3), None) or next(
            (_cells(step[name].shape) for name in chosen if _cells(step[name].shape) is not None), None
        )
        if shape is None:
            raise InvalidArgumentError(
                "no variable has the shape (z, y, x) or (z, y, x, components), so there is no grid to publish; the "
                f"step has {', '.join(f'{name} {step[name].shape}' for name in list(step)[:5]) or 'no variables'}",
                str(step.address),
            )
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
                fields[name] = variable[...]
        if names is not None and left_out:
            name, reason = next(iter(left_out.items()))
            raise InvalidArgumentError(f"{name} cannot be published: {reason}", str(step.address))
        time = float(step["time"]) if "time" in step and not step["time"].shape else float(step.number)
        attributes = step.attributes
        return cls(
            shape,
            _three(attributes, "spacing", 1.0, step),
            _three(attributes, "origin", 0.0, step),
            time,
            fields,
            left_out,
        )


def _cells(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Cells of an array of (z, y, x) or, with up to 9 components, (z, y, x, components)."""
    if len(shape) == 3 or (len(shape) == 4 and shape[3] <= 9):
        return (shape[0], shape[1], shape[2]) if min(shape) > 0 else None
    return None


def _three(attributes: Mapping[str, Any], name: str, default: float, step: Step) -> tuple[float, float, float]:
    value = np.asarray(attributes.get(name, default))
    if value.dtype.kind not in _REAL or value.size not in (1, 3) or not np.isfinite(value).all():
        raise InvalidArgumentError(
            f"the attribute {name!r} is one number or three (x, y, z), not {attributes.get(name)!r}", str(step.address)
        )
    x, y, z = np.broadcast_to(value.reshape(-1), 3).astype(float).tolist()
    if name == "spacing" and min(x, y, z) <= 0:
        raise InvalidArgumentError(f"the attribute 'spacing' must be above 0, not {value.tolist()}", str(step.address))
    return x, y, z
