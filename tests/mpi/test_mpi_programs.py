# SPDX-License-Identifier: Apache-2.0
"""Programs under MPICH's launcher: with the ADIOS2 wheel, which has no MPI, and with an ADIOS2 that has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.mpi.conftest import ROOT, MpiBuild
from tests.support.adios2_programs import FOREBAY_RUN, run_environment
from tests.support.time_limits import seconds

EXAMPLE = ROOT / "examples" / "20_mpi"
#: Debian has several launchers, of which the plain name may be another.
LAUNCHER = "mpiexec.mpich"


def mpiexec(
    ranks: int, command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a command under the launcher; its exit status must be 0."""
    done = subprocess.run(
        [LAUNCHER, "-n", str(ranks), *command],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def mpi4py_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For programs that import mpi4py: its wheel looks for MPICH under another name than Debian's."""
    folder = tmp_path_factory.mktemp("mpich")
    (library,) = {path.resolve() for path in Path("/usr/lib").glob("*/libmpich.so.12")}
    (folder / "libmpi.so.12").symlink_to(library)
    return run_environment(LD_LIBRARY_PATH=str(folder))


def configuration(folder: Path, address: str) -> Path:
    """The example's configuration, for a stream of the test's own."""
    path = folder / "adios2.xml"
    path.write_text((EXAMPLE / "adios2.xml").read_text().replace("run1/flow", address))
    return path


def check_flow(address: str, ranks: int) -> None:
    """Five steps, as the example writes them, by one group of all ranks."""
    with forebay.open(address, mode="r") as stream:
        assert [step.number for step in stream.steps()] == [0, 1, 2, 3, 4]
        for step in range(5):
            np.testing.assert_array_equal(stream[step]["T"][...], 100.0 * step + np.arange(4.0 * ranks))
    with forebay.Admin() as admin:
        assert admin.stream(address).ranks == ranks


def example_program(language: str, build: MpiBuild) -> list[str]:
    """The command that runs the example in this language; skipped where this ADIOS2 has no such interface."""
    program = build.examples / f"flow_{language}"
    if not program.exists():
        pytest.skip(f"this ADIOS2 has no interface for {language}")
    return [str(program)]


def test_ranks_of_the_wheel_are_those_of_the_launcher(
    reservation: str, tmp_path: Path, mpi4py_environment: dict[str, str]
) -> None:
    plugin_folder = Path(mpi4py_environment["FOREBAY_ADIOS2_LIBRARY"]).parent
    path = configuration(tmp_path, f"{reservation}/flow")
    command = [sys.executable, str(EXAMPLE / "flow.py"), str(path)]
    mpiexec(2, command, tmp_path, {**mpi4py_environment, "ADIOS2_PLUGIN_PATH": str(plugin_folder)})
    check_flow(f"{reservation}/flow", 2)


def test_the_wheel_runs_under_launcher_and_forebay_run(
    reservation: str, tmp_path: Path, mpi4py_environment: dict[str, str]
) -> None:
    path = tmp_path / "adios2.xml"
    path.write_text("<adios-config/>")
    command = [*FOREBAY_RUN, "--reservation", reservation, "--engine-for", "flow.bp", "--"]
    mpiexec(3, [*command, sys.executable, str(EXAMPLE / "flow.py"), str(path)], tmp_path, mpi4py_environment)
    check_flow(f"{reservation}/flow", 3)
    assert [entry.name for entry in tmp_path.iterdir()] == ["adios2.xml"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("language", ["c", "fortran"])
def test_programs_with_mpi_couple_by_their_configuration(
    reservation: str, tmp_path: Path, mpi_build: MpiBuild, language: str
) -> None:
    path = configuration(tmp_path, f"{reservation}/flow")
    environment = run_environment(
        FOREBAY_ADIOS2_LIBRARY=str(mpi_build.plugin), ADIOS2_PLUGIN_PATH=str(mpi_build.plugin.parent)
    )
    mpiexec(2, [*example_program(language, mpi_build), str(path)], tmp_path, environment)
    check_flow(f"{reservation}/flow", 2)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("language", ["c", "fortran"])
def test_programs_with_mpi_couple_without_any_configuration(
    reservation: str, tmp_path: Path, mpi_build: MpiBuild, language: str
) -> None:
    path = tmp_path / "adios2.xml"
    path.write_text("<adios-config/>")
    environment = run_environment(FOREBAY_ADIOS2_LIBRARY=str(mpi_build.plugin))
    command = [*FOREBAY_RUN, "--reservation", reservation, "--engine-for", "flow.bp", "--"]
    mpiexec(2, [*command, *example_program(language, mpi_build), str(path)], tmp_path, environment)
    check_flow(f"{reservation}/flow", 2)


@pytest.mark.timeout(1800)
def test_ranks_of_a_sub_communicator_write_a_stream_of_their_own(
    reservation: str, tmp_path: Path, mpi_build: MpiBuild
) -> None:
    environment = run_environment(FOREBAY_ADIOS2_LIBRARY=str(mpi_build.plugin))
    command = [*FOREBAY_RUN, "--reservation", reservation, "--engine-for", "*.bp", "--"]
    done = mpiexec(4, [*command, str(mpi_build.programs / "halves")], tmp_path, environment)
    even = "even.bp 0 2 100 102 200 202"
    odd = "odd.bp 1 3 101 103 201 203"
    assert sorted(done.stdout.splitlines()) == 4 * [even] + 4 * [odd]
    with forebay.Admin() as admin:
        assert {stream.name: stream.ranks for stream in admin.streams(reservation)} == {"even": 2, "odd": 2}
    assert not list(tmp_path.iterdir())
