# SPDX-License-Identifier: Apache-2.0
"""Tomography: a scan as a stream of batches of angles, and slices that are reconstructed while projections arrive.

Needs the extra ``forebay[tomography]``.

>>> from forebay.connectors import tomography
>>> tomography.ingest("tooth.h5", "beamline/tooth")  # or push frames by tomography.ScanWriter
>>> for slices in tomography.reconstruct("beamline/tooth", rows=[0]):  # while it is scanned, or afterwards
...     show(slices.image[0])
"""

from forebay.connectors.tomography.center import find_center
from forebay.connectors.tomography.data_exchange import ingest
from forebay.connectors.tomography.live import LiveReconstruction, Slices, reconstruct
from forebay.connectors.tomography.projections import minus_log, normalize
from forebay.connectors.tomography.reconstruction import recon
from forebay.connectors.tomography.rings import remove_rings
from forebay.connectors.tomography.scan_writer import ScanWriter

__all__ = [
    "LiveReconstruction",
    "ScanWriter",
    "Slices",
    "find_center",
    "ingest",
    "minus_log",
    "normalize",
    "recon",
    "reconstruct",
    "remove_rings",
]
