# SPDX-License-Identifier: Apache-2.0
"""The post-processing of the packed-cylinder example: figures against a known field, rewinds, settling."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.viz.recorded_stream import RecordedStep

SCRIPT = Path(__file__).resolve().parents[3] / "examples/01_packed_cylinder/permeability.py"
ATTRIBUTES: dict[str, Any] = {
    "inlet_plane": np.uint64(2),
    "outlet_plane": np.uint64(8),
    "column_area": np.uint64(12),
    "viscosity": np.float64(0.05),
    "density": np.float64(1.0),
    "spacing": np.float64(1.0),
    "porosity": np.float64(0.5),
    "sphere_radius": np.float64(6.0),
    "cylinder_radius": np.float64(23.0),
}


@pytest.fixture(scope="module")
def permeability() -> ModuleType:
    specification = importlib.util.spec_from_file_location("permeability", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["permeability"] = module
    specification.loader.exec_module(module)
    return module


def channel_step() -> RecordedStep:
    """Velocity 0.01 z in the fluid half of a channel of 4 x 4 cells; the pressure falls by 0.001 z."""
    nz, ny, nx = 10, 4, 4
    solid = np.zeros((nz, ny, nx), np.uint8)
    solid[:, :, 2:] = 1
    velocity = np.zeros((nz, ny, nx, 3), np.float32)
    velocity[..., 2] = np.where(solid == 0, 0.01 * np.arange(nz)[:, None, None], 0)
    pressure = np.where(solid == 0, -0.001 * np.arange(nz)[:, None, None], 99).astype(np.float32)
    variables: dict[str, Any] = {"velocity": velocity, "pressure": pressure, "solid": solid, "iteration": np.array(250)}
    return RecordedStep(10, variables, ATTRIBUTES)


def test_figures_of_a_known_field(permeability: ModuleType) -> None:
    row = permeability.measure(channel_step())
    mean_velocity = 8 * 0.01 * (2 + 3 + 4 + 5 + 6 + 7) / (6 * 12)
    assert (row.step, row.iteration) == (10, 250)
    assert row.superficial_velocity == pytest.approx(mean_velocity, rel=1e-6)
    assert row.pressure_drop == pytest.approx(0.006, rel=1e-5)
    assert row.permeability == pytest.approx(0.05 * mean_velocity * 6 / 0.006, rel=1e-5)


def row_of(permeability: ModuleType, step: int, value: float) -> Any:
    return permeability.Row(step, 25 * step, 0.001, 0.005, value)


def test_rows_of_withdrawn_steps_are_replaced(permeability: ModuleType, tmp_path: Path) -> None:
    history = permeability.History(tmp_path / "permeability.json")
    for step, value in [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (2, 3.5)]:
        history.add(row_of(permeability, step, value))
    history.save()
    again = permeability.History(tmp_path / "permeability.json")
    assert [(row.step, row.permeability) for row in again.rows] == [(0, 1.0), (1, 2.0), (2, 3.5)]


def test_it_has_settled_when_the_value_stays(permeability: ModuleType, tmp_path: Path) -> None:
    history = permeability.History(tmp_path / "permeability.json", window=5, tolerance=1e-2)
    settled = []
    for step in range(20):
        history.add(row_of(permeability, step, 1 - 0.5**step))
        settled.append(history.settled_at)
    # 1 - 2^-7 is the first value within a hundredth of those after it.
    assert settled[-1] == 7
    assert settled[:11] == [None] * 11
    history.add(row_of(permeability, 20, 2.0))
    assert history.settled_at is None


def test_a_flow_at_rest_has_not_settled(permeability: ModuleType, tmp_path: Path) -> None:
    history = permeability.History(tmp_path / "permeability.json", window=3)
    for step in range(6):
        history.add(row_of(permeability, step, 0.0))
    history.save()
    assert json.loads((tmp_path / "permeability.json").read_text())["settled_at"] is None


def test_the_plot_is_written_whole(permeability: ModuleType, tmp_path: Path) -> None:
    history = permeability.History(tmp_path / "permeability.json")
    for step in range(30):
        history.add(row_of(permeability, step, 1 - 0.5**step))
    permeability.plot(history, ATTRIBUTES, tmp_path / "permeability.png")
    with Image.open(tmp_path / "permeability.png") as image:
        assert image.size == (960, 720)
    assert [path.name for path in tmp_path.iterdir()] == ["permeability.png"]


def test_carman_kozeny_of_a_bed_without_a_near_wall(permeability: ModuleType) -> None:
    """e^3 d^2 / (180 (1 - e)^2) = 0.125 * 144 / 45 when the tube is wide."""
    wide = ATTRIBUTES | {"cylinder_radius": 1e9}
    assert permeability.carman_kozeny(wide) == pytest.approx(0.4, rel=1e-6)
    assert permeability.carman_kozeny(ATTRIBUTES) < 0.25
