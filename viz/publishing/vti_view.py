# SPDX-License-Identifier: Apache-2.0
"""A step as VTK's XML image data for `forebay path` and `forebay mount`."""

from __future__ import annotations

from forebay.errors import UnsupportedError
from forebay.step import Step
from forebay.views.sealed_file import HeaderRun, SealedFile, array_runs
from forebay.viz.grid import Grid
from forebay.viz.levels import has_levels
from forebay.viz.publishing.vti import END, vti_heads

__all__ = ["VTI"]


class _VtiView:
    """VTK's ``.vti``; see `forebay.views.sealed_file.ViewFormat`."""

    def lay_out(self, step: Step, variable: str | None) -> SealedFile:
        if variable is None and has_levels(step):
            raise UnsupportedError(
                "the step has levels of refinement, and .vti has one grid: name an array of one level, or use `forebay "
                "publish --for amrex`",
                str(step.address),
            )
        grid = Grid.of_step(step, None if variable is None else [step[variable].name], elements=False)
        if grid.edges is not None:
            raise UnsupportedError(
                "the cells of this grid differ in size, and .vti has cells of one size: ask for .h5, or use `forebay "
                "publish --for paraview --format xdmf`",
                str(step.address),
            )
        if not grid.fields:
            name, reason = next(iter(grid.left_out.items()))
            raise UnsupportedError(
                f"no variable lies on a grid that .vti can hold: {name}: {reason}", str(step.address)
            )
        found = vti_heads(grid)
        header = [HeaderRun(offset, data) for offset, data in found.heads]
        header.append(HeaderRun(found.size_bytes, END))
        arrays = [
            run
            for name, offset in zip(grid.fields, found.arrays, strict=True)
            for run in array_runs(step[name], offset)
        ]
        return SealedFile(found.size_bytes + len(END), tuple(header), tuple(arrays))


VTI = _VtiView()
