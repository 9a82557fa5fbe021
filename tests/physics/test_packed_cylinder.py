# SPDX-License-Identifier: Apache-2.0
"""The packed-cylinder simulation by itself, writing BP5 files: right physics, the same bits whatever the decomposition
and restarts, and no hang when a rank dies."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import adios2
import numpy as np
import numpy.typing as npt
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/01_packed_cylinder/packed_cylinder"
SMALL_BED = (
    "--nx 20 --ny 20 --nz 30 --plenum 5 --sphere-radius 3 --solid-fraction 0.4 --viscosity 0.05 --force 1e-4 "
    "--iterations-per-step 7 --checkpoint-every 3"
)


@dataclass(frozen=True)
class Line:
    """One line that the simulation prints for an output step; the figures as printed, so that bits can be compared."""

    step: int
    iteration: int
    mean_velocity: str
    pressure_drop: str
    permeability: str


@pytest.fixture(scope="session")
def packed_cylinder() -> Path:
    named = os.environ.get("FOREBAY_EXAMPLES_BIN")
    if named is not None:
        program = Path(named) / "packed_cylinder"
        assert program.is_file(), f"FOREBAY_EXAMPLES_BIN={named} holds no packed_cylinder: build the example there"
        return program
    build = Path(os.environ.get("FOREBAY_BUILD_DIR", REPOSITORY / "build/dev"))
    built = [build / EXAMPLE, *REPOSITORY.glob(f"build/*/{EXAMPLE}")]
    program = next((path for path in built if path.is_file()), built[0])
    assert program.is_file(), f"{program} is missing: run ./run build, or set FOREBAY_EXAMPLES_BIN to where it is built"
    return program


def parse_lines(output: str) -> list[Line]:
    lines = []
    for text in output.splitlines():
        if text.startswith("step "):
            words = text.split()
            values = dict(zip(words[::2], words[1::2], strict=True))
            lines.append(
                Line(
                    step=int(values["step"]),
                    iteration=int(values["iteration"]),
                    mean_velocity=values["mean_velocity"],
                    pressure_drop=values["pressure_drop"],
                    permeability=values["permeability"],
                )
            )
    return lines


class Simulation:
    """Starts the ranks of a run as processes and cleans up after them."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []

    def start(
        self, arguments: str, *, ranks: int = 1, append_after: int | None = None, present: Sequence[int] | None = None
    ) -> list[subprocess.Popen[str]]:
        """Starts one process per rank, or only those `present`; rank r writes flow.<ranks>.<r>.bp."""
        parameter = "" if append_after is None else f'<parameter key="AppendAfterSteps" value="{append_after}"/>'
        config = self._folder / "adios2.xml"
        config.write_text(f'<adios-config><io name="flow"><engine type="BP5">{parameter}</engine></io></adios-config>')
        rendezvous = self._folder / "rendezvous"
        rendezvous.mkdir(exist_ok=True)
        started = []
        for rank in range(ranks) if present is None else present:
            command = [
                str(self._program),
                "--config",
                str(config),
                "--output",
                str(self.output(rank, ranks)),
                *shlex.split(arguments),
            ]
            command += ["--rank", str(rank), "--ranks", str(ranks), "--rendezvous", str(rendezvous)]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        self._processes += started
        return started

    def run(self, arguments: str, *, ranks: int = 1, append_after: int | None = None) -> list[Line]:
        processes = self.start(arguments, ranks=ranks, append_after=append_after)
        outputs = [process.communicate(timeout=120) for process in processes]
        for process, (_, errors) in zip(processes, outputs, strict=True):
            assert process.returncode == 0, errors
        return parse_lines(outputs[0][0])

    def output(self, rank: int, ranks: int) -> Path:
        return self._folder / f"flow.{ranks}.{rank}.bp"

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def simulation(packed_cylinder: Path, tmp_path: Path) -> Iterator[Simulation]:
    simulation = Simulation(packed_cylinder, tmp_path)
    yield simulation
    simulation.close()


def settled_permeability(simulation: Simulation, arguments: str) -> float:
    *_, before, last = simulation.run(f"{arguments} --checkpoint-every 0")
    assert float(last.permeability) == pytest.approx(float(before.permeability), rel=1e-4), "the flow has not settled"
    return float(last.permeability)


