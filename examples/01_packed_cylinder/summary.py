# SPDX-License-Identifier: Apache-2.0
"""The figures of a show: summary.json, and what is printed at the end."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cast import Cast
from course import Course
from permeability import History
from plan import Plan
from rich.console import Console
from rich.text import Text
from simulated import SimulatedStep, simulated_steps
from verification import Check

from forebay import __version__, format_size

_MIB = 2**20


def summarize(plan: Plan, cast: Cast, course: Course) -> dict[str, Any]:
    """The figures, as they go into summary.json."""
    assert cast.undisturbed is not None
    written = simulated_steps([ranks[0].log for ranks in cast.simulations])
    history = History(cast.out / "permeability.json")
    wall_s = course.ended_at - course.started_at
    kill = course.rank_kill
    again = () if kill is None else range(kill.checkpoint + 1, kill.checkpoint + 1 + kill.withdrawn)
    numbers = [*range(plan.steps), *again]
    written_bytes = sum(map(plan.grid.step_bytes, numbers))
    return {
        "run": {
            "grid": plan.grid.name,
            "steps": plan.steps,
            "iterations_per_step": plan.iterations_per_step,
            "pace_ms": plan.pace_ms,
            "forebay": __version__,
            "machine": platform.machine(),
            "processors": os.cpu_count(),
        },
        "simulation": {
            "wall_seconds": wall_s,
            "steps_written": len(numbers),
            "bytes_written": written_bytes,
            "mib_per_second": written_bytes / _MIB / wall_s,
            **_pace(plan, written),
            "undisturbed_bp5": _pace(plan, simulated_steps([cast.undisturbed.log])),
        },
        "latency_ms": {
            "commit_to_waiting_follower": _quantiles(course.latencies_ms),
            "commit_to_newest_frame": _quantiles(_frame_latencies(cast, course, newest=True)),
            "commit_to_frame": _quantiles(_frame_latencies(cast, course, newest=False)),
            "commit_to_staged": _quantiles(_stage_latencies(cast)),
        },
        "retention": {
            "kept_steps_max": course.kept_steps_max,
            "kept_bytes_max": course.kept_bytes_max,
            "lag_steps_max": course.lag_steps_max,
        },
        **{
            name: dataclasses.asdict(event)
            for name, event in (
                ("rank_kill", course.rank_kill),
                ("server_kill", course.server_kill),
                ("rendering_paused", course.pause),
                ("rendering_cut_off", course.cut),
                ("server_away", course.away),
            )
            if event is not None
        },
        "permeability": {
            "settled_at": history.settled_at,
            "value": history.rows[-1].permeability,
            "pressure_drop": history.rows[-1].pressure_drop,
        },
    }


def save(summary: dict[str, Any], checks: Sequence[Check], path: Path) -> None:
    """Writes summary.json."""
    document = summary | {
        "passed": all(check.holds for check in checks),
        "checks": [dataclasses.asdict(check) for check in checks],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def print_summary(summary: dict[str, Any], console: Console) -> None:
    """For people."""
    simulation, latency = summary["simulation"], summary["latency_ms"]
    rows = [
        (
            "simulation",
            f"{simulation['steps_written']} steps, {format_size(simulation['bytes_written'])} in "
            f"{simulation['wall_seconds']:.1f} s: {simulation['mib_per_second']:.1f} MiB/s; unpaced "
            f"{simulation['steps_per_second']:.2f} steps/s",
        ),
        (
            "writing",
            f"{100 * simulation['output_share']:.1f} % of the writer's time, "
            f"{simulation['output_mib_per_second']:.0f} MiB/s (alone to a BP5 file: "
            f"{100 * simulation['undisturbed_bp5']['output_share']:.1f} %, "
            f"{simulation['undisturbed_bp5']['output_mib_per_second']:.0f} MiB/s)",
        ),
        ("commit → waiting consumer", _quantile_text(latency["commit_to_waiting_follower"])),
        ("commit → newest picture", _quantile_text(latency["commit_to_newest_frame"])),
        ("commit → picture of each", _quantile_text(latency["commit_to_frame"])),
        ("commit → staged out", _quantile_text(latency["commit_to_staged"])),
        (
            "retention",
            f"at most {summary['retention']['kept_steps_max']} steps kept, "
            f"{format_size(summary['retention']['kept_bytes_max'])}",
        ),
        *_accidents(summary),
        (
            "permeability",
            f"{summary['permeability']['value']:.5f} cells², settled at step {summary['permeability']['settled_at']}",
        ),
    ]
    for name, text in rows:
        console.print(Text.assemble((f"{name:<26}", "bold"), text))


def _accidents(summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if (rank := summary.get("rank_kill")) is not None:
        rows.append(
            (
                "rank killed",
                f"at step {rank['at_step']}: the other failed after {rank['other_rank_ended_s']:.2f} s, followers knew "
                f"after {rank['followers_told_s']:.2f} s, {rank['withdrawn']} steps withdrawn, writing again after "
                f"{rank['first_step_s']:.1f} s, caught up after {rank['caught_up_s']:.1f} s",
            )
        )
    if (server := summary.get("server_kill")) is not None:
        rows.append(
            (
                "server killed",
                f"at step {server['at_step']}: up again after {server['up_s']:.1f} s, the next step committed after "
                f"{server['first_step_s']:.1f} s",
            )
        )
    if (cut := summary.get("rendering_cut_off")) is not None:
        rows.append(("rendering cut off", f"at step {cut['at_step']}, for {cut['steps']} steps"))
    if (away := summary.get("server_away")) is not None:
        rows.append(("a server away", f"at step {away['at_step']}, for {away['steps']} steps"))
    return rows


def _pace(plan: Plan, steps: Sequence[SimulatedStep]) -> dict[str, float]:
    step_seconds = sum(step.step_seconds for step in steps)
    output_seconds = sum(step.output_seconds for step in steps)
    written_bytes = sum(plan.grid.step_bytes(step.number) for step in steps)
    return {
        "steps_per_second": len(steps) / step_seconds,
        "output_share": output_seconds / step_seconds,
        "output_mib_per_second": written_bytes / _MIB / output_seconds,
    }


def _frame_latencies(cast: Cast, course: Course, *, newest: bool) -> list[float]:
    """Of all pictures, or of those that showed a newer step than any picture before them."""
    drawn = {int(path.stem): path.stat().st_mtime for path in (cast.out / "frames").glob("*.png")}
    latencies = []
    last = -1
    for step in sorted(drawn, key=drawn.__getitem__):
        if step in course.commits and (step > last or not newest):
            latencies.append(1000 * (drawn[step] - course.commits[step]))
        last = max(last, step)
    return latencies


def _stage_latencies(cast: Cast) -> list[float]:
    entries = json.loads((cast.checkpoints / "receipt.json").read_text())["steps"]
    return [(entry["staged_ns"] - entry["committed_ns"]) / 1e6 for entry in entries]


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    return {name: float(np.quantile(values, share)) for name, share in (("median", 0.5), ("p95", 0.95), ("max", 1.0))}


def _quantile_text(quantiles: dict[str, float]) -> str:
    return ", ".join(
        f"{name} {value / 1000:.2f} s" if value >= 1000 else f"{name} {value:.1f} ms"
        for name, value in quantiles.items()
    )
