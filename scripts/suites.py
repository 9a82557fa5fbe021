# SPDX-License-Identifier: Apache-2.0
"""The suites of `./run test`: what each one runs, when, how long, and what it needs. A new suite is an entry here.

Run as a program it tells scripts/build what suites need: `suites.py packages NAME...` prints packages of the
distribution, `suites.py requirements NAME...` what pip is to install, and `suites.py extras NAME...` the same for
extras and groups of pyproject.toml. Only the standard library of Python 3.11 is used.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SOAK_SECONDS = int(os.environ.get("FOREBAY_SOAK_SECONDS") or 60)
FUZZ_SECONDS = int(os.environ.get("FOREBAY_FUZZ_SECONDS") or 10)


class When(Enum):
    """Which commands run a suite, beside `./run test NAME`."""

    #: `./run test`, which stays within 12 minutes on two cores, and `./run test all`.
    QUICK = "quick"
    #: `./run test all`, and `./run test deep`, in numbered shards.
    DEEP = "deep"
    #: `./run test all`.
    ALL = "all"


@dataclass(frozen=True)
class Native:
    """The native tests of a CMake preset: of all programs, or of those named as CMake's targets are.

    Only what these need is compiled. ``sweeps_only`` runs the tests that sweep, and no other.
    """

    preset: str = "dev"
    programs: tuple[str, ...] = ()
    sweeps_only: bool = False


@dataclass(frozen=True)
class Pytest:
    """Tests in Python below some folders, with programs of a CMake preset. ``marker`` selects as pytest's -m does."""

    folders: tuple[str, ...]
    preset: str = "dev"
    #: What is to be compiled first beside what ./run build does.
    targets: tuple[str, ...] = ()
    marker: str = ""
    #: How many tests run at once on each core. 0: one after the other, whatever the machine.
    per_core: int = 2
    #: xdist's; "loadgroup" where tests in groups (xdist_group) may not run beside one another.
    distribution: str = "worksteal"


@dataclass(frozen=True)
class Program:
    """A command that succeeds or fails as a whole: one test."""

    command: tuple[str, ...]


@dataclass(frozen=True)
class Fuzzers:
    """libFuzzer targets, FOREBAY_FUZZ_SECONDS each: all, or those named."""

    names: tuple[str, ...] = ()


Run = Native | Pytest | Program | Fuzzers


@dataclass(frozen=True)
class Suite:
    """What ``./run test NAME`` runs."""

    purpose: str
    runs: tuple[Run, ...]
    #: For each run, without its compilation; a guard against what hangs. FOREBAY_TEST_SECONDS_MAX replaces it.
    seconds_max: int
    when: When = When.ALL
    #: Extras and dependency groups of pyproject.toml, beside those that ./run build installs. pip installs them when
    #: the suite is run.
    extras: tuple[str, ...] = ()
    #: Packages of Debian and Ubuntu, likewise.
    packages: tuple[str, ...] = ()
    #: Sweeps try all of their points, not a share that the seed chooses (tests/support/sweeps.py).
    all_points: bool = False
    #: One in so many of the tests with the mark `instance` is run.
    instance_shares: int = 1
    #: Sweeps try the share of this seed, of sixteen in a row that try all of them together.
    sweep_seed: int | None = None


_SLURM = ("slurmctld", "slurmd", "slurm-client", "python3", "python3-venv")

