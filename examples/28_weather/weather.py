# SPDX-License-Identifier: Apache-2.0
"""Runs the cycles in four ways and compares time and results; then writes hours with 1, 2, 4 and 8 aggregators.

    forebay up --capacity 4GiB
    python examples/28_weather/weather.py

It needs Snakemake (``pip install 'forebay[snakemake]'``). The reservation ``weather`` and the folder ``weather-out``
must not be there yet.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from hours import Aggregators, hours_at

import forebay

HERE = Path(__file__).parent
AGGREGATORS = (1, 2, 4, 8)
HOURS_WRITTEN = 4

#: What the user sees, where hours go, and how many jobs run at once.
WAYS = (
    ("one stage after the other", "directory", 1),
    ("cycles overlap", "directory", 2),
    ("hours are followed, as files", "files", 2),
    ("hours are followed, as a stream", "stream", 2),
)


def snakemake(folder: Path, cores: int, settings: dict[str, Any], *targets: str) -> float:
    """Runs the workflow in a folder; the seconds that it took."""
    config = [f"{name}={value}" for name, value in (settings | {"python": sys.executable}).items()]
    command = [sys.executable, "-P", "-m", "snakemake"]
    command += ["--snakefile", str(HERE / "Snakefile"), "--directory", str(folder)]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--cores", str(cores), *targets, "--config", *config], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{folder}: the workflow failed\n{done.stdout}{done.stderr}")
    return time.monotonic() - began


def results(folder: Path) -> dict[str, str]:
    """What the workflow has made, without what it needed on the way."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.glob("cycle*/*.csv"))}


def run_ways(output: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One line of the table for each way."""
    rows: list[dict[str, Any]] = []
    observed = output / "observed"
    snakemake(observed, 1, settings, "observations.npy")
    expected: dict[str, str] = {}
    for number, (way, kind, cores) in enumerate(WAYS):
        folder = output / f"way{number}"
        folder.mkdir()
        shutil.copy2(observed / "observations.npy", folder)
        seconds = snakemake(folder, cores, settings | {"output": kind})
        expected = expected or results(folder)
        if not expected or results(folder) != expected:
            raise SystemExit(f"{folder} has other results than {output / 'way0'}")
        first = (folder / "cycle0/products/hour000.npz").stat().st_mtime
        began = (folder / "cycle0/start.npy").stat().st_mtime
        rows.append({"way": way, "output": kind, "jobs": cores, "seconds": seconds, "first_product": first - began})
    for row in rows:
        row["ratio"] = rows[0]["seconds"] / row["seconds"]
    return rows


def write_hours(place: str, aggregators: int, grid: int) -> float:
    """MB/s of the median hour, from when the model hands it over until consumers can have it."""
    state = np.random.default_rng(0).random((4, grid, grid), np.float32)
    taken = []
    with Aggregators(hours_at(place), aggregators) as writers:
        for hour in range(HOURS_WRITTEN):
            began = time.monotonic()
            writers.write(hour, state)
            taken.append(time.monotonic() - began)
    return state.nbytes / statistics.median(taken) / 1e6


def run_aggregators(reservation: str, grid: int) -> list[dict[str, Any]]:
    """One line of the table for each number of aggregators."""
    rows = []
    with forebay.Admin() as admin:
        files_path = Path(admin.reservation(reservation).files_path)
        for count in AGGREGATORS:
            name = f"aggregators{count}"
            files = write_hours(f"files:{reservation}:{name}", count, grid)
            stream = write_hours(f"stream:{reservation}/{name}", count, grid)
            parts = len(list((files_path / name / "hour000").iterdir()))
            rows.append({"aggregators": count, "files_an_hour": parts, "files": files, "stream": stream})
            shutil.rmtree(files_path / name)
            admin.remove_stream(f"{reservation}/{name}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=2)
    parser.add_argument("--hours", type=int, default=10, help="of each forecast")
    parser.add_argument("--grid", type=int, default=768, help="rows and columns of the model; a multiple of 8")
    parser.add_argument("--steps", type=int, default=35, help="of the model in an hour")
    parser.add_argument("--aggregators", type=int, default=4, help="1 to 8, of the forecasts in the first table")
    parser.add_argument("--reservation", default="weather")
    parser.add_argument("--output", type=Path, default=Path("weather-out"))
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    if asked.grid % 8 or not 1 <= asked.aggregators <= 8:
        parser.error("--grid is a multiple of 8, --aggregators is 1 to 8")
    asked.output.mkdir()
    size = max(asked.cycles * (asked.hours + 1), HOURS_WRITTEN) * 16 * asked.grid**2 + (64 << 20)
    create = [sys.executable, "-P", "-m", "forebay", "create", asked.reservation, "--capacity", str(2 * size)]
    subprocess.run([*create, "--files", str(size)], check=True, stdout=subprocess.DEVNULL)
    names = ("reservation", "cycles", "hours", "grid", "steps", "aggregators")
    ways = run_ways(asked.output, {name: getattr(asked, name) for name in names})
    aggregators = run_aggregators(asked.reservation, asked.grid)
    if asked.json:
        print(json.dumps({"ways": ways, "aggregators": aggregators}))
        return
    print(f"{'way':32} {'jobs':>4} {'time':>7} {'ratio':>6} {'first product':>14}")
    for row in ways:
        figures = f"{row['jobs']:4} {row['seconds']:5.1f} s {row['ratio']:6.2f} {row['first_product']:12.1f} s"
        print(f"{row['way']:32} {figures}")
    print(f"\n{'aggregators':11} {'files an hour':>14} {'files':>9} {'stream':>9}")
    for row in aggregators:
        print(f"{row['aggregators']:11} {row['files_an_hour']:14} {row['files']:4.0f} MB/s {row['stream']:4.0f} MB/s")


if __name__ == "__main__":
    main()