def read_steps(files: Sequence[Path]) -> list[dict[str, npt.NDArray[np.generic]]]:
    """Every variable of every step; blocks of several ranks' files are laid into one array by their selections."""
    steps: list[dict[str, npt.NDArray[np.generic]]] = []
    for rank, file in enumerate(files):
        with adios2.Stream(str(file), "r") as stream:
            for number, step in enumerate(stream.steps()):
                if number == len(steps):
                    steps.append({})
                for name, information in step.available_variables().items():
                    block = np.asarray(step.read(name))
                    if information["Shape"] == "":
                        steps[number][name] = block
                        continue
                    axis = 1 if name == "populations" else 0
                    planes = block.shape[axis]
                    begin, end = planes * rank // len(files), planes * (rank + 1) // len(files)
                    place = [slice(None)] * block.ndim
                    place[axis] = slice(begin, end)
                    if name not in steps[number]:
                        steps[number][name] = np.zeros_like(block)
                    steps[number][name][tuple(place)] = block[tuple(place)]
    return steps


def assert_same_steps(
    left: list[dict[str, npt.NDArray[np.generic]]], right: list[dict[str, npt.NDArray[np.generic]]]
) -> None:
    assert len(left) == len(right)
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        assert one.keys() == other.keys(), f"step {number}"
        for name in one:
            assert np.array_equal(one[name], other[name]), f"{name} differs in step {number}"


def test_duct_flow_is_poiseuille(simulation: Simulation) -> None:
    """Square duct of width a: series solution, F. M. White, Viscous Fluid Flow, 3rd ed., eq. 3-48."""
    width = 16
    permeability = settled_permeability(
        simulation,
        f"--geometry duct --nx {width} --ny {width} --nz 1 --viscosity 0.3 --force 1e-6 "
        "--iterations-per-step 1500 --steps 4",
    )
    series = sum(math.tanh(n * math.pi / 2) / n**5 for n in range(1, 100, 2))
    exact = width**2 / 12 * (1 - 192 / math.pi**5 * series)
    assert permeability == pytest.approx(exact, rel=0.005)


def test_empty_cylinder_is_hagen_poiseuille(simulation: Simulation) -> None:
    """Round pipe of radius R: permeability R^2/8; the wall is a staircase, so within two per cent."""
    permeability = settled_permeability(
        simulation,
        "--geometry empty-cylinder --nx 34 --ny 34 --nz 1 --viscosity 0.3 --force 1e-6 "
        "--iterations-per-step 1500 --steps 4",
    )
    assert permeability == pytest.approx(16**2 / 8, rel=0.02)


def simple_cubic_permeability(side: int) -> tuple[float, float]:
    """Sphere radius and permeability of a simple cubic array with a solid share of 0.216.

    The drag on a sphere of radius a in Stokes flow of superficial velocity U is 6 pi mu a K U with K = 7.442:
    A. A. Zick and G. M. Homsy, J. Fluid Mech. 115 (1982) 13-26, table 2. It balances the force on one cell, so
    k = side^3 / (6 pi a K).
    """
    radius = side * (0.216 * 3 / (4 * math.pi)) ** (1 / 3)
    return radius, side**3 / (6 * math.pi * radius * 7.442)


def test_simple_cubic_spheres_have_the_permeability_of_the_literature(simulation: Simulation) -> None:
    errors = []
    for side in (16, 32):
        radius, exact = simple_cubic_permeability(side)
        permeability = settled_permeability(
            simulation,
            f"--geometry sphere-array --nx {side} --ny {side} --nz {side} "
            f"--sphere-radius {radius} --viscosity 0.1666667 --force 1e-7 --iterations-per-step {side * 28} --steps 5",
        )
        errors.append(abs(permeability / exact - 1))
    assert errors[1] < 0.04
    assert errors[1] < 0.6 * errors[0], f"the error must fall with the grid: {errors}"


def test_permeability_does_not_depend_on_viscosity(simulation: Simulation) -> None:
    """What the two-relaxation-time collision is for: with a single rate this changes by several per cent."""
    radius, _ = simple_cubic_permeability(12)
    arguments = (
        f"--geometry sphere-array --nx 12 --ny 12 --nz 12 --sphere-radius {radius} --iterations-per-step 3000 --steps 4"
    )
    thin = settled_permeability(simulation, f"{arguments} --viscosity 0.02 --force 1e-9")
    thick = settled_permeability(simulation, f"{arguments} --viscosity 0.5 --force 1e-7")
    assert thin == pytest.approx(thick, rel=1e-4)