SUITES: dict[str, Suite] = {
    "unit": Suite(
        "each layer and package by itself",
        (Native(), Pytest(("tests/unit",))),
        seconds_max=900,
        when=When.QUICK,
    ),
    "integration": Suite(
        "plugin, Python package, command line and manager with real servers",
        (Pytest(("tests/integration",), targets=("engine_tests",), per_core=4),),
        seconds_max=900,
        when=When.QUICK,
    ),
    "fault": Suite(
        "processes that die, disks that fail: what docs/crash-matrix.md promises",
        # They wait for programs to die and to start again more than they compute.
        (Pytest(("tests/fault",), per_core=7),),
        seconds_max=1200,
        when=When.QUICK,
        packages=("xfsprogs",),
    ),
    "users": Suite(
        "what one user of a machine tries against others, as real users; without root it says that it did not run",
        (Pytest(("tests/users",)),),
        seconds_max=600,
        extras=("fsspec",),
    ),
    "remote": Suite(
        "producer, server and consumer on nodes of their own: network namespaces, so it needs root",
        (Pytest(("tests/remote",), distribution="loadgroup"),),
        seconds_max=900,
        extras=("fabric", "viz"),
        packages=("iproute2", "munge", "libmunge2"),
    ),
    "servers": Suite(
        "a reservation over several servers on nodes with networks of their own",
        (Pytest(("tests/servers",), distribution="loadgroup"),),
        seconds_max=900,
        when=When.DEEP,
        packages=("iproute2", "munge", "libmunge2", "libfaketime"),
    ),
    "remote-faults": Suite(
        "nodes that are killed, paused, cut off and healed at random, FOREBAY_SOAK_SECONDS long (60), and long cuts",
        (Pytest(("tests/remote_faults",), per_core=1, distribution="loadgroup"),),
        seconds_max=2 * SOAK_SECONDS + 600,
        when=When.DEEP,
        packages=("iproute2",),
    ),
    "server-faults": Suite(
        "a pool of servers whose nodes, disks and clients fail at random, FOREBAY_SOAK_SECONDS long (60)",
        (Pytest(("tests/server_faults",), per_core=0),),
        seconds_max=2 * SOAK_SECONDS + 700,
        when=When.DEEP,
        packages=("iproute2", "munge", "libmunge2"),
    ),
    "examples": Suite(
        "examples, README and demo as a user runs them",
        (Pytest(("tests/examples",)),),
        seconds_max=600,
        when=When.QUICK,
    ),
    "connectors": Suite(
        "xarray, Dask, Arrow, Zarr and other libraries on streams",
        (Pytest(("tests/connectors",), targets=("wrf_program",)),),
        seconds_max=900,
        when=When.DEEP,
        extras=("xarray", "dask", "arrow", "zarr", "fsspec", "derive", "netcdf", "grib", "cfgrib", "fa", "libraries"),
    ),
    "tomography": Suite(
        "scans as streams, reconstructed while they are taken",
        (Pytest(("tests/tomography",)),),
        seconds_max=600,
        when=When.DEEP,
        extras=("tomography", "zarr", "backends"),
    ),
    "viz": Suite(
        "scenes, also in Chromium, and files that VisIt, ParaView and yt follow, read by VTK and yt",
        (Pytest(("tests/viz",)),),
        seconds_max=900,
        when=When.DEEP,
        extras=("web", "viewers", "idx"),
        packages=("chromium", "chromium-driver"),
    ),
    "workloads": Suite(
        "the examples of the classic workloads, and advice on real Darshan logs",
        (Program(("scripts/snakemake-environment",)), Pytest(("tests/workloads",))),
        seconds_max=1200,
        when=When.DEEP,
        extras=("darshan", "hdf5", "fsspec", "viz", "events", "viewers"),
        packages=("mpich", "libmpich-dev", "libhdf5-mpich-dev", "pkg-config"),
    ),
    "follow": Suite(
        "stages that take files while a program writes them, through the manager, ended, cancelled and killed",
        (Pytest(("tests/follow",)),),
        seconds_max=600,
        when=When.DEEP,
    ),
    "views": Suite(
        "steps as files: h5dump, ncdump, netCDF, VTK and xarray on them, and mounts by FUSE where root can mount",
        (Pytest(("tests/views",)),),
        seconds_max=600,
        when=When.DEEP,
        extras=("viz", "xarray", "netcdf", "h5netcdf"),
        packages=("hdf5-tools", "netcdf-bin", "fuse3", "libfuse3-dev"),
    ),
    "paraview": Suite(
        "the source that reads live streams, in Debian's ParaView on a display of Xvfb",
        (Pytest(("tests/paraview",), per_core=0),),
        seconds_max=900,
        packages=("paraview", "python3-paraview", "xvfb"),
    ),
    "slurm": Suite(
        "the thin path: jobs with #DW lines under a real Slurm on this machine",
        # One Slurm and one ordinary user for all of them.
        (Pytest(("tests/slurm/thin_path",), per_core=0),),
        seconds_max=600,
        packages=_SLURM,
    ),
    "slurm-jobs": Suite(
        "all forms of jobs and directives, the guides' scripts and other set-ups under a real Slurm",
        (Pytest(("tests/slurm/jobs",), per_core=0),),
        seconds_max=900,
        when=When.DEEP,
        packages=_SLURM,
    ),
    "files": Suite(
        "files of jobs on several nodes: the driver nfs, and a real Slurm whose nodes are guests with an NFS client",
        # One centre for all of them.
        (Pytest(("tests/files",), per_core=0),),
        seconds_max=2700,
        packages=(
            *_SLURM,
            *("nfs-ganesha", "nfs-ganesha-vfs", "dbus", "nfs-common", "libnfs-utils", "munge", "libmunge2", "xfsprogs"),
            *("user-mode-linux", "kmod", "iproute2", "mpich", "libmpich-dev", "libhdf5-mpich-dev", "git", "make"),
        ),
    ),
    "striped": Suite(
        "one tree of files over two servers by the driver juicefs, with a real JuiceFS and Redis on nodes: needs root",
        # They stop and kill daemons, and wait for them more than they compute.
        (Program(("scripts/juicefs-program",)), Pytest(("tests/striped",), per_core=0)),
        seconds_max=1800,
        packages=("redis-server", "redis-tools", "xfsprogs", "iproute2", "util-linux", "fuse3", "rclone"),
    ),
    "slurm-faults": Suite(
        "jobs that are cancelled, stages that fail and daemons that die, under a real Slurm",
        (Pytest(("tests/slurm/faults",), per_core=0),),
        seconds_max=1800,
        when=When.DEEP,
        packages=_SLURM,
    ),
    "slurm-workflows": Suite(
        "Snakemake that submits its rules to a real Slurm",
        (Program(("scripts/snakemake-environment",)), Pytest(("tests/slurm/workflows",), per_core=0)),
        seconds_max=900,
        when=When.DEEP,
        packages=_SLURM,
    ),
    "postgresql": Suite(
        "the manager's tests with its database in a PostgreSQL that they start",
        (Pytest(("tests/postgresql",)),),
        seconds_max=1200,
        extras=("postgresql",),
        packages=("postgresql",),
    ),
    "mpi": Suite(
        "MPI programs in C, Fortran and Python under MPICH's launcher; ADIOS2_DIR names an ADIOS2 with MPI for most",
        (Pytest(("tests/mpi",), per_core=0),),
        seconds_max=3600,
        extras=("mpi",),
        packages=("mpich", "libmpich-dev", "gfortran"),
    ),
    "ray": Suite(
        "Ray datasets over streams; Ray is installed for this suite only",
        (Pytest(("tests/ray",), per_core=0),),
        seconds_max=900,
        when=When.DEEP,
        extras=("ray",),
    ),
    "pytorch": Suite(
        "PyTorch trains on a running stream; PyTorch is installed for this suite only, and takes some GiB",
        (Pytest(("tests/connectors/test_training.py",)),),
        seconds_max=1800,
        extras=("pytorch",),
    ),
    "workflows": Suite(
        "Snakemake with the storage plugin, in an environment of its own",
        (Program(("scripts/snakemake-environment",)), Pytest(("tests/workflows",))),
        seconds_max=900,
    ),
    "snakemake": Suite(
        "Snakemake and its rules killed at each place, and run again",
        (Program(("scripts/snakemake-environment",)), Pytest(("tests/snakemake",))),
        seconds_max=900,
        when=When.DEEP,
    ),
    "beamline": Suite(
        "scans by Bluesky and EPICS PV Access, their records, and the chain behind a detector",
        (Program(("scripts/snakemake-environment",)), Pytest(("tests/beamline",))),
        seconds_max=600,
        when=When.DEEP,
        extras=("beamline", "tomography"),
    ),
    "physics": Suite(
        "the flow that the packed-cylinder example computes, against known solutions",
        (Pytest(("tests/physics",)),),
        seconds_max=600,
    ),
    "wheel": Suite(
        "the wheel in an empty environment, and C++ programs built with it by CMake, pkg-config and a compiler",
        (Program(("scripts/test-wheel",)),),
        seconds_max=900,
    ),
    "compilers": Suite(
        "the source distribution, built and installed with each compiler that Debian has",
        (Program(("scripts/test-sdist",)),),
        seconds_max=7200,
        packages=("g++-11", "g++-12", "clang-14", "clang-16", "clang-19"),
    ),
    "dependencies": Suite(
        "all extras in one environment, with Snakemake, each NumPy and each Python that is installed",
        (Pytest(("tests/dependencies",), per_core=0),),
        seconds_max=3600,
    ),
    "sweeps": Suite(
        "all points of each sweep of unit, integration and fault",
        (
            Native(sweeps_only=True),
            Pytest(("tests/unit", "tests/integration", "tests/fault"), targets=("engine_tests",), marker="sweep"),
        ),
        seconds_max=7200,
        when=When.DEEP,
        all_points=True,
    ),
    "soak": Suite(
        "producers, consumers, kills and stage-outs at random, FOREBAY_SOAK_SECONDS long (60)",
        (Pytest(("tests/soak",), per_core=0),),
        seconds_max=2 * SOAK_SECONDS + 300,
        when=When.DEEP,
    ),
    "exchanges": Suite(
        "exchanges of names against the mover, 10 000 each, as real users: needs root",
        (Pytest(("tests/exchanges",), per_core=1),),
        seconds_max=7200,
        when=When.DEEP,
    ),
    "fuzz": Suite(
        "each fuzzer on new inputs, FOREBAY_FUZZ_SECONDS long (10)",
        (Fuzzers(),),
        seconds_max=FUZZ_SECONDS + 300,
        when=When.DEEP,
        packages=("clang-19", "libclang-rt-19-dev"),
    ),
    "asan": Suite(
        "native and engine's tests with AddressSanitizer and UndefinedBehaviorSanitizer",
        (
            Native("asan"),
            Pytest(("tests/integration/test_adios2_engine.py",), preset="asan", targets=("engine_tests",), per_core=0),
        ),
        seconds_max=2700,
        when=When.DEEP,
    ),
    "tsan": Suite(
        "native and engine's tests with ThreadSanitizer",
        (
            Native("tsan"),
            Pytest(("tests/integration/test_adios2_engine.py",), preset="tsan", targets=("engine_tests",), per_core=0),
        ),
        seconds_max=3600,
        when=When.DEEP,
    ),
}


