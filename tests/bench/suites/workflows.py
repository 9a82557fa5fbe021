# SPDX-License-Identifier: Apache-2.0
"""Snakemake with the storage plugin beside plain local files, and a detector that writes as fast as one core can."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

import forebay
from forebay.workflows.beamline import ScanSettings, ScanStreams
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import GIB, MIB, RESERVATION, Instance, Workbench
from tests.support.snakemake import PROGRAMS, PYTHON

__all__ = ["detector", "snakemake_jobs", "snakemake_questions"]

_JOBS = """
storage fb:
    provider="forebay"

def S(path):
    return storage.fb("forebay://bench/files/" + path) if config["form"] == "plugin" else path

rule all:
    input:
        [S(f"out/{n}.txt") for n in range(int(config["jobs"]))],

rule use:
    input:
        S("in/{n}.txt"),
    output:
        S("out/{n,\\d+}.txt"),
    shell:
        config["command"]
"""

_THREE_RULES = """
storage fb:
    provider="forebay"

FLOW = "forebay://bench/flow"

rule all:
    input:
        "sum.txt",

rule produce:
    output:
        storage.fb(FLOW, retrieve=False),
    shell:
        "{config[python]} -c 'import forebay, numpy; s = forebay.open(\\"bench/flow\\", \\"w\\"); "
        "[s.write(\\"T\\", numpy.ones(6553600, numpy.float32)) for _ in range(8)]; s.close()'"

rule scale:
    input:
        storage.fb(FLOW, retrieve=False),
    output:
        "counted.txt",
    shell:
        "{config[python]} -m forebay steps bench/flow > {output}"

rule reduce:
    input:
        storage.fb(FLOW, retrieve=False),
        "counted.txt",
    output:
        "sum.txt",
    shell:
        "{config[python]} -c 'import forebay; print(sum(s[\\"T\\"].max for s in forebay.open(\\"bench/flow\\")))' "
        "> {output}"
