# SPDX-License-Identifier: Apache-2.0
"""A function of the user's own (``--with MODULE.py:FUNCTION``): arrays of a step in, new ones out."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from forebay.connectors.derive.fields import ComputedField, Field, Fields, SourceField
from forebay.errors import InvalidArgumentError, NotFoundError

__all__ = ["UserFunction", "load_function"]


class UserFunction:
    """The operation that calls it for each step.

    The function gets the step's variables by name, as NumPy arrays, in a dict; or, if its parameter is annotated as
    ``xarray.Dataset``, such a dataset with dimensions and attributes. It returns a dict of arrays and numbers, an
    ``xarray.Dataset``, or a ``DataArray`` with a name. Arrays that it gets are read-only. A result has the blocks of
    the given array of its name and shape, else of the first one of its shape, else one block.
    """

    def __init__(self, function: Callable[..., Any], text: str, origin: tuple[str, str, str] | None = None) -> None:
        """``origin``: path of the file that it is from, its text, and the function's name."""
        self._function = function
        self.text = f"with {text}"
        self._takes_dataset = _takes_dataset(function)
        self._origin = origin

    @classmethod
    def of_file(cls, path: str, text: str, name: str) -> UserFunction:
        """The function ``name`` of a file that has this text. A worker of a cluster need not have the file."""
        # Another text is another operation: its steps must not be mixed with those of this one.
        described = f"{Path(path).name}:{name}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return cls(_function_of(_module_of(path, text), name, path), described, (path, text, name))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is not None:
            return UserFunction.of_file, self._origin
        return UserFunction, (self._function, self.text.removeprefix("with "))

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        given = {
            name: _whole(made) for name, made in fields.items() if not made.is_local and made.dtype.kind not in "TO"
        }
        arrays = {name: made for name, made in fields.items() if name in given and not made.is_value}
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
        return {name: made for name, made in fields.items() if made.is_value} | self._results(made, arrays)

    def _results(self, made: Any, arrays: Fields) -> Fields:
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
            likes = [*([arrays[name]] if name in arrays else []), *arrays.values()]
            like = next((candidate for candidate in likes if candidate.shape == array.shape), None)
            dims = tuple(map(str, one.dims)) if hasattr(one, "dims") else like.dims if like else None
            results[name] = ComputedField(array, dims, dict(getattr(one, "attrs", {})), like.boxes if like else None)
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
    try:
        if place.endswith(".py"):
            path = Path(place)
            if not path.is_file():
                raise NotFoundError(f"there is no file {place!r} with the function {name!r}")
            return UserFunction.of_file(str(path), path.read_text(encoding="utf-8"), name)
        return UserFunction(_function_of(importlib.import_module(place), name, place), text)
    except NotFoundError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"--with {text[:80]}: the module cannot be imported: {type(error).__name__}: {str(error)[:120]}"
        ) from error


@cache
def _module_of(path: str, text: str) -> ModuleType:
    """Made once in a process: each step that a worker is given brings the text."""
    module = ModuleType(f"forebay_derive_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    # The user's own file, as an import of it would run it.
    exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module


def _function_of(module: ModuleType, name: str, place: str) -> Callable[..., Any]:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise NotFoundError(f"{place!r} has no function {name!r}")
    return function
