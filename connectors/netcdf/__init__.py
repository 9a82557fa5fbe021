# SPDX-License-Identifier: Apache-2.0
"""History files in netCDF (WRF, MOM, NEMO, …) as steps of a stream, and a stream as one netCDF-4 file.

A step is a record of the file: its time, the variables along the dimension of the records, and those without it.
Dimensions, attributes and elements are as the file has them, also packed ones. Needs ``forebay[netcdf]``.

>>> from forebay.connectors import netcdf
>>> netcdf.ingest(sorted(Path("run").glob("wrfout_d01_*")), "run1/history")
>>> netcdf.export("run1/history", "history.nc")
"""

from __future__ import annotations

from forebay.connectors.netcdf.exporting import export
from forebay.connectors.netcdf.ingesting import Ingestion, ingest

__all__ = ["Ingestion", "export", "ingest"]
