# SPDX-License-Identifier: Apache-2.0
"""What rank 0 of the simulation prints of each step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(
    r"step (?P<step>\d+) iteration (?P<iteration>\d+) mean_velocity (?P<velocity>\S+) pressure_drop (?P<drop>\S+) "
    r"permeability (?P<permeability>\S+) step_seconds (?P<step_seconds>\S+) output_seconds (?P<output_seconds>\S+)"
)


@dataclass(frozen=True)
class SimulatedStep:
    """One step, as it was printed."""

    number: int
    figures: tuple[str, ...]  #: as printed, so that bits can be compared
    step_seconds: float  #: computing and writing it, without waiting for the pace
    output_seconds: float  #: of these, what ADIOS2 took


def simulated_steps(logs: Sequence[Path]) -> list[SimulatedStep]:
    """The steps that these logs tell of, in that order; a step that was written again comes again."""
    return [
        SimulatedStep(
            number=int(match["step"]),
            figures=(match["iteration"], match["velocity"], match["drop"], match["permeability"]),
            step_seconds=float(match["step_seconds"]),
            output_seconds=float(match["output_seconds"]),
        )
        for log in logs
        for line in log.read_text().splitlines()
        if (match := _LINE.fullmatch(line))
    ]
