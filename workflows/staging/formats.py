# SPDX-License-Identifier: Apache-2.0
"""The file formats of stage-out by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import InvalidArgumentError

if TYPE_CHECKING:
    from forebay.workflows.staging.merging import Merger
    from forebay.workflows.staging.outputs import OutputFormat

__all__ = ["FORMAT_NAMES", "format_of_name", "merger", "output_format"]

FORMAT_NAMES = ("bp5", "hdf5")
_SUFFIXES = {".bp": "bp5", ".h5": "hdf5"}


def format_of_name(name: str) -> str:
    """The format of an output that is to have all steps, by its suffix; InvalidArgumentError if it has none of them."""
    stem, dot, suffix = name.rpartition(".")
    if "/" in name or not stem or stem.startswith(".") or dot + suffix not in _SUFFIXES:
        raise InvalidArgumentError(
            f"--into {name!r}: write the name of one output in DEST that ends with .bp or .h5, for example run1.bp"
        )
    return _SUFFIXES[dot + suffix]


def merger(name: str) -> Merger:
    """What makes one output of many in the format of that name."""
    if name == "bp5":
        from forebay.workflows.staging.bp5_merging import Bp5Merger

        return Bp5Merger()
    from forebay.workflows.staging.hdf5_merging import Hdf5Merger

    return Hdf5Merger()


def output_format(name: str) -> OutputFormat:
    """The format of that name; its libraries are loaded only now."""
    if name == "bp5":
        from forebay.workflows.staging.bp5 import Bp5Format

        return Bp5Format()
    if name == "hdf5":
        from forebay.workflows.staging.hdf5 import Hdf5Format

        return Hdf5Format()
    raise InvalidArgumentError(f"there is no format {name!r}; known are {', '.join(FORMAT_NAMES)}")
