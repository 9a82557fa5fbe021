# SPDX-License-Identifier: Apache-2.0
"""What a run leaves: a table on the terminal, JSON with every sample, and a plot of ratios beside their targets."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import forebay
from tests.bench.measure import Outcome, Verdict
from tests.bench.workbench import MIB

__all__ = ["POLICY", "describe_machine", "print_table", "save_json", "save_plot"]

#: What holds for every row that does not say otherwise.
POLICY = (
    "Data stays in the page cache: nothing is synced while a case runs, except by our own flusher (every 500 ms, its "
    "default), and in the rows that say durable or synced. Files and reservations are fresh for each case, and deleted "
    "after it. A sample is the best of a few runs in a row, but where a run takes long."
)


def describe_machine(folder: Path) -> dict[str, Any]:
    """What figures depend on."""
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return {
        "forebay": forebay.__version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "kernel": platform.release(),
        "processor": models[0] if models else platform.machine(),
        "processors": os.cpu_count(),
        "memory_total": memory["MemTotal"].strip(),
        "file_system": _file_system(folder),
        "tcp_congestion_control": congestion.read_text().strip() if congestion.is_file() else "unknown",
        "load_averages": list(os.getloadavg()),
        "policy": POLICY,
    }


def _file_system(folder: Path) -> str:
    """Type and options of the mount that holds the folder."""
    best, described = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        inside = point == "/" or str(folder).startswith(f"{point}/")
        if inside and len(point) >= len(best):
            best, described = point, f"{kind} ({options})"
    return described


def print_table(verdicts: Sequence[Verdict], console: Console) -> None:
    """One line for each row; misses are marked."""
    table = Table(title="Forebay against its peers: ratios above 1 are better than the peer")
    for column in ("what", "against"):
        table.add_column(column)
    for column in ("ours", "peer", "ratio", "min-max", "target"):
        table.add_column(column, justify="right")
    table.add_column("")
    suite = ""
    for verdict in verdicts:
        if suite not in ("", verdict.suite):
            table.add_section()
        suite = verdict.suite
        table.add_row(
            verdict.what,
            verdict.against,
            _with_unit(verdict.ours, verdict.unit),
            _with_unit(verdict.peer, verdict.unit),
            f"{verdict.ratio:.2f}",
            f"{verdict.ratio_min:.2f}-{verdict.ratio_max:.2f}",
            "" if verdict.target is None else f"{verdict.target:.2f}",
            _mark(verdict),
        )
    console.print(table)


def _mark(verdict: Verdict) -> str:
    if verdict.target is None:
        return ""
    if verdict.meets:
        return "[green]met[/]"
    return "[yellow]missed[/]" if verdict.acceptable else "[red]below half[/]"


def _with_unit(value: float, unit: str) -> str:
    if unit == "bytes_per_second":
        return f"{value / 1e9:.2f} GB/s"
    if unit == "bytes":
        return f"{value / MIB:.0f} MiB"
    for scale, name in ((1.0, "s"), (1e-3, "ms")):
        if value >= scale:
            return f"{value / scale:.2f} {name}"
    return f"{value * 1e6:.1f} µs"


def save_json(outcome: Outcome, machine: dict[str, Any], folder: Path) -> None:
    """One suite's samples and verdicts, as SUITE.json."""
    document = {"machine": machine, **dataclasses.asdict(outcome)}
    (folder / f"{outcome.suite}.json").write_text(json.dumps(document, indent=1) + "\n")


def save_plot(verdicts: Sequence[Verdict], path: Path) -> None:
    """Bars of ratios on a logarithmic axis, with their range, and the targets as marks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = list(reversed(verdicts))
    labels = [f"{verdict.what} / {verdict.against}" for verdict in rows]
    colours = ["#4c72b0" if verdict.meets else "#c44e52" for verdict in rows]
    ratios = [verdict.ratio for verdict in rows]
    spread = [
        [verdict.ratio - verdict.ratio_min for verdict in rows],
        [verdict.ratio_max - verdict.ratio for verdict in rows],
    ]
    figure, axes = pyplot.subplots(figsize=(11, 1.2 + 0.28 * len(rows)), layout="constrained")
    axes.barh(labels, ratios, color=colours, xerr=spread, error_kw={"ecolor": "#555555", "elinewidth": 0.8})
    for position, verdict in enumerate(rows):
        if verdict.target is not None:
            axes.plot([verdict.target] * 2, [position - 0.45, position + 0.45], color="black", linewidth=2)
    axes.axvline(1.0, color="#888888", linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlabel("ratio to the peer (above 1: better); black mark: target")
    axes.tick_params(axis="y", labelsize=7)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
