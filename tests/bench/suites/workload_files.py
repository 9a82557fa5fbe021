# SPDX-License-Identifier: Apache-2.0
"""Workloads of burst buffers beside the field's own tools: HDF5 with MPI, yt, PyDarshan."""

from __future__ import annotations

import functools
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from forebay.connectors import amrex
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import Workbench
from tests.support.example_programs import example_module

__all__ = ["advice_on_a_log", "particles_two_ways", "plotfiles"]

_PARTICLES = 1 << 20  #: of each rank: 32 MiB
_RANKS = 2
_PARTICLE_WARMUP = 3
#: Along each axis of level 0: plotfiles of about 30 MB.
_CELLS = 56
_PLOTFILES = 3
_KEPT = 2


def particles_two_ways() -> Suite:
    """The example's program: each step to a stream and to a shared HDF5 file with collective calls, in turn."""
    return Suite(
        name="particles",
        cases=[Case("both", _particles)],
        rows=[
            Row(
                "particles of 2 ranks, 64 MiB steps, stream", "shared HDF5", "both", "both", "stream_seconds", 1.3,
                peer_figure="hdf5_seconds",
            ),
        ],
        repetitions=3,
        best_of=1,
    )  # fmt: skip


def plotfiles() -> Suite:
    """Plotfiles of three levels, into a stream by the connector and into memory by yt."""
    return Suite(
        name="plotfiles",
        cases=[Case("connector", _ingested), Case("yt", _read_by_yt)],
        rows=[Row("plotfile of 30 MB into a stream", "yt, into memory", "connector", "yt", "plotfile_seconds", 1.0)],
        repetitions=5,
        best_of=2,
    )


def advice_on_a_log() -> Suite:
    """The largest log of PyDarshan's wheel: advice, and PyDarshan's own report of it."""
    return Suite(
        name="advise",
        cases=[
            Case("forebay", functools.partial(_report, "forebay", "advise")),
            Case("darshan", functools.partial(_report, "darshan", "summary")),
        ],
        rows=[Row("advice on the largest log", "PyDarshan's report", "forebay", "darshan", "command_seconds", 1.0)],
        repetitions=3,
        best_of=2,
    )


def _particles(bench: Workbench) -> Figures:
    steps = bench.steps(20, 12) + _PARTICLE_WARMUP
    step_bytes = _RANKS * _PARTICLES * 32
    with bench.instance((steps + 4) * step_bytes) as instance, bench.scratch() as folder:
        (folder / "files").mkdir()
        program = example_module("23_particles/particles.py").build(folder / "build")
        ranks = ["mpiexec.mpich", "-n", str(_RANKS), program, instance.address("particles"), folder / "files"]
        done = subprocess.run([*ranks, str(steps), str(_PARTICLES)], check=True, stdout=subprocess.PIPE, text=True)
    rates = re.findall(r"^step \d+: .* stream (\d+) MB/s, shared HDF5 (\d+) MB/s$", done.stdout, re.MULTILINE)
    if len(rates) != steps:
        raise RuntimeError(f"the program printed {len(rates)} of {steps} steps: {done.stdout[-300:]}")
    stream, hdf5 = (
        [step_bytes / 1e6 / float(rate) for rate in of_one] for of_one in zip(*rates[_PARTICLE_WARMUP:], strict=True)
    )
    return {"stream_seconds": statistics.median(stream), "hdf5_seconds": statistics.median(hdf5)}


def _written_plotfiles(bench: Workbench) -> list[Path]:
    """Written once by the example's simulation; all cases read them from the page cache."""
    folder = bench.folder / "plotfiles"
    paths = [folder / f"plt{number:05d}" for number in range(_PLOTFILES)]
    if not folder.exists():
        simulation = example_module("27_amr/simulation.py")
        folder.mkdir()
        run = simulation.Simulation(_CELLS)
        for path in paths:
            simulation.write_plotfile(path, run)
    for path in paths:
        for file in path.rglob("*_D_*"):
            file.read_bytes()
    return paths


def _ingested(bench: Workbench) -> Figures:
    paths = _written_plotfiles(bench)
    # The space was written once when its time is taken: fresh space is zeroed by the kernel first.
    turns = bench.steps(4, 3)
    seconds = []
    size = sum(file.stat().st_size for file in paths[0].rglob("*") if file.is_file())
    with bench.instance((_KEPT + 4) * size) as instance:
        address = instance.address("plots")
        for turn in range(turns):
            for path in paths:
                began = time.perf_counter()
                amrex.ingest([path], address, numbers=False, retention=f"last:{_KEPT}")
                if turn > 1:
                    seconds.append(time.perf_counter() - began)
    return {"plotfile_seconds": statistics.median(seconds)}


def _read_by_yt(bench: Workbench) -> Figures:
    import yt

    yt.set_log_level("error")
    paths = _written_plotfiles(bench)
    seconds = []
    for turn in range(bench.steps(4, 3)):
        for path in paths:
            began = time.perf_counter()
            plotfile = yt.load(path)
            # Of yt's ways the fastest. It leaves out what finer levels cover; the connector reads that, too.
            plotfile.all_data().get_data(plotfile.field_list)
            if turn > 0:
                seconds.append(time.perf_counter() - began)
    return {"plotfile_seconds": statistics.median(seconds)}


def _report(module: str, command: str, bench: Workbench) -> Figures:
    """A command from its start to its end."""
    import darshan

    logs = Path(darshan.__file__).parent.rglob("*.darshan")
    largest = max(logs, key=lambda log: log.stat().st_size)
    with bench.scratch() as folder:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", module, command, largest], check=True, cwd=folder, stdout=subprocess.DEVNULL
        )
        return {"command_seconds": time.perf_counter() - began}
