# SPDX-License-Identifier: Apache-2.0
"""The weather: shallow water on a rotating, periodic plane, and a tracer that the wind carries.

The linear equations du/dt = f v - dh/dx, dv/dt = -f u - dh/dy, dh/dt = -(du/dx + dv/dy), by central differences and
forward-backward steps (Mesinger and Arakawa 1976, Numerical Methods Used in Atmospheric Models, volume 1). The unit of
length is a cell, gravity and mean depth are 1.

A state is an array of float32, shape (4, rows, columns): height, wind to the right, wind downwards, tracer. What it
becomes depends on nothing else, bit by bit, so a run that goes on from a written state is the run that was not ended.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

State = NDArray[np.float32]

HEIGHT, RIGHT, DOWN, TRACER = range(4)
STATIONS = 48
_STEP = np.float32(0.4)  # of time; waves pass 0.4 cells in it
_ROTATION = np.float32(0.02)
_WIND = np.float32(0.3)  # mean wind, which carries the tracer


def start(rows: int, columns: int, seed: int) -> State:
    """Some highs and lows at rest, and a cloud of tracer around each."""
    draw = np.random.default_rng(seed)
    state = np.zeros((4, rows, columns), np.float32)
    for _ in range(6):
        place = draw.uniform(0, rows), draw.uniform(0, columns)
        bump = _bump(rows, columns, place, draw.uniform(0.05, 0.12) * rows)
        state[HEIGHT] += np.float32(draw.uniform(-1, 1)) * bump
        state[TRACER] += bump
    return state


def advance(state: State, steps: int) -> State:
    """The state so many steps of time later."""
    height, right, down, tracer = (field.copy() for field in state)
    for _ in range(steps):
        right += _STEP * (_ROTATION * down - _slope(height, 1))
        down -= _STEP * (_ROTATION * right + _slope(height, 0))
        height -= _STEP * (_slope(right, 1) + _slope(down, 0))
        # Against the mean wind, which is faster than what the waves add.
        tracer -= _STEP * ((_WIND + right) * (tracer - np.roll(tracer, 1, axis=1)) + down * _slope(tracer, 0))
    return np.stack([height, right, down, tracer])


def stations(rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the stations that observe."""
    draw = np.random.default_rng(7)
    return draw.integers(0, rows, STATIONS), draw.integers(0, columns, STATIONS)


def analysis(guess: State, observed: NDArray[np.float32]) -> State:
    """The guess, corrected by the heights that stations observed, each in its surroundings."""
    rows, columns = guess.shape[1:]
    at = stations(rows, columns)
    correction, weights = np.zeros((2, rows, columns), np.float32)
    for row, column, missing in zip(*at, observed - guess[HEIGHT][at], strict=True):
        weight = _bump(rows, columns, (row, column), rows / 8)
        correction += weight * missing
        weights += weight
    analysed = guess.copy()
    analysed[HEIGHT] += correction / (weights + np.float32(0.1))
    return analysed


def _slope(field: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    return np.float32(0.5) * (np.roll(field, -1, axis) - np.roll(field, 1, axis))


def _bump(rows: int, columns: int, place: tuple[float, float], width: float) -> NDArray[np.float32]:
    """1 at a place, and less around it, the shorter way on the periodic plane."""
    sides = []
    for size, middle in zip((rows, columns), place, strict=True):
        distance = (np.arange(size) - middle + size / 2) % size - size / 2
        sides.append(np.exp(-(distance**2) / (2 * width**2)).astype(np.float32))
    return np.outer(*sides)
