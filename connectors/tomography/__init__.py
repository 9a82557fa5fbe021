# SPDX-License-Identifier: Apache-2.0
"""Tomography: a scan as a stream of batches of angles, and slices that are reconstructed while projections arrive.

Needs the extra ``forebay[tomography]``.

>>> from forebay.connectors import tomography
>>> tomography.ingest("tooth.h5", "beamline/tooth")  # or push frames by tomography.ScanWriter
>>> for slices in tomography.reconstruct("beamline/tooth", rows=[0]):  # while it is scanned, or afterwards
...     show(slices.image[0])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.connectors.tomography.center import find_center, search_center
    from forebay.connectors.tomography.live import LiveReconstruction, Slices, reconstruct
    from forebay.connectors.tomography.projections import minus_log, normalize
    from forebay.connectors.tomography.reconstruction import recon
    from forebay.connectors.tomography.rings import remove_rings
    from forebay.connectors.tomography.scan_export import export
    from forebay.connectors.tomography.scan_files import ingest
    from forebay.connectors.tomography.scan_writer import ScanWriter

__all__ = [
    "LiveReconstruction",
    "ScanWriter",
    "Slices",
    "export",
    "find_center",
    "ingest",
    "minus_log",
    "normalize",
    "recon",
    "reconstruct",
    "remove_rings",
    "search_center",
]

#: Imported when first asked for, so that `forebay reconstruct --help` works without the extra.
_MODULES = {
    "LiveReconstruction": "forebay.connectors.tomography.live",
    "ScanWriter": "forebay.connectors.tomography.scan_writer",
    "Slices": "forebay.connectors.tomography.live",
    "export": "forebay.connectors.tomography.scan_export",
    "find_center": "forebay.connectors.tomography.center",
    "ingest": "forebay.connectors.tomography.scan_files",
    "minus_log": "forebay.connectors.tomography.projections",
    "normalize": "forebay.connectors.tomography.projections",
    "recon": "forebay.connectors.tomography.reconstruction",
    "reconstruct": "forebay.connectors.tomography.live",
    "remove_rings": "forebay.connectors.tomography.rings",
    "search_center": "forebay.connectors.tomography.center",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
