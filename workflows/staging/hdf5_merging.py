# SPDX-License-Identifier: Apache-2.0
"""Many HDF5 files of one step each as one file, where every dataset has one more dimension, the first: the steps.

The dataset ``forebay_step`` has the steps' numbers in the stream, and is that dimension's scale. A coordinate that is
the same in all steps has its own dimension only, and is its scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.errors import CorruptError, UnsupportedError
from forebay.hdf5 import (
    add_dimension,
    import_h5py,
    is_dimension_only,
    new_file,
    own_attributes,
    write_attribute,
)
from forebay.workflows.staging.array_checksum import array_checksum
from forebay.workflows.staging.checksum import text_checksum
from forebay.workflows.staging.hdf5 import attribute_value
from forebay.workflows.staging.merging import JoinedAttributes, SingleStep, check_bytes
from forebay.workflows.staging.outputs import Advance, same_attribute

if TYPE_CHECKING:
    import h5py

__all__ = ["STEPS_DATASET", "Hdf5Merger"]

STEPS_DATASET = "forebay_step"


@dataclass(frozen=True, slots=True)
class _Layout:
    """Of a dataset of one step."""

    shape: tuple[int, ...]
    dtype: Any
    is_text: bool
    dims: tuple[str, ...] = field(compare=False)  #: names of the dimensions; empty texts where they have none


class Hdf5Merger:
    """HDF5; see `Merger`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._attributes: dict[str, dict[str, Any]] = {}  # by object, its path
        self._checksums: list[dict[str, int]] = []  # by step
        self._coordinates: set[str] = set()  # that are the same in all steps

    def write(self, steps: Sequence[SingleStep], path: Path, advance: Advance) -> None:
        h5py = import_h5py()
        with h5py.File(steps[0].path, "r") as first:
            layouts = _layouts(first)
        if STEPS_DATASET in layouts:
            raise UnsupportedError(
                f"the stream has a variable {STEPS_DATASET}, as the steps' numbers are called in the output; choose "
                "variables with --variables",
                str(path),
            )
        with new_file(path) as file:
            numbers = file.create_dataset(STEPS_DATASET, data=np.array([step.number for step in steps], np.uint64))
            numbers.make_scale("step")
            for name, content in _coordinates(steps, layouts).items():
                self._coordinates.add(name)
                file.create_dataset(name, data=content).make_scale(name)
                file[name].dims[0].label = name
            for name, layout in layouts.items():
                if name in self._coordinates:
                    continue
                dtype = h5py.string_dtype() if layout.is_text else layout.dtype
                dataset = file.create_dataset(name, shape=(len(steps), *layout.shape), dtype=dtype)
                dataset.dims[0].label = "step"
                dataset.dims[0].attach_scale(numbers)
                _name_dimensions(file, dataset, layout, layouts.keys() - self._coordinates)
            joined: dict[str, JoinedAttributes[Any]] = {}
            for place, step in enumerate(steps):
                with h5py.File(step.path, "r") as single:
                    _check_same(_layouts(single), layouts, steps[0], step, path)
                    self._checksums.append(_copy(single, file, layouts, self._coordinates, place, advance))
                    for name, values in _attributes(single, layouts).items():
                        joined.setdefault(name, JoinedAttributes[Any](same_attribute)).add(values)
            for name, attributes in joined.items():
                self._attributes[name] = attributes.values
                self.notes += attributes.notes()
                for key, value in attributes.values.items():
                    write_attribute(file[name], key, value)

    def compare(self, steps: Sequence[SingleStep], path: Path, advance: Advance) -> None:
        with import_h5py().File(path, "r") as file:
            if list(file[STEPS_DATASET][()]) != [step.number for step in steps]:
                raise CorruptError("the output does not have the numbers of the steps", str(path))
            for place, step in enumerate(steps):
                for name, expected in self._checksums[place].items():
                    content = _read(file[name], () if name in self._coordinates else (place,))
                    check_bytes(_checksum(content), expected, path, name, step.number)
                    advance(content.nbytes)
            for name, values in self._attributes.items():
                held = file[name].attrs
                for key, value in values.items():
                    if key not in held or not same_attribute(attribute_value(held[key]), value):
                        raise CorruptError(f"attribute {key!r} of {name!r} reads back as something else", str(path))


