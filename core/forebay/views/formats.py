# SPDX-License-Identifier: Apache-2.0
"""The formats of sealed views by the end of the file's name. Packages register more by ``forebay.view_formats``."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from forebay.errors import InvalidArgumentError
from forebay.views.sealed_file import ViewFormat

__all__ = ["FORMAT_GROUP", "format_named", "format_names"]

FORMAT_GROUP = "forebay.view_formats"

# Imported when one is asked for: h5py and VTK's types take a while.
_OWN_FORMATS = {"h5": "hdf5_view:HDF5", "nc": "hdf5_view:NETCDF", "npy": "npy_view:NPY"}


def format_names() -> list[str]:
    """The ends of names that are known, in order."""
    return sorted({*_OWN_FORMATS, *(point.name for point in entry_points(group=FORMAT_GROUP))})


def format_named(name: str) -> ViewFormat:
    """The format; InvalidArgumentError if there is none of this name."""
    if found := _OWN_FORMATS.get(name):
        module, _, attribute = found.partition(":")
        own: ViewFormat = getattr(importlib.import_module(f"forebay.views.{module}"), attribute)
        return own
    for point in entry_points(group=FORMAT_GROUP, name=name):
        loaded: ViewFormat = point.load()
        return loaded
    raise InvalidArgumentError(f"there are no views of format .{name}; there are: {', '.join(format_names())}")
