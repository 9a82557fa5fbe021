# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the viewers' tests: a server, a reservation, and a stream on a regular grid."""

from __future__ import annotations

import numpy as np
import pytest

import forebay
from tests.integration.conftest import reservation, server

__all__ = ["field", "flow", "reservation", "server", "write_flow"]

SHAPE = (6, 8, 10)


def field(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """What ``T`` is in a step: a bump that moves along x."""
    z, y, x = np.mgrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]].astype(np.float32)
    bump: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = np.exp(
        -((x - number) ** 2 + (y - 4) ** 2 + (z - 3) ** 2) / 8
    )
    return bump


def write_flow(address: str, first: int, end: int, mode: str = "w", **options: object) -> None:
    """Steps ``first`` to ``end`` - 1 of ``T``, ``velocity`` and ``time``, beside what no grid takes."""
    with forebay.open(address, mode=mode, **options) as stream:  # type: ignore[call-overload]
        stream.attributes["spacing"] = 0.5
        stream.attributes["origin"] = np.array([1.0, 2.0, 3.0])
        for number in range(first, end):
            values = field(number)
            with stream.step() as step:
                for row in (0, 4):
                    step.write("T", values[:, row : row + 4], shape=SHAPE, start=(0, row, 0))
                step["velocity"] = np.stack([values, 2 * values, 3 * values], -1)
                step["time"] = 0.25 * number
                step["spectrum"] = np.zeros(4)


@pytest.fixture
def flow(reservation: str) -> str:
    """A stream of 4 steps that has ended."""
    write_flow(f"{reservation}/flow", 0, 4)
    return f"{reservation}/flow"
