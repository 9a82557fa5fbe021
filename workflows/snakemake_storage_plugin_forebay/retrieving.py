# SPDX-License-Identifier: Apache-2.0
"""A step as a plain file, for rules that need one."""

from __future__ import annotations

import shutil
from pathlib import Path

import forebay
from forebay.new_output import new_output
from forebay.workflows.staging.formats import output_format

__all__ = ["retrieve_step"]

_FORMATS = {"h5": "hdf5", "bp5": "bp5"}


def retrieve_step(address: str, wanted: str, path: Path, instance: forebay.Instance | None) -> None:
    """Writes the step ``RES/STREAM@17`` to a file (h5) or folder (bp5) that appears whole.

    Checksums are checked as it is read. Nothing is marked as staged: the file is the rule's, not an archive.
    """
    with new_output(path) as hidden:
        with forebay.open_step(address, instance=instance, verify="first", timeout=0) as step:
            output_format(_FORMATS[wanted]).write(step, list(step), hidden, lambda _: None)
        if path.is_dir():
            shutil.rmtree(path)
