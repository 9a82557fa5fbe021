# SPDX-License-Identifier: Apache-2.0
"""The stages of a cycle, each a program of its own that the Snakefile runs: observe, prepare, forecast, postprocess,
verify.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from hours import Aggregators, hours_at
from model import DOWN, HEIGHT, RIGHT, TRACER, advance, analysis, start, stations
from numpy.typing import NDArray

_NATURE, _CLIMATE = 1, 2  # seeds
_BOX = 8
_LONG_WAVES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


def observe(output: Path, rows: int, columns: int, hours: int, steps: int) -> None:
    """What stations measure in each hour: heights of another run of the model, with errors."""
    nature = start(rows, columns, _NATURE)
    draw = np.random.default_rng(3)
    at = stations(rows, columns)
    observed = []
    for hour in range(hours):
        nature = advance(nature, steps) if hour else nature
        observed.append(nature[HEIGHT][at] + draw.normal(0, 0.01, at[0].size).astype(np.float32))
    _save(output, np.array(observed))


def prepare(output: Path, observations: Path, cycle: int, rows: int, columns: int, before: str) -> None:
    """Where the forecast starts: hour 1 of the forecast before, corrected by what stations observed since."""
    guess = hours_at(before).read(1) if before else start(rows, columns, _CLIMATE)
    _save(output, analysis(guess, np.load(observations)[cycle]))


def forecast(start_file: Path, place: str, hours: int, steps: int, aggregators: int) -> None:
    """Writes hours 0 to ``hours``; goes on after the last hour that is there."""
    target = hours_at(place)
    newest = target.newest()
    state = np.load(start_file) if newest is None else target.read(newest)
    with Aggregators(target, aggregators) as writers:
        if newest is None:
            writers.write(newest := 0, state)
        for hour in range(newest + 1, hours + 1):
            state = advance(state, steps)
            writers.write(hour, state)


def postprocess(output: Path, place: str, hours: int, timeout: float, log: Path) -> None:
    """A product of each hour as it comes; at the end one line for each in a table."""
    products = output.with_suffix("")
    products.mkdir(parents=True, exist_ok=True)
    with log.open("a") as done:
        for hour, state in hours_at(place).follow(hours, timeout):
            _save_product(products / f"hour{hour:03d}.npz", state)
            done.write(f"{hour}\n")
            done.flush()
    lines = ["hour,mean height,strongest wind,tracer\n"]
    for hour in range(hours + 1):
        with np.load(products / f"hour{hour:03d}.npz") as product:
            boxes = product["boxes"]
            lines.append(f"{hour},{boxes[0].mean():.9g},{product['wind'][-1]:.9g},{boxes[2].sum():.9g}\n")
    _put_whole(output, "".join(lines).encode())


def verify(output: Path, products: Path, observations: Path, cycle: int, hours: int) -> None:
    """How far each hour of the forecast is from what stations observed (root of the mean square)."""
    observed = np.load(observations)
    lines = ["cycle,hour,error\n"]
    for hour in range(hours + 1):
        with np.load(products.with_suffix("") / f"hour{hour:03d}.npz") as product:
            error = np.sqrt(np.mean((product["stations"] - observed[cycle + hour]) ** 2))
        lines.append(f"{cycle},{hour},{error:.9g}\n")
    _put_whole(output, "".join(lines).encode())


def _save_product(path: Path, state: NDArray[np.float32]) -> None:
    rows, columns = state.shape[1:]
    wind = np.hypot(state[RIGHT], state[DOWN])
    shape = (rows // _BOX, _BOX, columns // _BOX, _BOX)
    boxes = np.stack([field.reshape(shape).mean(axis=(1, 3)) for field in (state[HEIGHT], wind, state[TRACER])])
    # The energy of waves by their number, and the fields at stations without the waves that are shorter.
    at = stations(rows, columns)
    number = np.hypot(np.fft.fftfreq(rows, 1 / rows)[:, None], np.fft.rfftfreq(columns, 1 / columns))
    waves = [np.fft.rfft2(field) for field in state[:3]]
    power = np.sum([np.abs(wave) ** 2 for wave in waves], axis=0)
    smooth = [[np.fft.irfft2(wave * (number <= limit), s=wind.shape)[at] for wave in waves] for limit in _LONG_WAVES]
    product = {
        "boxes": boxes,
        "wind": np.percentile(wind, [50, 90, 99, 100]),
        "spectrum": np.bincount(number.astype(int).ravel(), weights=power.ravel()),
        "smooth": np.array(smooth),
        "stations": state[HEIGHT][at],
    }
    with _whole(path).open("wb") as file:
        np.savez(file, **product)
    _whole(path).rename(path)


def _save(path: Path, array: NDArray[np.float32]) -> None:
    with _whole(path).open("wb") as file:
        np.save(file, array)
    _whole(path).rename(path)


def _put_whole(path: Path, content: bytes) -> None:
    _whole(path).write_bytes(content)
    _whole(path).rename(path)


def _whole(path: Path) -> Path:
    """What is to be this file is written here first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.temp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=["observe", "prepare", "forecast", "postprocess", "verify"])
    parser.add_argument("--output", type=Path, help="the file that the stage makes")
    parser.add_argument("--start", type=Path, help="forecast: where it starts")
    parser.add_argument("--observations", type=Path)
    parser.add_argument("--products", type=Path, help="verify: the table beside the products")
    parser.add_argument("--place", default="", help="of the hours, of prepare: those of the forecast before")
    parser.add_argument("--cycle", type=int)
    parser.add_argument("--hours", type=int)
    parser.add_argument("--grid", type=int, help="rows and columns")
    parser.add_argument("--steps", type=int, help="of the model in each hour")
    parser.add_argument("--aggregators", type=int)
    parser.add_argument("--timeout", type=float, help="postprocess: seconds to wait for an hour")
    parser.add_argument("--log", type=Path, help="postprocess: gets a line for each hour that was processed")
    asked = parser.parse_args()
    if asked.stage == "observe":
        observe(asked.output, asked.grid, asked.grid, asked.hours, asked.steps)
    elif asked.stage == "prepare":
        prepare(asked.output, asked.observations, asked.cycle, asked.grid, asked.grid, asked.place)
    elif asked.stage == "forecast":
        forecast(asked.start, asked.place, asked.hours, asked.steps, asked.aggregators)
    elif asked.stage == "postprocess":
        postprocess(asked.output, asked.place, asked.hours, asked.timeout, asked.log)
    else:
        verify(asked.output, asked.products, asked.observations, asked.cycle, asked.hours)


if __name__ == "__main__":
    main()