@pytest.mark.parametrize("ranks", [2, 3])
def test_any_number_of_ranks_gives_the_same_bits(simulation: Simulation, ranks: int) -> None:
    arguments = f"{SMALL_BED} --steps 5"
    alone = simulation.run(arguments)
    together = simulation.run(arguments, ranks=ranks)
    assert together == alone
    assert_same_steps(
        read_steps([simulation.output(rank, ranks) for rank in range(ranks)]), read_steps([simulation.output(0, 1)])
    )


def test_sphere_array_gives_the_same_bits_on_several_ranks(simulation: Simulation) -> None:
    arguments = "--geometry sphere-array --nx 12 --ny 12 --nz 12 --sphere-radius 4.3 --iterations-per-step 50 --steps 3"
    assert simulation.run(arguments, ranks=3) == simulation.run(arguments)


@pytest.mark.parametrize("ranks", [1, 2])
def test_restart_goes_on_with_the_same_bits(simulation: Simulation, tmp_path: Path, ranks: int) -> None:
    undisturbed = simulation.run(f"{SMALL_BED} --steps 9")
    reference = tmp_path / "reference.bp"
    simulation.output(0, 1).rename(reference)
    # Steps 0 to 7, of which 0, 3 and 6 hold populations: the restart goes on after 6 and writes 7 again.
    simulation.run(f"{SMALL_BED} --steps 8")
    checkpoint = tmp_path / "checkpoint.bp"
    simulation.output(0, 1).rename(checkpoint)
    if ranks == 1:
        checkpoint.rename(simulation.output(0, 1))
        checkpoint = simulation.output(0, 1)
    continued = simulation.run(
        f"{SMALL_BED} --steps 9 --restart {shlex.quote(str(checkpoint))}", ranks=ranks, append_after=7
    )
    assert continued == undisturbed[7:]
    files = [simulation.output(rank, ranks) for rank in range(ranks)]
    expected = read_steps([reference])
    assert_same_steps(read_steps(files), expected if ranks == 1 else expected[7:])


def test_restart_refuses_a_checkpoint_of_another_run(simulation: Simulation, tmp_path: Path) -> None:
    simulation.run(f"{SMALL_BED} --steps 2")
    checkpoint = tmp_path / "checkpoint.bp"
    simulation.output(0, 1).rename(checkpoint)
    (process,) = simulation.start(f"{SMALL_BED} --steps 4 --viscosity 0.06 --restart {shlex.quote(str(checkpoint))}")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "its viscosity is 0.05, this run's is 0.06" in errors


def read_until_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"step {step} "):
            return
    pytest.fail(f"the simulation ended before step {step}")


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("pace", ["", "--pace-ms 600000"], ids=["computing", "waiting"])
def test_a_lost_rank_ends_all_others_at_once(simulation: Simulation, lost: int, pace: str) -> None:
    processes = simulation.start(f"{SMALL_BED} --steps 1000000 --checkpoint-every 0 {pace}", ranks=3)
    read_until_step(processes[0], 0 if pace else 2)
    processes[lost].kill()
    for rank, process in enumerate(processes):
        _, errors = process.communicate(timeout=10)
        if rank != lost:
            assert process.returncode == 3, errors
            assert "is gone" in errors
            assert "restart all ranks" in errors


def test_a_rank_that_never_comes_is_named(simulation: Simulation) -> None:
    (process,) = simulation.start(f"{SMALL_BED} --steps 2 --connect-timeout-ms 200", ranks=2, present=[0])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 1 did not come" in errors


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("pace_ms", ["0", "200"])
def test_sigterm_to_one_rank_ends_all_after_a_whole_step(simulation: Simulation, ranks: int, pace_ms: str) -> None:
    processes = simulation.start(f"{SMALL_BED} --steps 1000000 --pace-ms {pace_ms} --checkpoint-every 0", ranks=ranks)
    read_until_step(processes[0], 1)
    processes[-1].send_signal(signal.SIGTERM)
    last = []
    for process in processes:
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "ended by SIGTERM after step" in errors
        last.append(int(errors.split()[-1]))
    assert len(set(last)) == 1
    assert len(read_steps([simulation.output(rank, ranks) for rank in range(ranks)])) == last[0] + 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--solid-fraction 0.61", "lower --solid-fraction"),
        ("--sphere-radius 9", "--sphere-radius must lie between"),
        ("--nx 21", "--nx equal to --ny"),
        ("--nz 12", "--nz must exceed"),
    ],
)
def test_a_bed_that_cannot_be_is_refused_with_the_option_to_change(
    simulation: Simulation, arguments: str, says: str
) -> None:
    (process,) = simulation.start(f"{SMALL_BED} {arguments} --steps 1")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert says in errors
