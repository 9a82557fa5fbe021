# SPDX-License-Identifier: Apache-2.0
"""Acquisition at a beamline: scans as streams, records of what was done, and the chain behind a detector.

- :class:`ScanStreams` writes frames: an archive stream that loses none, and a preview stream that may;
- :class:`ScanLog` keeps the documents of all scans, also of those that were aborted or killed;
- ``forebay.workflows.beamline.bluesky`` has both as devices and callbacks of Bluesky (extra ``forebay[beamline]``);
- ``forebay.workflows.beamline.pva`` takes frames from EPICS PV Access;
- ``forebay beamline run config.toml`` runs acquire, normalise, reconstruct, render and archive as a service.
"""

from forebay.workflows.beamline.scan_log import ScanLog, ScanRecord
from forebay.workflows.beamline.scan_streams import ImageKey, ScanSettings, ScanStreams

__all__ = ["ImageKey", "ScanLog", "ScanRecord", "ScanSettings", "ScanStreams"]
