# SPDX-License-Identifier: Apache-2.0
"""Many HDF5 files of one step each as one file, where every dataset has one more dimension, the first: the steps.

The dataset ``forebay_step`` has the steps' numbers in the stream, and is that dimension's scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.errors import CorruptError, UnsupportedError
from forebay.hdf5 import import_h5py, new_file, write_attribute
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


class Hdf5Merger:
    """HDF5; see `Merger`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._attributes: dict[str, dict[str, Any]] = {}  # by object, its path
        self._checksums: list[dict[str, int]] = []  # by step

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
            for name, layout in layouts.items():
                dtype = h5py.string_dtype() if layout.is_text else layout.dtype
                dataset = file.create_dataset(name, shape=(len(steps), *layout.shape), dtype=dtype)
                dataset.dims[0].label = "step"
                dataset.dims[0].attach_scale(numbers)
            joined: dict[str, JoinedAttributes[Any]] = {}
            for place, step in enumerate(steps):
                with h5py.File(step.path, "r") as single:
                    _check_same(_layouts(single), layouts, steps[0], step, path)
                    self._checksums.append(_copy(single, file, layouts, place, advance))
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
                    content = _read(file[name], (place,))
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
            found[name] = _Layout(node.shape, node.dtype, is_text)

    file.visititems(visit)
    return found


def _attributes(file: h5py.File, names: dict[str, _Layout]) -> dict[str, dict[str, Any]]:
    """By object; of local arrays, which are groups, those of the group."""
    owners = {"/", *names, *(str(Path(name).parent) for name in names if "/" in name)}
    return {
        owner: {key: attribute_value(value) for key, value in file[owner].attrs.items()}
        for owner in sorted(owners)
        if len(file[owner].attrs)
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
    single: h5py.File, file: h5py.File, layouts: dict[str, _Layout], place: int, advance: Advance
) -> dict[str, int]:
    checksums = {}
    for name in layouts:
        content = _read(single[name], ())
        checksums[name] = _checksum(content)
        if content.size:
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
