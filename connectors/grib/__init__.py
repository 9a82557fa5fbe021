# SPDX-License-Identifier: Apache-2.0
"""GRIB files of a forecast cycle as steps of a stream, and steps as GRIB files. Needs the extra ``forebay[grib]``.

A step has the messages of one valid time. The messages of one parameter on one type of level make up one variable,
``isobaricInhPa/t``, of the dimensions (number, level, latitude, longitude); those of extent 1 are left out.

>>> from forebay.connectors import grib
>>> grib.ingest(sorted(Path("run").glob("fc????.grib2")), "run1/fc")
>>> with forebay.open("run1/fc") as stream:
...     grib.write_file(stream[6], "fc0006.grib2")
"""

from forebay.connectors.grib.exporting import FilesOfSteps, write_file
from forebay.connectors.grib.ingesting import Ingested, ingest, write_step
from forebay.connectors.grib.messages import Message, read_messages

__all__ = ["FilesOfSteps", "Ingested", "Message", "ingest", "read_messages", "write_file", "write_step"]
