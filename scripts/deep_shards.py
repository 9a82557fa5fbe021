# SPDX-License-Identifier: Apache-2.0
"""The deep suites cut into shards: `./run test deep --shard K/N`. Together they are the whole of each deep suite. Each
is to be built and run within six minutes on two cores, also where nothing has been compiled before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scripts.suites import ROOT, SUITES, Fuzzers, Native, Program, Pytest, Suite, When
from scripts.sweeps_in_sources import sweeps_of

#: As many seeds in a row take all points of a sweep whose stride is no longer (tests/support/sweeps.py).
SWEEP_SEEDS = 16

#: As FOREBAY_CLIENT_TEST_SLICES of the presets with a sanitizer.
CLIENT_SLICES = 8


@dataclass(frozen=True)
class Shard:
    """A part of a deep suite. Its name begins with the suite's."""

    name: str
    suite: Suite


def fuzzer_names() -> list[str]:
    """Of all libFuzzer targets."""
    return sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))


def native_programs() -> list[str]:
    """CMake's targets of native tests with a sanitizer: for each folder of tests/unit, the client's in slices, and for
    the corpora of the fuzzers.
    """
    folders = {path.relative_to(ROOT / "tests/unit").parts[0] for path in (ROOT / "tests/unit").rglob("*_test.cpp")}
    programs = [f"test_{folder}" for folder in sorted(folders - {"client"})]
    return [*programs, *(f"test_client_{number}" for number in range(1, CLIENT_SLICES + 1)), "fuzz_corpora"]


def _cut_sweeps(suite: Suite) -> list[Shard]:
    """One shard for each of the seeds that take all points together, of native tests and of those in Python."""
    shards = []
    for number in range(SWEEP_SEEDS):
        for run in suite.runs:
            kind = "native" if isinstance(run, Native) else "python"
            part = replace(suite, runs=(run,), all_points=False, sweep_seed=number)
            shards.append(Shard(f"sweeps-{kind}-{number + 1}", part))
    return shards


def _cut_fuzz(suite: Suite) -> list[Shard]:
    """A shard for each fuzzer: each compiles the server anew."""
    return [Shard(f"fuzz-{name}", replace(suite, runs=(Fuzzers((name,)),))) for name in fuzzer_names()]


def _cut_by_file(name: str, suite: Suite) -> list[Shard]:
    """A shard for each file of tests in Python, with the programs that the suite runs first. A file with a test that
    sweeps has one for each of the seeds that take all points together.
    """
    shards = []
    programs = [run for run in suite.runs if isinstance(run, Program)]
    for run in suite.runs:
        if isinstance(run, Program):
            continue
        assert isinstance(run, Pytest)
        for folder in run.folders:
            for path in sorted((ROOT / folder).glob("test_*.py")):
                part = replace(suite, runs=(*programs, replace(run, folders=(str(path.relative_to(ROOT)),))))
                shard = Shard(f"{name}-{path.stem.removeprefix('test_').replace('_', '-')}", part)
                shards += _cut_by_seed(shard) if sweeps_of(path) else [shard]
    return shards


def _cut_by_seed(shard: Shard) -> list[Shard]:
    return [
        Shard(f"{shard.name}-{number + 1}", replace(shard.suite, sweep_seed=number)) for number in range(SWEEP_SEEDS)
    ]


def _cut_sanitizer(name: str, suite: Suite) -> list[Shard]:
    """A shard for each program of native tests, and one for the engine's tests in Python."""
    shards = []
    for run in suite.runs:
        if isinstance(run, Native):
            for program in native_programs():
                part = replace(suite, runs=(replace(run, programs=(program,)),))
                shards.append(Shard(f"{name}-{program.removeprefix('test_')}", part))
        else:
            shards.append(Shard(f"{name}-plugin", replace(suite, runs=(run,))))
    return shards


def shards_of() -> list[Shard]:
    """All shards, in the order of their numbers."""
    shards: list[Shard] = []
    for name, suite in SUITES.items():
        if suite.when is not When.DEEP:
            continue
        if name == "sweeps":
            shards += _cut_sweeps(suite)
        elif name == "fuzz":
            shards += _cut_fuzz(suite)
        elif name in ("slurm-jobs", "slurm-faults", "workloads", "views", "follow", "servers"):
            shards += _cut_by_file(name, suite)
        elif any(isinstance(run, Native) for run in suite.runs):
            shards += _cut_sanitizer(name, suite)
        else:
            shards.append(Shard(name, suite))
    return shards