def _layouts(file: h5py.File) -> dict[str, _Layout]:
    found = {}

    def visit(name: str, node: h5py.Dataset | h5py.Group) -> None:
        if hasattr(node, "shape"):
            is_text = import_h5py().check_string_dtype(node.dtype) is not None and node.dtype.kind == "O"
            if not is_dimension_only(node):
                found[name] = _Layout(node.shape, node.dtype, is_text, tuple(axis.label for axis in node.dims))

    file.visititems(visit)
    return found


def _coordinates(steps: Sequence[SingleStep], layouts: dict[str, _Layout]) -> dict[str, np.ndarray[Any, Any]]:
    """The variables of one dimension that has their name, whose elements are the same in all steps."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    names = [name for name, layout in layouts.items() if layout.dims == (name,) and not layout.is_text]
    for step in steps if names else ():
        with import_h5py().File(step.path, "r") as single:
            for name in names.copy():
                content = _read(single[name], ()) if name in single else None
                if content is None or content.tobytes() != found.setdefault(name, content).tobytes():
                    names.remove(name)
                    found.pop(name, None)
    return found


def _name_dimensions(file: h5py.File, dataset: h5py.Dataset, layout: _Layout, taken: AbstractSet[str]) -> None:
    """The dimensions after that of the steps. Those without a name are called as our connectors call them."""
    for axis, extent in enumerate(layout.shape):
        name = layout.dims[axis]
        if name:
            dataset.dims[axis + 1].label = name
        known = file.get(name) if name else None
        if (
            not name
            or "/" in name
            or name in taken
            or (known is not None and getattr(known, "shape", None) != (extent,))
        ):
            name = f"dim_{axis}_{extent}"
        if name not in file and name not in taken and extent:
            add_dimension(file, name, extent)
        # All dimensions of a dataset have a scale, or none, for readers of netCDF-4; so what has no elements has none.
        if name in file and getattr(file[name], "shape", None) == (extent,) and file[name].is_scale:
            dataset.dims[axis + 1].attach_scale(file[name])


def _attributes(file: h5py.File, names: dict[str, _Layout]) -> dict[str, dict[str, Any]]:
    """By object; of local arrays, which are groups, those of the group."""
    owners = {"/", *names, *(str(Path(name).parent) for name in names if "/" in name)}
    return {
        owner: {key: attribute_value(value) for key, value in own_attributes(file[owner]).items()}
        for owner in sorted(owners)
    }


def _check_same(
    found: dict[str, _Layout], wanted: dict[str, _Layout], first: SingleStep, step: SingleStep, path: Path
) -> None:
    if found == wanted:
        return
    name = next(name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name))
    if name not in found or name not in wanted:
        what = f"has {'no' if name not in found else 'a'} variable {name!r}, unlike step {first.number}"
    else:
        what = (
            f"has variable {name!r} with shape {found[name].shape} and type {found[name].dtype}, step {first.number} "
            f"with shape {wanted[name].shape} and type {wanted[name].dtype}"
        )
    raise UnsupportedError(
        f"step {step.number} {what}: one HDF5 file with a dimension of steps cannot hold both; choose variables with "
        "--variables, or another format (--into NAME.bp)",
        str(path),
    )


def _copy(
    single: h5py.File,
    file: h5py.File,
    layouts: dict[str, _Layout],
    coordinates: AbstractSet[str],
    place: int,
    advance: Advance,
) -> dict[str, int]:
    checksums = {}
    for name in layouts:
        content = _read(single[name], ())
        checksums[name] = _checksum(content)
        if content.size and name not in coordinates:
            file[name][place] = content if content.ndim else content[()]
        advance(content.nbytes)
    return checksums


def _read(dataset: h5py.Dataset, place: tuple[int, ...]) -> np.ndarray[Any, Any]:
    content: np.ndarray[Any, Any] = np.asarray(dataset[place])
    return content


def _checksum(content: np.ndarray[Any, Any]) -> int:
    if content.dtype.kind != "O":
        return array_checksum(content)
    return text_checksum("\0".join(_text(item) for item in content.ravel().tolist()))


def _text(item: bytes | str) -> str:
    return item.decode() if isinstance(item, bytes) else item
