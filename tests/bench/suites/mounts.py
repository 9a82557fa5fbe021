# SPDX-License-Identifier: Apache-2.0
"""Reading a step of 64 MiB as a file of `forebay mount`, against a plain file that holds the same bytes."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import numpy as np

import forebay
from forebay.views.mounting import mount, unmount
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import MIB, Workbench

__all__ = ["mounted_steps"]

_STEP_BYTES = 64 * MIB
_READ_BYTES = MIB
_READS = 7


def mounted_steps() -> Suite:
    """First read: the kernel has nothing of the mounted file. Again: it has all of it. The plain file is cached."""
    return Suite(
        name="mounts",
        cases=[Case("mounted", _mounted), Case("plain", _plain)],
        rows=[
            Row("first read of 64 MiB", "plain file", "mounted", "plain", "first_bytes_per_second", 0.4),
            Row("read again", "plain file", "mounted", "plain", "again_bytes_per_second", 0.8),
        ],
    )


def _mounted(bench: Workbench) -> Figures:
    with bench.instance(4 * _STEP_BYTES) as instance, bench.scratch() as folder:
        with forebay.open(instance.address(), mode="w") as stream:
            stream.write("T", np.arange(_STEP_BYTES // 8))
        mount(instance.address(), folder, ["npy"], None)
        try:
            file = folder / "steps@0" / "T.npy"
            first = [_rate(file, forgotten=True) for _ in range(_READS)]
            again = [_rate(file) for _ in range(_READS)]
        finally:
            unmount(folder)
    return {"first_bytes_per_second": statistics.median(first), "again_bytes_per_second": statistics.median(again)}


def _plain(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        file = folder / "T.npy"
        np.save(file, np.arange(_STEP_BYTES // 8))
        rate = statistics.median(_rate(file) for _ in range(_READS))
    return {"first_bytes_per_second": rate, "again_bytes_per_second": rate}


def _rate(path: Path, *, forgotten: bool = False) -> float:
    """Bytes per second from open to close, in reads of 1 MiB. ``forgotten``: the kernel drops what it has first."""
    buffer = bytearray(_READ_BYTES)
    if forgotten:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    began = time.perf_counter()
    total = 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    seconds = time.perf_counter() - began
    if total < _STEP_BYTES:
        raise RuntimeError(f"{path} has {total} bytes")
    return total / seconds
