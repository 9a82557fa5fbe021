# SPDX-License-Identifier: Apache-2.0
"""IDX datasets of OpenVisus: blocks from coarse to fine, so that a coarse look at a field reads few of its bytes.

A folder has one dataset ``NAME.idx`` with a time step for each published step. The step's data lies in a folder of its
own, which appears whole; then the index is replaced.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import OpenVisus

from forebay import Step
from forebay.errors import InvalidArgumentError, StorageError, UnsupportedError
from forebay.files.by_descriptor import found_inner
from forebay.files.open_folder import open_file
from forebay.new_output import new_output, remove_left
from forebay.viz.grid import Grid

__all__ = ["IdxPublication"]

_TYPES = {"i": "int", "u": "uint", "f": "float"}
_NAME = re.compile(r"[A-Za-z0-9_./:-]+")
# A read of each eighth element along three dimensions needs 2**9 times fewer elements. It reads whole blocks: as many
# elements make one, up to 2**15, of which 2**6 lie in a file, so that little of a file is its list of blocks.
_BITS_COARSE = 9
_BITS_PER_BLOCK_MAX = 15
_BLOCKS_PER_FILE = 64
_STEP_MAX = 2**31 - 1
_TIME_TEMPLATE = "t%06d/"


class IdxPublication:
    """Publishes steps of one stream as time steps of one IDX dataset. One process at a time.

    Parameters
    ----------
    folder : Path
        Made if need be; a publication of the same stream that is there is continued.
    name : str
        Of the stream, for the files: ``NAME.idx`` and the folder ``NAME``.
    variables : sequence of str, optional
        What to publish; None: all variables on the grid.
    """

    def __init__(self, folder: Path, name: str, variables: Sequence[str] | None = None) -> None:
        self._folder, self._name, self._variables = folder, name, variables
        self._folder.mkdir(parents=True, exist_ok=True)
        # Others who may write in the folder may put a link there, to other data of this user.
        inner = self._folder / self._name
        with found_inner(inner) if os.path.lexists(inner) else nullcontext(inner) as data:
            for left in data.glob(".t*.part"):
                remove_left(left)  # of a process that was killed
            self._head, self._steps = self._known(data)
            for path in data.glob("t*"):
                if re.fullmatch("t[0-9]+", path.name) and int(path.name[1:]) not in self._steps:
                    shutil.rmtree(path)  # it came before the index that would have named it

    @property
    def index(self) -> Path:
        """What to open with OpenVisus."""
        return self._folder / f"{self._name}.idx"

    @property
    def steps(self) -> list[int]:
        """Numbers of the steps that are published: the dataset's time steps."""
        return sorted(self._steps)

    def path(self, number: int) -> Path:
        """The folder with a step's data."""
        return self._folder / self._name / (_TIME_TEMPLATE % number)

    def publish(self, step: Step) -> Mapping[str, str]:
        """Publishes a step; when this returns, its data and the index are on disk.

        A step that does not come after all others takes their place: they were withdrawn, or this one is given again.

        Returns
        -------
        mapping of str to str
            Variables that are not published, with the reason.

        Raises
        ------
        UnsupportedError
            The cells have different sides, or the grid or the fields are not those of the steps before.
        """
        grid = Grid.of_step(step, self._variables)
        for name in [name for name in grid.fields if not _NAME.fullmatch(name)]:
            del grid.fields[name]
            grid.left_out[name] = "an IDX file has no place for a name with such characters"
        if not grid.fields:
            raise InvalidArgumentError("there is no field to publish", str(step.address))
        if grid.edges is not None:
            raise UnsupportedError(
                "the cells have different sides, for which IDX has no place: publish --for paraview --format xdmf",
                str(step.address),
            )
        if min(grid.shape[1:] if grid.is_flat else grid.shape) < 2:
            raise UnsupportedError(
                f"IDX needs two cells along each dimension, and the grid has {grid.shape}", str(step.address)
            )
        if step.number > _STEP_MAX:
            raise UnsupportedError(f"IDX numbers time steps up to {_STEP_MAX}", str(step.address))
        withdrawn = [number for number in self._steps if number >= step.number]
        if withdrawn:
            self._steps -= set(withdrawn)
            self._write_index()  # before the data goes, so that it never names what is not there
        with found_inner(self._folder / self._name, makes=True) as data:
            with new_output(data / (_TIME_TEMPLATE % step.number)) as made:
                head = self._write_data(grid, step, made.parent)
                if not self._steps:
                    self._head = head
                elif head != self._head:
                    raise UnsupportedError(
                        f"an IDX dataset has one grid and one list of fields, and those of step {step.number} are not "
                        f"those of step {self.steps[-1]}: name what all steps have by --variables, or take another "
                        "folder",
                        str(step.address),
                    )
                for number in withdrawn:
                    shutil.rmtree(data / (_TIME_TEMPLATE % number), ignore_errors=True)
                (made.parent / self._name / made.name).replace(made)
            _sync(data)
        self._steps.add(step.number)
        self._write_index()
        return grid.left_out

    def _write_data(self, grid: Grid, step: Step, hidden: Path) -> str:
        """Writes a step as a dataset of its own in a hidden folder; returns the head of its index, without the time
        steps.
        """
        dims = grid.shape[1:] if grid.is_flat else grid.shape
        file = OpenVisus.IdxFile()
        file.logic_box = OpenVisus.BoxNi(
            OpenVisus.PointNi([0] * len(dims)), OpenVisus.PointNi([int(extent) for extent in dims[::-1]])
        )
        file.bounds = OpenVisus.Position(
            OpenVisus.BoxNd(
                OpenVisus.PointNd(list(grid.origin[: len(dims)])),
                OpenVisus.PointNd(
                    [
                        first + side * extent
                        for first, side, extent in zip(grid.origin, grid.spacing, dims[::-1], strict=False)
                    ]
                ),
            )
        )
        for name, field in grid.fields.items():
            kind = f"{_TYPES[field.dtype.kind]}{8 * field.dtype.itemsize}"
            components = f"[{field.shape[3]}]" if field.ndim == 4 else ""
            file.fields.push_back(OpenVisus.Field(name, kind + components))
        bits = sum(math.ceil(math.log2(extent)) for extent in dims)
        file.bitsperblock = min(max(bits - _BITS_COARSE, _BITS_COARSE), _BITS_PER_BLOCK_MAX, bits)
        file.blocksperfile = min(_BLOCKS_PER_FILE, 1 << (bits - file.bitsperblock))
        file.filename_template = f"./{self._name}/%04x.bin"
        file.timesteps = OpenVisus.DatasetTimesteps(step.number, step.number, 1.0)
        file.time_template = _TIME_TEMPLATE
        index = hidden / self.index.name
        file.save(str(index))
        dataset = OpenVisus.LoadDataset(str(index))
        for name, field in grid.fields.items():
            values = np.ascontiguousarray(field)
            if grid.is_flat:
                values = values.reshape(values.shape[1:])
            try:
                dataset.write(values, field=name, time=step.number)
            except Exception as error:  # it has no class of its own
                raise StorageError(
                    f"OpenVisus could not write {name}: is the file system full? ({error})", str(self._folder)
                ) from None
        data = hidden / self._name / (_TIME_TEMPLATE % step.number)
        for path in (*data.iterdir(), data):
            _sync(path)
        return _without_time(index.read_text())

    def _write_index(self) -> None:
        times = " ".join(f"({number},{number},1)" for number in self.steps)
        before, after = self._head.split("(time)\n")
        whole = f"{before}(time)\n{_TIME_TEMPLATE} {times}\n{after}"
        if times:
            with new_output(self.index) as hidden:
                hidden.write_text(whole)
                _sync(hidden)
            _sync(self._folder)
        else:
            self.index.unlink(missing_ok=True)

    def _known(self, data: Path) -> tuple[str, set[int]]:
        """What the index says, if there is one, of what is there."""
        if not self.index.exists():
            return "", set()
        with os.fdopen(open_file(self.index), encoding="utf-8") as opened:
            text = opened.read()
        times = re.search(rf"^\(time\)\n{re.escape(_TIME_TEMPLATE)} ([(),0-9 ]+)$", text, re.MULTILINE)
        if times is None:
            raise InvalidArgumentError(f"{self.index} was not written by forebay publish: take another folder")
        numbers = {int(number) for number in re.findall(r"\(([0-9]+),\1,1\)", times[1])}
        return _without_time(text), {number for number in numbers if (data / (_TIME_TEMPLATE % number)).is_dir()}


def _without_time(text: str) -> str:
    return re.sub(r"^\(time\)\n.*\n", "(time)\n", text, count=1, flags=re.MULTILINE)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