"""


def snakemake_jobs() -> Suite:
    """Jobs with one input and one output: files of a reservation against files of a folder."""
    return Suite(
        name="snakemake-jobs",
        cases=[
            Case("plugin", lambda bench: _jobs(bench, "plugin")),
            Case("local", lambda bench: _jobs(bench, "local")),
        ],
        rows=[
            Row("500 jobs of 100 ms (--quick: 100)", "plain local files", "plugin", "local", "slow_jobs_seconds", 0.95),
            Row("100 jobs that copy", "plain local files", "plugin", "local", "copies_seconds"),
        ],
        repetitions=1,
        repetitions_quick=1,
        best_of=1,
    )


def snakemake_questions() -> Suite:
    """What the plugin asks the server, and what it copies."""
    return Suite(
        name="snakemake-questions",
        cases=[Case("plugin", _questions)],
        rows=[
            Row("inventory of 10 000 steps", "1 s", "plugin", 1.0, "inventory_seconds", 1.0),
            Row("bytes copied, 200 MiB in 3 rules", "a page", "plugin", 4096.0, "copied_bytes", 1.0),
        ],
        repetitions=1,
        repetitions_quick=1,
        best_of=1,
    )


def detector() -> Suite:
    """2 Mpixel of 16 bits: rate of an archive that loses no frame, with a preview, staged out meanwhile."""
    return Suite(
        name="detector",
        cases=[Case("scan", _scan), Case("copy", _copies)],
        rows=[
            Row("frames archived and shown", "one copy in memory", "scan", "copy", "frames_bytes_per_second"),
            Row("from frame to preview", "50 ms", "scan", 0.05, "preview_seconds"),
        ],
        repetitions=1,
        repetitions_quick=1,
        best_of=1,
    )


def _snakemake(
    folder: Path, instance: Instance, *arguments: str, program: tuple[str, ...] = ("-m", "snakemake")
) -> None:
    done = subprocess.run(
        [PYTHON, *program, "--cores", "2", "--quiet", "all", "--config", f"python={PYTHON}", *arguments],
        cwd=folder,
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


def _jobs(bench: Workbench, form: str) -> Figures:
    figures: Figures = {}
    slow = bench.steps(500, 100)
    for name, jobs, command in (
        ("slow_jobs_seconds", slow, "sleep 0.1; cp {input} {output}"),
        ("copies_seconds", 100, "cp {input} {output}"),
    ):
        with bench.instance(64 * MIB) as instance, bench.scratch() as folder:
            with forebay.Admin() as admin:
                source = Path(admin.reservation(RESERVATION).files_path) if form == "plugin" else folder
            (source / "in").mkdir()
            for number in range(jobs):
                (source / "in" / f"{number}.txt").write_text("x")
            (folder / "Snakefile").write_text(_JOBS)
            began = time.perf_counter()
            _snakemake(folder, instance, f"form={form}", f"jobs={jobs}", f"command={command}")
            figures[name] = time.perf_counter() - began
            print(f"{form}: {jobs} jobs, {command.split(';')[0]}: {figures[name]:.1f} s", flush=True)
    return figures


def _questions(bench: Workbench) -> Figures:
    figures: Figures = {}
    with bench.instance(GIB) as instance, bench.scratch() as folder:
        with forebay.open(instance.address("many"), "w") as stream:
            for number in range(10_000):
                stream.write("n", number)
        timed = subprocess.run(
            [PYTHON, PROGRAMS / "timed_inventory.py", f"forebay://{instance.address('many')}@17", folder],
            env=os.environ | instance.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        figures["inventory_seconds"] = float(timed.stdout)
        (folder / "Snakefile").write_text(_THREE_RULES)
        _snakemake(folder, instance)
        stored = folder / ".snakemake" / "storage"
        figures["copied_bytes"] = 1.0 + sum(path.stat().st_size for path in stored.rglob("*") if path.is_file())
        _check_round_trips(folder, instance, bench.steps(300, 60))
    return figures


def _check_round_trips(folder: Path, instance: Instance, jobs: int) -> None:
    """Inputs are answered from memory while jobs run."""
    (folder / "Snakefile").write_text(
        'storage fb:\n    provider="forebay"\n\n'
        f'rule all:\n    input: expand("done/{{n}}", n=range({jobs}))\n\n'
        'rule use:\n    input: storage.fb("forebay://bench/many@{n}", retrieve=False)\n'
        '    output: touch("done/{n}")\n    shell: "true"\n'
    )
    _snakemake(folder, instance, program=(str(PROGRAMS / "observed_snakemake.py"), "count", "counts.json"))
    counts = json.loads((folder / "counts.json").read_text())
    print(f"{jobs} jobs: {counts}", flush=True)
    if counts["round_trips"] > 1:
        raise RuntimeError(f"the server was asked while jobs ran: {counts}")


_SHAPE = (1024, 2048)


def _scan(bench: Workbench) -> Figures:
    seconds = 120 if bench.long else bench.steps(20, 10)
    image = np.random.default_rng(1).integers(0, 4096, _SHAPE, np.uint16)
    taken: dict[int, float] = {}
    shown: list[float] = []
    with bench.instance(2 * GIB) as instance:
        address = instance.address("scan")
        settings = ScanSettings(frames_per_step=4, archive_last=2)
        with ScanStreams(address, settings=settings) as scan, forebay.Admin() as admin:
            ended = threading.Event()

            def show() -> None:
                for step in forebay.open(f"{address}.preview").follow(latest_only=True):
                    number = int(step["frame"])
                    step["image"][::64, ::64]
                    shown.append(time.perf_counter() - taken[number])

            def stage_out() -> None:
                # As a stage-out marks what is safe elsewhere; here it is dropped.
                with forebay.Admin() as marking:
                    while not ended.wait(0.05):
                        steps = marking.steps(address)
                        marking.mark_staged(address, 1, [step.number for step in steps if not step.staged], "receipt")

            threads = [threading.Thread(target=show), threading.Thread(target=stage_out)]
            for thread in threads:
                thread.start()
            began, count = time.perf_counter(), 0
            try:
                while time.perf_counter() - began < seconds:
                    taken[count] = time.perf_counter()
                    scan.frame(image, theta=0.1 * count, number=count)
                    count += 1
                scan.flush()
            finally:
                ended.set()
            elapsed = time.perf_counter() - began
            committed = admin.stream(address).committed
        for thread in threads:
            thread.join()
        if scan.frames_written != count or committed != (count + 3) // 4 - 1:
            raise RuntimeError(f"{count} frames were taken, and {scan.frames_written} are archived")
        print(f"{count} frames in {elapsed:.1f} s, {scan.previews_lost} previews lost", flush=True)
    return {
        "frames_bytes_per_second": count * image.nbytes / elapsed,
        "preview_seconds": statistics.median(shown),
    }


def _copies(bench: Workbench) -> Figures:
    """What one core can do at most: the frames are copied once, into memory that is warm."""
    image = np.random.default_rng(1).integers(0, 4096, _SHAPE, np.uint16)
    target = np.empty_like(image)
    count = bench.steps(2000, 500)
    began = time.perf_counter()
    for _ in range(count):
        np.copyto(target, image)
    return {"frames_bytes_per_second": count * image.nbytes / (time.perf_counter() - began)}
