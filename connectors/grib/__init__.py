# SPDX-License-Identifier: Apache-2.0
"""GRIB files of a forecast cycle as steps of a stream, and steps as GRIB files. Needs the extra ``forebay[grib]``.

A step has the messages of one valid time. The messages of one parameter on one type of level make up one variable,
``isobaricInhPa/t``, of the dimensions (number, level, latitude, longitude); those of extent 1 are left out.

>>> from forebay.connectors import grib
>>> grib.ingest(sorted(Path("run").glob("fc????.grib2")), "run1/fc")
>>> with forebay.open("run1/fc") as stream:
...     grib.write_file(stream[6], "fc0006.grib2")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.connectors.grib.exporting import FilesOfSteps, write_file
    from forebay.connectors.grib.ingesting import Ingested, ingest, write_step
    from forebay.connectors.grib.messages import Message, read_messages

__all__ = ["FilesOfSteps", "Ingested", "Message", "ingest", "read_messages", "write_file", "write_step"]

_MODULES = {
    "exporting": ("FilesOfSteps", "write_file"),
    "ingesting": ("Ingested", "ingest", "write_step"),
    "messages": ("Message", "read_messages"),
}


def __getattr__(name: str) -> Any:
    """At their first use, because the help of the command is there without ecCodes."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name!r}")
