# SPDX-License-Identifier: Apache-2.0
"""The file formats of stage-out by name."""

from __future__ import annotations

from forebay.errors import InvalidArgumentError
from forebay.workflows.staging.outputs import OutputFormat

__all__ = ["FORMAT_NAMES", "output_format"]

FORMAT_NAMES = ("bp5", "hdf5")


def output_format(name: str) -> OutputFormat:
    """The format of that name; its libraries are loaded only now."""
    if name == "bp5":
        from forebay.workflows.staging.bp5 import Bp5Format

        return Bp5Format()
    if name == "hdf5":
        from forebay.workflows.staging.hdf5 import Hdf5Format

        return Hdf5Format()
    raise InvalidArgumentError(f"there is no format {name!r}; known are {', '.join(FORMAT_NAMES)}")
