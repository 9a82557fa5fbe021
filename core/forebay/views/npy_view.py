# SPDX-License-Identifier: Apache-2.0
"""One variable as NumPy's file."""

from __future__ import annotations

import io
import re

import numpy as np

from forebay.datatypes import STRING_DTYPE, ShapeKind
from forebay.errors import UnsupportedError, VariableNotFoundError
from forebay.step import Step
from forebay.variable import Variable
from forebay.views.sealed_file import ARRAY_BYTES_MIN, ArrayRun, HeaderRun, SealedFile, array_runs, is_array

__all__ = ["NPY"]

# So that the elements begin at a page.
_HEADER_BYTES = 4096
_BLOCK = re.compile(r"(?P<variable>.+)/block_(?P<number>\d{6,})")


class _NpyView:
    """NumPy's ``.npy``; see `ViewFormat`."""

    def lay_out(self, step: Step, variable: str | None) -> SealedFile:
        if variable is None:
            raise UnsupportedError(
                f"an .npy file holds one variable: write {step.address}/VARIABLE.npy; the step has "
                f"{', '.join(list(step)[:3]) or 'none'}",
                str(step.address),
            )
        found, number = _variable_and_block(step, variable)
        if found.dtype is STRING_DTYPE:
            raise UnsupportedError(f"NumPy has no file for the text {variable!r}: ask for .h5", str(step.address))
        if found.kind is ShapeKind.LOCAL_ARRAY and number is None:
            raise UnsupportedError(
                f"{variable!r} is a local array of {len(found.blocks)} blocks: name one, "
                f"{step.address}/{variable}/block_000000.npy, or ask for .h5",
                str(step.address),
            )
        shape = found.shape if number is None else found.blocks[number].count
        header = _header(shape, found.dtype)
        size_bytes = found.nbytes if number is None else found.blocks[number].size_bytes
        if number is None and (size_bytes < ARRAY_BYTES_MIN or not is_array(found)):
            header += np.asarray(found[...]).tobytes()
            return SealedFile(len(header), (HeaderRun(0, header),), ())
        runs = (
            array_runs(found, len(header))
            if number is None
            else [ArrayRun(len(header), size_bytes, found.name, number)]
        )
        return SealedFile(
            len(header) + size_bytes, (HeaderRun(0, header),), tuple(run for run in runs if run.size_bytes)
        )


NPY = _NpyView()


def _variable_and_block(step: Step, name: str) -> tuple[Variable, int | None]:
    if name not in step and (match := _BLOCK.fullmatch(name)) and match["variable"] in step:
        variable, number = step[match["variable"]], int(match["number"])
        if variable.kind is ShapeKind.LOCAL_ARRAY:
            if number >= len(variable.blocks):
                raise VariableNotFoundError(
                    f"variable {variable.name!r} has {len(variable.blocks)} blocks, numbered from 0: there is no "
                    f"block {number}",
                    str(step.address),
                )
            return variable, number
    return step[name], None


def _header(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    # The text ends with a line feed, and blanks before it count for nothing. Two bytes before it have its length.
    text = stream.getvalue()[10:].rstrip().ljust(_HEADER_BYTES - 11) + b"\n"
    return stream.getvalue()[:8] + len(text).to_bytes(2, "little") + text
