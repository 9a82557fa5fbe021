# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the connectors' tests: a server, a reservation, and a stream of known content."""

from __future__ import annotations

import numpy as np
import pytest

import forebay
from tests.integration.conftest import reservation, server

__all__ = ["flow", "reservation", "server"]


@pytest.fixture
def flow(reservation: str) -> str:
    """A stream of 6 steps in 4 blocks: ``T`` at step n, place i is n + i/1000.

    Beside it: single values ``time`` and ``label``, ``mesh/level``, ``grows`` of changing shape, ``sometimes`` in every
    second step, and a local array.
    """
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:
        stream.attributes["T/units"] = "K"
        stream.attributes["title"] = "test"
        for number in range(6):
            whole = temperature(number)
            with stream.step() as step:
                for z in (0, 4):
                    for y in (0, 6):
                        step.write("T", whole[z : z + 4, y : y + 6], shape=whole.shape, start=(z, y, 0))
                step["time"] = 0.5 * number
                step["label"] = f"step {number}"
                step["mesh/level"] = np.arange(5, dtype=np.int32) + number
                step["grows"] = np.zeros(number + 1)
                if number % 2 == 0:
                    step["sometimes"] = np.zeros(3)
                step.write("pieces", np.zeros(2), kind="local_array")
    return address


def temperature(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """What ``T`` of the stream ``flow`` is in a step."""
    return number + np.arange(8 * 12 * 16, dtype=np.float64).reshape(8, 12, 16) / 1000
