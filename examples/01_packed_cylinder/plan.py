# SPDX-License-Identifier: Apache-2.0
"""What the demo runs, and when it interferes: grid, steps, pace, and the committed steps at which it kills."""

from __future__ import annotations

import math
from dataclasses import dataclass

CHECKPOINT_EVERY = 10
STEPS_MIN = 20
#: Processes of the simulation.
RANKS = 2
#: The simulation's pace: so that there is something to watch, and a run of few steps does not end before a consumer
#: has started.
RUN_SECONDS_MIN = 24.0


@dataclass(frozen=True)
class Grid:
    """A domain, and for how long its flow has to be followed until the permeability has settled."""

    name: str
    options: tuple[str, ...]  #: of the simulation; without any it takes its own
    cells: int
    iterations: int
    frame_size: str
    speed_max: float  #: of the settled flow, rounded up: the end of the pictures' colour scale

    def step_bytes(self, step: int) -> int:
        """What the simulation writes in a step: velocity, pressure, solid, three single values, maybe populations."""
        populations = 19 * 8 if step % CHECKPOINT_EVERY == 0 else 0
        return self.cells * (3 * 4 + 4 + 1 + populations) + 3 * 8


DEFAULT_GRID = Grid("48x48x88", (), 48 * 48 * 88, 3000, "960x720", 0.025)
SMALL_GRID = Grid(
    "24x24x40",
    (
        "--nx=24", "--ny=24", "--nz=40", "--plenum=7", "--sphere-radius=4", "--solid-fraction=0.42",
        "--viscosity=0.04", "--force=1e-4",
    ),
    24 * 24 * 40,
    600,
    "480x360",
    0.008,
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """A run of ``steps`` output steps over a grid."""

    steps: int
    grid: Grid

    @property
    def iterations_per_step(self) -> int:
        """The simulated time is the same for any number of steps."""
        return math.ceil(self.grid.iterations / self.steps)

    @property
    def pace_ms(self) -> int:
        return round(1000 * RUN_SECONDS_MIN / self.steps)

    @property
    def rank_killed_at(self) -> int:
        """A rank is killed half way, some steps after a checkpoint."""
        return self.steps // 2 // CHECKPOINT_EVERY * CHECKPOINT_EVERY + CHECKPOINT_EVERY // 2

    @property
    def renderer_paused_at(self) -> int:
        return math.ceil(0.55 * self.steps)

    @property
    def server_killed_at(self) -> int:
        return math.ceil(0.8 * self.steps)

    @property
    def checkpoints(self) -> list[int]:
        """The steps that are staged out."""
        return list(range(0, self.steps, CHECKPOINT_EVERY))

    @property
    def run_bytes(self) -> int:
        """What the simulation writes if nothing has to be written again."""
        return sum(map(self.grid.step_bytes, range(self.steps)))

    @property
    def capacity(self) -> str:
        """Of the reservation: room for all steps, should a consumer stand still."""
        return f"{math.ceil(1.5 * self.run_bytes / 2**20) + 256}MiB"

    def simulation_options(self) -> list[str]:
        """Options of every run of the simulation, disturbed or not."""
        return [
            *self.grid.options,
            f"--steps={self.steps}",
            f"--iterations-per-step={self.iterations_per_step}",
            f"--checkpoint-every={CHECKPOINT_EVERY}",
        ]