def requirements_of(extras: tuple[str, ...]) -> list[str]:
    """What pip is to install for these extras and dependency groups of pyproject.toml."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = table["project"]
    named = {**table["dependency-groups"], **project["optional-dependencies"]}
    found: list[str] = []
    for extra in extras:
        if extra not in named:
            sys.exit(f"pyproject.toml has neither an extra nor a dependency group {extra!r}")
        for requirement in named[extra]:
            nested = re.fullmatch(r"forebay\[(.*)\]", requirement)
            found += requirements_of(tuple(nested[1].split(","))) if nested else [requirement]
    # The package's own requirements limit what an extra may bring.
    return sorted({*found, *project["dependencies"]}) if found else []


def suite_of(report: str) -> str:
    """The suite of a run, of which the report's name is the suite's or begins with it: slurm-jobs-pipeline."""
    return max((name for name in SUITES if f"{report}-".startswith(f"{name}-")), key=len)


def main(arguments: list[str]) -> None:
    """Prints one thing a line."""
    what, *names = arguments
    if what == "extras":
        print(*requirements_of(tuple(names)), sep="\n")
        return
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        sys.exit(f"there is no suite {unknown[0]!r}; there are: {', '.join(SUITES)}")
    suites = [SUITES[name] for name in names]
    if what == "packages":
        lines = [package for suite in suites for package in suite.packages]
    elif what == "requirements":
        lines = requirements_of(tuple(extra for suite in suites for extra in suite.extras))
    else:
        sys.exit("suites.py packages NAME... | requirements NAME... | extras NAME...")
    for line in dict.fromkeys(lines):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
