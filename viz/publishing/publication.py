# SPDX-License-Identifier: Apache-2.0
"""A folder of published steps: files appear whole and never change; the index is renamed into place after them.

So a viewer that looks at any moment reads a series of whole steps. What a crash leaves is an older index, and files
that are published again.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

import numpy as np

from forebay import Step
from forebay.errors import InvalidArgumentError, UnsupportedError
from forebay.files.open_folder import open_file
from forebay.new_output import new_output, remove_left
from forebay.viz.grid import Grid
from forebay.viz.levels import Levels, has_levels
from forebay.viz.publishing.vti import write_vti

__all__ = ["FileFormat", "Publication", "Viewer"]


class Viewer(StrEnum):
    """For whom steps are published, or the name of the format."""

    VISIT = "visit"
    PARAVIEW = "paraview"
    YT = "yt"
    CHOMBO = "chombo"  #: the files that yt gets
    AMREX = "amrex"  #: plotfiles, for whatever reads those of AMReX and BoxLib codes
    IDX = "idx"  #: OpenVisus and other readers of IDX; see `forebay.viz.publishing.idx`


class FileFormat(StrEnum):
    """What ParaView is given."""

    VTI = "vti"  #: VTK image data
    XDMF = "xdmf"  #: HDF5 files, which other programs read, too, with an XDMF index


class Publication:
    """Publishes steps of one stream into a folder. One process at a time.

    Parameters
    ----------
    folder : Path
        Made if need be; a publication of the same stream that is there is continued.
    viewer : Viewer
        ``paraview``: ``NAME.000010.vti`` and the index ``NAME.pvd``. ``visit``, ``yt`` and ``chombo``:
        ``plt000010.3d.hdf5``, for VisIt with the index ``NAME.visit`` and the script ``visit_follow.py``. ``amrex``:
        folders ``plt00010`` and the index ``NAME.visit``.
    name : str
        Of the stream, for the files.
    variables : sequence of str, optional
        What to publish; None: all variables on the grid, or all fields on levels of refinement.
    file_format : FileFormat
        For ParaView. ``xdmf``: ``NAME.000010.h5`` and the index ``NAME.xdmf``.
    """

    def __init__(
        self,
        folder: Path,
        viewer: Viewer,
        name: str,
        variables: Sequence[str] | None = None,
        *,
        file_format: FileFormat = FileFormat.VTI,
    ) -> None:
        self._folder, self._viewer, self._name, self._variables = folder, viewer, name, variables
        self._as_xdmf = viewer is Viewer.PARAVIEW and file_format is FileFormat.XDMF
        self._elements: dict[int, Element] = {}  # what the XDMF index says of each step
        self._dimensions = 3  # of the Chombo files
        self._folder.mkdir(parents=True, exist_ok=True)
        for part in self._folder.glob(".*.part"):
            remove_left(part)  # of a process that was killed
        self._times = self._known_times()
        if viewer is Viewer.VISIT:
            script = files("forebay.viz.publishing").joinpath("visit_follow.py").read_text()
            _put(folder / "visit_follow.py", lambda path: path.write_text(script))

    @property
    def index(self) -> Path:
        """What to open in the viewer."""
        if self._viewer is Viewer.PARAVIEW:
            return self._folder / f"{self._name}.{'xdmf' if self._as_xdmf else 'pvd'}"
        if self._viewer in (Viewer.VISIT, Viewer.AMREX):
            return self._folder / f"{self._name}.visit"
        return self._folder / f"plt*.{self._dimensions}d.hdf5"

    @property
    def steps(self) -> list[int]:
        """Numbers of the steps that are published."""
        return sorted(self._times)

    def path(self, number: int) -> Path:
        """The file of a step, or its folder."""
        if self._viewer is Viewer.PARAVIEW:
            return self._folder / f"{self._name}.{number:06d}.{'h5' if self._as_xdmf else 'vti'}"
        if self._viewer is Viewer.AMREX:
            return self._folder / f"plt{number:05d}"
        return self._folder / f"plt{number:06d}.{self._dimensions}d.hdf5"

    def publish(self, step: Step) -> Mapping[str, str]:
        """Publishes a step; when this returns, its file and the index are on disk.

        A step that does not come after all others takes their place: they were withdrawn, or this one is given again.
        A step whose ``time`` an earlier one has gets a time that is larger by less than 1e-15, or the least possible.
        """
        found = self._fields_of(step)
        time = self._own_time(step.number, found.time)
        withdrawn = [number for number in self._times if number >= step.number]
        if withdrawn:
            self._times = {number: time for number, time in self._times.items() if number < step.number}
            self._write_index()  # before the files go, so that it never names one that is not there
            for number in withdrawn:
                _remove(self.path(number))
        _put(self.path(step.number), self._writer(step.number, dataclasses.replace(found, time=time)))
        self._times[step.number] = time
        self._write_index()
        return found.left_out

    def _fields_of(self, step: Step) -> Grid | Levels:
        """What is published: levels of refinement, or a grid."""
        where = str(step.address)
        leveled = has_levels(step, self._variables)
        if leveled and self._viewer is Viewer.PARAVIEW:
            raise UnsupportedError(
                "the step has levels of refinement, for which these files have no place: publish --for amrex, whose "
                "plotfiles ParaView opens, or name arrays of one level by --variables",
                where,
            )
        if leveled:
            levels = Levels.of_step(step, self._variables)
        else:
            grid = Grid.of_step(step, self._variables)
            if not grid.fields:
                raise InvalidArgumentError("there is no field to publish", where)
            if grid.edges is not None and not self._as_xdmf:
                raise UnsupportedError(
                    "the cells have different sides, for which these files have no place: publish --for paraview "
                    "--format xdmf",
                    where,
                )
            if self._viewer is Viewer.PARAVIEW:
                return grid
            levels = Levels.of_grid(grid, where)
        if self._viewer is not Viewer.AMREX and levels.dimensions != self._dimensions:
            if self._times:
                raise InvalidArgumentError(
                    f"{self._folder} has files of {self._dimensions} dimensions, and the step has {levels.dimensions}: "
                    "take another folder",
                    where,
                )
            self._dimensions = levels.dimensions
        return levels

    def _writer(self, number: int, found: Grid | Levels) -> Callable[[Path], object]:
        """Writes a step's file."""
        if isinstance(found, Levels):
            if self._viewer is Viewer.AMREX:
                from forebay.viz.publishing.plotfile import write_plotfile

                return lambda path: write_plotfile(path, found, number)
            from forebay.viz.publishing.chombo import write_chombo

            return lambda path: write_chombo(path, found, number)
        if self._as_xdmf:
            from forebay.viz.publishing.xdmf import grid_element, write_fields

            self._elements[number] = grid_element(found, self.path(number).name)
            return lambda path: write_fields(path, found)

        def write(path: Path) -> None:
            with path.open("wb") as file:
                write_vti(file, found)

        return write

    def _own_time(self, step: int, time: float) -> float:
        """The time of a step, or the next one that no other step has: viewers show one step for each time.

        Where the stream's time is no finite number it is the step's number.
        """
        taken = {known for number, known in self._times.items() if number < step}
        time = time if math.isfinite(time) else float(step)
        while time in taken:
            # Far below what a solver's time steps are, and not lost in files that keep doubles.
            time += max(float(np.spacing(abs(time))), 2.0**-50)
        return time

    def _write_index(self) -> None:
        if self._viewer in (Viewer.YT, Viewer.CHOMBO):
            return  # the files' names are the index
        if self._as_xdmf:
            from forebay.viz.publishing.xdmf import xdmf_text

            whole = xdmf_text([self._elements[number] for number in self.steps])
            _put(self.index, lambda path: path.write_text(whole))
            return
        lines: list[str] = []
        if self._viewer is Viewer.PARAVIEW:
            lines += ['<?xml version="1.0"?>', '<VTKFile type="Collection" version="0.1">', "<Collection>"]
            lines += [
                f'<DataSet timestep="{self._times[number]!r}" part="0" file={quoteattr(self.path(number).name)}/>'
                for number in self.steps
            ]
            lines += ["</Collection>", "</VTKFile>"]
        elif self._viewer is Viewer.AMREX:
            lines += [f"{self.path(number).name}/Header" for number in self.steps]
        else:
            lines += [self.path(number).name for number in self.steps]
        text = "\n".join(lines) + "\n"
        _put(self.index, lambda path: path.write_text(text))

    def _known_times(self) -> dict[int, float]:
        """What the folder's index or names say was published."""
        if self._as_xdmf:
            return self._known_xdmf()
        found: dict[int, float] = {}
        pattern = re.compile(r"plt(\d+)\.([23])d\.hdf5")
        if self._viewer is Viewer.AMREX:
            pattern = re.compile(r"plt(\d{5,})")
        elif self._viewer is Viewer.PARAVIEW:
            pattern = re.compile(re.escape(self._name) + r"\.(\d+)\.vti")
        if self._viewer is not Viewer.PARAVIEW:
            names = {path.name: 0.0 for path in self._folder.iterdir()}
        elif self.index.exists():
            try:
                with os.fdopen(open_file(self.index), "rb") as opened:
                    entries = list(ElementTree.parse(opened).getroot().iter("DataSet"))  # noqa: S314 - our own file
                names = {entry.get("file", ""): float(entry.get("timestep", "nan")) for entry in entries}
            except (ElementTree.ParseError, ValueError):
                raise InvalidArgumentError(
                    f"{self.index} was not written by forebay publish: take another folder"
                ) from None
        else:
            names = {}
        for name, time in names.items():
            match = pattern.fullmatch(name)
            if match and (self._folder / name).exists():
                found[int(match[1])] = time
                if match.re.groups == 2:
                    self._dimensions = int(match[2])
        return found

    def _known_xdmf(self) -> dict[int, float]:
        if not self.index.exists():
            return {}
        from forebay.viz.publishing.xdmf import read_grid_elements

        found: dict[int, float] = {}
        pattern = re.compile(re.escape(self._name) + r"\.(\d+)\.h5")
        for name, element in read_grid_elements(self.index).items():
            match, time = pattern.fullmatch(name), element.find("Time")
            if match and time is not None and (self._folder / name).exists():
                found[int(match[1])] = float(time.get("Value", "nan"))
                self._elements[int(match[1])] = element
        return found


def _put(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file or a folder so that it appears whole under its name, on disk."""
    with new_output(path) as hidden:
        write(hidden)
        for written in [*hidden.rglob("*"), hidden] if hidden.is_dir() else [hidden]:
            descriptor = os.open(written, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    """Removes a file or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
