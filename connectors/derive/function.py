# SPDX-License-Identifier: Apache-2.0
"""A function of the user's own (``--with MODULE.py:FUNCTION``): arrays of a step in, new ones out."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from forebay.connectors.derive.fields import ComputedField, Field, Fields, SourceField
from forebay.errors import InvalidArgumentError, NotFoundError

__all__ = ["UserFunction", "load_function"]


class UserFunction:
    """The operation that calls it for each step.

    The function gets the step's variables by name, as NumPy arrays, in a dict; or, if its parameter is annotated as
    ``xarray.Dataset``, such a dataset with dimensions and attributes. It returns a dict of arrays and numbers, an
    ``xarray.Dataset``, or a ``DataArray`` with a name. Arrays that it gets are read-only. A result of the shape of the
    first array that it got has that one's blocks, any other one block.
    """

    def __init__(self, function: Callable[..., Any], text: str) -> None:
        self._function = function
        self.text = f"with {text}"
        self._takes_dataset = _takes_dataset(function)

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        given = {
            name: _whole(made) for name, made in fields.items() if not made.is_local and made.dtype.kind not in "TO"
        }
        first = next((made for name, made in fields.items() if name in given and not made.is_value), None)
        argument: Any = given
        if self._takes_dataset:
            import xarray as xr

            argument = xr.Dataset(
                {
                    name: (fields[name].dims or tuple(f"{name}_{place}" for place in range(array.ndim)), array,
                           dict(fields[name].attributes))
                    for name, array in given.items()
                },
                attrs=attributes,
            )  # fmt: skip
        try:
            made = self._function(argument)
        except Exception as error:
            raise InvalidArgumentError(f"{self.text}: it raised {type(error).__name__}: {str(error)[:120]}") from error
        return {name: made for name, made in fields.items() if made.is_value} | self._results(made, first)

    def _results(self, made: Any, first: Field | None) -> Fields:
        if type(made).__name__ == "DataArray" and made.name:
            made = made.to_dataset()
        if type(made).__name__ == "Dataset":
            named = {str(name): one for name, one in made.variables.items()}
        elif isinstance(made, Mapping):
            named = dict(made)
        else:
            raise InvalidArgumentError(
                f"{self.text}: it returned {type(made).__name__}; return a dict of arrays, an xarray.Dataset, or a "
                "DataArray with a name"
            )
        results: Fields = {}
        for name, one in named.items():
            array = np.asarray(one)
            if array.dtype.kind == "b":
                array = array.astype(np.uint8)
            if array.dtype.kind not in "iufc" or not isinstance(name, str):
                raise InvalidArgumentError(f"{self.text}: {name!r} is no array of numbers but {array.dtype}")
            same = first is not None and first.shape == array.shape
            dims = tuple(map(str, one.dims)) if hasattr(one, "dims") else first.dims if same and first else None
            results[name] = ComputedField(
                array, dims, dict(getattr(one, "attrs", {})), first.boxes if same and first else None
            )
        return results


def _takes_dataset(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    annotation = parameters[0].annotation if parameters else None
    shown = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return shown.rpartition(".")[2] == "Dataset"


def _whole(field: Field) -> np.ndarray[Any, np.dtype[Any]]:
    if isinstance(field, SourceField):
        return field.whole()
    array = np.zeros(field.shape, field.dtype)
    for box in field.boxes:
        array[box.slices] = field.read(box)
    array.flags.writeable = False
    return array


def load_function(text: str) -> UserFunction:
    """``PATH.py:FUNCTION``, or ``PACKAGE.MODULE:FUNCTION`` that Python finds.

    Raises
    ------
    NotFoundError
        There is no such file, module or function.
    InvalidArgumentError
        It is neither, or the module cannot be imported.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise InvalidArgumentError(f"--with is MODULE.py:FUNCTION, for example filters.py:smooth, not {text[:80]!r}")
    described = text
    try:
        if place.endswith(".py"):
            path = Path(place)
            if not path.is_file():
                raise NotFoundError(f"there is no file {place!r} with the function {name!r}")
            # Another text is another operation: its steps must not be mixed with those of this one.
            described = f"{path.name}:{name}, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
            module_name = f"forebay_derive_{path.stem}"
            spec = spec_from_file_location(module_name, path)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except NotFoundError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"--with {text[:80]}: the module cannot be imported: {type(error).__name__}: {str(error)[:120]}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise NotFoundError(f"{place!r} has no function {name!r}")
    return UserFunction(function, described)
