# SPDX-License-Identifier: Apache-2.0
"""A post-processing consumer: permeability and pressure drop of the packed bed over time, from its stream.

Follows the stream, keeps one row per step in DIR/permeability.json and plots them to DIR/permeability.png. Both files
are replaced whole, and a step is acknowledged after its row is on disk; so it may be killed and started again at any
time.

    python permeability.py run1/flow --out results
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Step(Protocol):
    """What is needed of a step; :class:`forebay.Step` has it."""

    @property
    def number(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, Any]: ...
    def __getitem__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class Row:
    """Figures of one step, in lattice units."""

    step: int
    iteration: int
    superficial_velocity: float
    pressure_drop: float
    permeability: float


def measure(step: Step) -> Row:
    """Superficial velocity, pressure drop and Darcy permeability of one step.

    The superficial velocity is the mean of the axial velocity over the whole column between the inlet and the outlet
    plane, solid included; the pressure drop is that of the mean pressures of the fluid in the two planes. Darcy's law
    then gives the permeability: viscosity * density * velocity * distance / pressure drop.
    """
    attributes = step.attributes
    inlet, outlet = int(attributes["inlet_plane"]), int(attributes["outlet_plane"])
    distance = outlet - inlet
    axial = np.asarray(step["velocity"][inlet:outlet, :, :, 2])
    velocity = float(axial.sum(dtype=np.float64)) / (distance * float(attributes["column_area"]))
    drop = _mean_pressure(step, inlet) - _mean_pressure(step, outlet)
    viscosity = float(attributes["viscosity"]) * float(attributes["density"])
    return Row(
        step=step.number,
        iteration=int(step["iteration"]),
        superficial_velocity=velocity,
        pressure_drop=drop,
        permeability=viscosity * velocity * distance * float(attributes["spacing"]) / drop,
    )


def _mean_pressure(step: Step, plane: int) -> float:
    fluid = np.asarray(step["solid"][plane]) == 0
    return float(np.asarray(step["pressure"][plane])[fluid].mean(dtype=np.float64))


def carman_kozeny(attributes: Mapping[str, Any]) -> float:
    """What a textbook expects of the bed: Carman and Kozeny's law, with the drag of the tube's wall.

    Wall correction: D. Mehta and M. C. Hawley, Ind. Eng. Chem. Process Des. Dev. 8 (1969) 280-282.
    """
    porosity, diameter = float(attributes["porosity"]), 2 * float(attributes["sphere_radius"])
    wall = 1 + 4 * diameter / (6 * 2 * float(attributes["cylinder_radius"]) * (1 - porosity))
    return porosity**3 * diameter**2 / (180 * (1 - porosity) ** 2 * wall**2)


class History:
    """The rows so far, in order of steps, kept in a file.

    Parameters
    ----------
    path : Path
        JSON file; read if it is there.
    window, tolerance : int, float
        The permeability has settled at the step from which on it differs, relatively, from its last value by less than
        ``tolerance``, if there are ``window`` steps or more from there on.
    """

    def __init__(self, path: Path, *, window: int = 10, tolerance: float = 2e-3) -> None:
        self._path, self._window, self._tolerance = path, window, tolerance
        self.rows: list[Row] = []
        if path.exists():
            self.rows = [Row(**row) for row in json.loads(path.read_text())["rows"]]

    def add(self, row: Row) -> None:
        """Puts a row after those of earlier steps; rows of later ones were withdrawn and go."""
        self.rows = [*(earlier for earlier in self.rows if earlier.step < row.step), row]

    @property
    def settled_at(self) -> int | None:
        """Number of the step from which on the permeability stays where it is now; None while it still moves."""
        values = np.array([row.permeability for row in self.rows])
        if len(values) < self._window or not np.isfinite(values[-self._window :]).all():
            return None
        close = np.abs(values / values[-1] - 1) < self._tolerance if values[-1] else np.zeros(len(values), bool)
        moving = np.flatnonzero(~close)
        first = int(moving[-1]) + 1 if moving.size else 0
        return self.rows[first].step if len(values) - first >= self._window else None

    def save(self) -> None:
        """Replaces the file; whoever reads it sees the old or the new one whole."""
        document = {
            "settled_at": self.settled_at,
            "permeability": self.rows[-1].permeability if self.rows else None,
            "pressure_drop": self.rows[-1].pressure_drop if self.rows else None,
            "rows": [dataclasses.asdict(row) for row in self.rows],
        }
        _replace(self._path, json.dumps(document, indent=1).encode())


def plot(history: History, attributes: Mapping[str, Any], path: Path) -> None:
    """Permeability above, velocity and pressure drop below, over the steps."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    # The fluid starts at rest: the first steps have no permeability to speak of.
    rows = [row for row in history.rows if row.permeability > 0]
    steps = [row.step for row in rows]
    blue, orange, grey = "#20639b", "#d1662b", "#7a828c"
    figure, (upper, lower) = pyplot.subplots(
        2, 1, sharex=True, figsize=(8, 6), dpi=120, layout="constrained", height_ratios=[3, 2]
    )
    upper.plot(steps, [row.permeability for row in rows], color=blue, linewidth=1.8)
    upper.axhline(carman_kozeny(attributes), color=grey, linewidth=1, linestyle="--")
    upper.annotate(
        "Carman-Kozeny with wall correction", (1, carman_kozeny(attributes)), xycoords=("axes fraction", "data"),
        xytext=(-4, -11), textcoords="offset points", ha="right", fontsize=8, color=grey,
    )  # fmt: skip
    if history.settled_at is not None:
        upper.axvline(history.settled_at, color=orange, linewidth=1)
        upper.annotate(
            f"settled at step {history.settled_at}:\n{rows[-1].permeability:.4f}", (history.settled_at, 0.06),
            xycoords=("data", "axes fraction"), xytext=(6, 0), textcoords="offset points", fontsize=9, color=orange,
        )  # fmt: skip
    upper.set_ylim(bottom=0)
    upper.set_ylabel("Darcy permeability, cells²")
    upper.set_title(f"Packed cylinder, porosity {float(attributes['porosity']):.3f}", loc="left", fontsize=11)
    lower.plot(steps, [row.superficial_velocity for row in rows], color=blue, linewidth=1.5)
    lower.set_ylim(bottom=0)
    lower.set_ylabel("superficial velocity,\ncells per iteration", color=blue)
    lower.set_xlabel("step")
    pressure = lower.twinx()
    pressure.plot(steps, [row.pressure_drop for row in rows], color=orange, linewidth=1.5)
    pressure.set_ylim(bottom=0)
    pressure.set_ylabel("pressure drop,\nlattice units", color=orange)
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
    part = path.with_name(f".{path.name}.part")
    figure.savefig(part, format="png")
    pyplot.close(figure)
    part.replace(path)


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def main() -> int:
    """Follows the stream until it ends."""
    import forebay

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream", help="RESERVATION/STREAM of the simulation")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for permeability.json and permeability.png")
    parser.add_argument("--consumer", default="permeability", help="name that the position is kept under")
    parser.add_argument("--timeout", type=float, help="longest wait for a step, in seconds")
    parser.add_argument("--plot-every", type=int, default=10, help="steps between two plots")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    history = History(options.out / "permeability.json")
    attributes: Mapping[str, Any] | None = None

    def notice(event: forebay.Notice) -> None:
        print(f"{options.stream} is {event.status}: {event.text}", file=sys.stderr)

    try:
        with forebay.open(options.stream, timeout=options.timeout) as stream:
            for step in stream.follow(options.consumer, timeout=options.timeout, ack="manual", on_notice=notice):
                with step:
                    if step.rewound:
                        print(
                            f"{options.stream} goes on from step {step.number}; later rows are dropped", file=sys.stderr
                        )
                    attributes = step.attributes
                    history.add(measure(step))
                    history.save()
                    step.ack()
                row = history.rows[-1]
                print(
                    f"step {row.step}: permeability {row.permeability:.6g}, pressure drop {row.pressure_drop:.6g}",
                    flush=True,
                )
                if row.step % options.plot_every == 0:
                    plot(history, attributes, options.out / "permeability.png")
    except forebay.ForebayError as error:
        print(f"permeability: {error}", file=sys.stderr)
        return 1
    finally:
        if attributes is not None:
            plot(history, attributes, options.out / "permeability.png")
    settled = f"settled at step {history.settled_at}" if history.settled_at is not None else "not settled yet"
    print(f"{len(history.rows)} steps, {settled}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
