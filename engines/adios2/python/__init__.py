# SPDX-License-Identifier: Apache-2.0
"""ADIOS2 applications on Forebay: sets an IO up so that its engines write to and read from a stream.

>>> import adios2
>>> import forebay.adios2
>>> io = adios2.Adios().declare_io("simulation")
>>> forebay.adios2.configure(io, "run1/flow", Retention="last:20")
>>> with adios2.Stream(io, "flow", "w") as stream:
...     ...

Programs that are configured by XML or YAML need no Python: see docs/adios2.md.
"""

from forebay.adios2.plugin import (
    IO,
    LIBRARY_NAME,
    configure,
    environment,
    hook_library,
    open_stream,
    parameter_table,
    plugin_library,
)

#: The same as `open_stream`, for ``forebay.adios2.open("run1/flow")``.
open = open_stream  # noqa: A001 - named after what users know

__all__ = [
    "IO",
    "LIBRARY_NAME",
    "configure",
    "environment",
    "hook_library",
    "open",
    "parameter_table",
    "plugin_library",
]
