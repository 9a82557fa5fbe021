# SPDX-License-Identifier: Apache-2.0
"""Staging steps out to BP5, verified, against plain ADIOS2 that writes the same bytes from memory."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

from forebay.manager.jobs import StepsJob
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.bench.engines import bp5, forebay_plugin
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import run_alone
from tests.bench.workbench import MIB, Workbench

__all__ = ["staged_steps"]

_BYTES = 64 * MIB
_STEPS = 10


def staged_steps() -> Suite:
    """Ten steps of 64 MiB."""
    what = "stage-out of ten 64 MiB steps"
    figure = "run_bytes_per_second"
    return Suite(
        name="stage-out",
        cases=[Case("forebay", _forebay), Case("bp5", _bp5)],
        rows=[
            Row(f"{what}, verified, synced", "BP5 from memory", "forebay", "bp5", figure, 0.8),
            Row(f"{what}, verified, synced", "BP5, synced", "forebay", "bp5", figure, peer_figure=f"synced_{figure}"),
        ],
        repetitions=3,
        repetitions_quick=3,
    )


def _forebay(bench: Workbench) -> Figures:
    with bench.instance((_STEPS + 4) * _BYTES) as instance, bench.scratch() as destination:
        with forebay_plugin(instance).writer(variable_bytes=_BYTES, steps=_STEPS) as writer:
            run_alone(writer)
        job = StepsJob(stream=instance.address(), destination=str(destination))
        began = time.monotonic()
        stage_steps(job, JsonReporter(io.StringIO()))
        seconds = time.monotonic() - began
        outputs = len(list(destination.glob("*.bp")))
        if outputs != _STEPS:
            raise RuntimeError(f"{outputs} of {_STEPS} outputs are there")
    return {"run_bytes_per_second": _STEPS * _BYTES / seconds}


def _bp5(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        with bp5(folder, tuned=False).writer(variable_bytes=_BYTES, steps=_STEPS) as writer:
            seconds = run_alone(writer).run_seconds()
        began = time.monotonic()
        _sync(folder)
        synced_seconds = seconds + time.monotonic() - began
    return {
        "run_bytes_per_second": _STEPS * _BYTES / seconds,
        "synced_run_bytes_per_second": _STEPS * _BYTES / synced_seconds,
    }


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
