# SPDX-License-Identifier: Apache-2.0
"""Steps of every kind for tests of sealed views, and files made of them."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import forebay
from forebay.step import Step
from forebay.views.copying import copy_to
from forebay.views.formats import format_named

__all__ = ["can_mount", "file_of", "write_every_kind"]


def can_mount() -> bool:
    """Whether Forebay was built with libfuse3, and this user may mount by it."""
    may_open = os.access("/dev/fuse", os.R_OK | os.W_OK)
    return find_spec("forebay._fuse") is not None and may_open and shutil.which("fusermount3") is not None


def write_every_kind(address: str, steps: int = 1, instance: Path | None = None) -> None:
    """A stream with arrays of all kinds, with blocks that lie one after another and side by side."""
    with forebay.open(address, "w", instance=instance) as stream:
        for number in range(steps):
            with stream.step() as step:
                slabs = np.arange(8 * 16 * 32, dtype="f8").reshape(8, 16, 32) + number
                # In another order than in the array.
                step.write("slabs", slabs[5:], shape=slabs.shape, start=(5, 0, 0), dims=("z", "y", "x"))
                step.write("slabs", slabs[:5], shape=slabs.shape, start=(0, 0, 0), dims=("z", "y", "x"))
                columns = np.arange(64 * 64, dtype="i4").reshape(64, 64) + number
                step.write("columns", columns[:, :20], shape=(64, 64), start=(0, 0))
                step.write("columns", columns[:, 20:], shape=(64, 64), start=(0, 20))
                step.write("holes", np.ones((16, 64), "u2"), shape=(64, 64), start=(48, 0))
                step.write("large/complex", np.arange(2000).astype("c16"))
                step.write("local", np.arange(1000, dtype="i8"), kind="local_array")
                step.write("local", np.arange(10, dtype="i8"), kind="local_array")
                step.write("joined", np.arange(900, dtype="f8").reshape(300, 3), shape=(forebay.joined_dimension, 3))
                step.write("joined", np.arange(1200, dtype="f8").reshape(400, 3), shape=(forebay.joined_dimension, 3))
                step.write("letters", np.full(5000, b"x", "S1"))
                step["x"] = np.linspace(0, 1, 32)
                step["small"] = np.arange(3)
                step["nothing"] = np.empty((0, 4))
                step["time"] = 0.5 * number
                step["text"] = "hölzern"
                step.attributes["slabs/units"] = "K"
                step.attributes["title"] = "every kind"


def file_of(step: Step, ending: str, path: Path, variable: str | None = None) -> Path:
    """The view of a step as a copy."""
    sealed = format_named(ending).lay_out(step, variable)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        copy_to(file, sealed, step)
    finally:
        os.close(file)
    assert path.stat().st_size == sealed.size_bytes
    return path
