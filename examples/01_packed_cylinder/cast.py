# SPDX-License-Identifier: Apache-2.0
"""Who takes part: the simulation's ranks, the consumers, the stage-out and the undisturbed run, each a process."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from instance import Instance
from plan import CHECKPOINT_EVERY, RANKS, Plan
from programs import Program, Programs

RESERVATION = "demo"
STREAM = f"{RESERVATION}/flow"
RETENTION = f"consumers:render+permeability,precious:{CHECKPOINT_EVERY}"

_EXAMPLE = Path(__file__).resolve().parent
#: How long consumers wait for a restart of the simulation.
_GRACE_SECONDS = 300


class Cast:
    """Starts them. ``out`` is the demo's folder, ``simulation`` the program ``packed_cylinder``."""

    def __init__(self, plan: Plan, out: Path, simulation: Path, instance: Instance, programs: Programs) -> None:
        self._plan, self._simulation = plan, simulation
        self._instance, self._programs = instance, programs
        self.out = out
        self.checkpoints = out / "checkpoints"
        self.work = out / "work"  # removed at the end
        self.undisturbed_output = self.work / "undisturbed.bp"
        # Short, wherever the demo's folder is: the path of a socket has at most 107 characters.
        self._rendezvous = tempfile.TemporaryDirectory(prefix="packed-cylinder-")
        self.simulations: list[list[Program]] = []  # the ranks of each start
        self._simulation_environment: dict[str, str] = {}
        self.undisturbed: Program | None = None
        self.renderer: Program | None = None
        self.latecomer: Program | None = None

    @property
    def ranks(self) -> list[Program]:
        """Of the newest start of the simulation."""
        return self.simulations[-1]

    def create_reservation(self) -> None:
        """Where the stream is to lie."""
        capacity = ("--capacity", self._plan.capacity)
        self._instance.run("create", RESERVATION, *capacity, "--persistent", *self._instance.create_options)
        self._simulation_environment = self._instance.simulation_environment(STREAM)

    def start_consumers(self) -> None:
        """Rendering, post-processing and stage-out; they wait for the stream to begin."""
        command = self._instance.command
        self.renderer = self._start_consumer(
            "render",
            [
                command, "render", STREAM, "--out", str(self.out), "--scene", str(_EXAMPLE / "scene.toml"),
                "--size", self._plan.grid.frame_size, "--range", f"0:{self._plan.grid.speed_max:g}",
            ],
        )  # fmt: skip
        self._start_consumer("permeability", self._python("permeability.py", self.out))
        self._programs.start(
            "stage-out",
            [command, "stage-out", STREAM, str(self.checkpoints), "--every", str(CHECKPOINT_EVERY), "--follow"],
            self._instance.environment,
        )

    def start_undisturbed(self) -> None:
        """The same simulation as one process that writes a BP5 file and that nobody kills."""
        self.undisturbed = self._programs.start(
            "undisturbed",
            [
                # The show comes first.
                "nice", "-n", "5", str(self._simulation), *self._plan.simulation_options(),
                "--config", str(_EXAMPLE / "adios2.bp5.xml"), "--output", str(self.undisturbed_output),
            ],
            self._instance.environment,
        )  # fmt: skip

    def start_simulation(self, checkpoint: int | None = None) -> None:
        """Starts all ranks; with the number of a staged step they go on from there."""
        number = len(self.simulations) + 1
        rendezvous = Path(self._rendezvous.name) / str(number)
        rendezvous.mkdir()
        command = [
            str(self._simulation), *self._plan.simulation_options(), "--config", str(_EXAMPLE / "adios2.xml"),
            "--ranks", str(RANKS), "--rendezvous", str(rendezvous), "--pace-ms", str(self._plan.pace_ms),
        ]  # fmt: skip
        environment = self._simulation_environment | {
            "FOREBAY_RANKS": str(RANKS),
            "FOREBAY_GROUP": f"start-{number}",
            "FOREBAY_RETENTION": RETENTION,
            "FOREBAY_GRACE_SECS": str(_GRACE_SECONDS),
        }
        if checkpoint is not None:
            command += ["--restart", str(self.checkpoints / f"flow.{checkpoint:06d}.bp")]
            environment["FOREBAY_APPEND_AFTER"] = str(checkpoint)
        self.simulations.append(
            [
                self._start_rank(
                    f"simulation-{number}-rank-{rank}",
                    [*command, "--rank", str(rank)],
                    environment | {"FOREBAY_RANK": str(rank)},
                )
                for rank in range(RANKS)
            ]
        )

    def start_latecomer(self) -> None:
        """A consumer that nobody has waited for."""
        self.latecomer = self._programs.start(
            "latecomer", self._python("replay.py", self.work), self._instance.environment
        )

    def _start_consumer(self, name: str, command: list[str]) -> Program:
        return self._programs.start(name, command, self._instance.environment)

    def _start_rank(self, name: str, command: list[str], environment: dict[str, str]) -> Program:
        return self._programs.start(name, command, environment)

    def _python(self, script: str, out: Path) -> list[str]:
        return [sys.executable, "-u", str(_EXAMPLE / script), STREAM, "--out", str(out)]
