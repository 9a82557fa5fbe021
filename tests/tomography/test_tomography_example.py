# SPDX-License-Identifier: Apache-2.0
"""The example of tomography runs as its head says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.example_programs import demo_reservation, lines_of

__all__ = ["demo_reservation"]

pytestmark = pytest.mark.usefixtures("demo_reservation")


@pytest.mark.timeout(240)
def test_tomography(tmp_path: Path) -> None:
    lines = lines_of("09_tomography.py", "demo/scan", "--out", str(tmp_path / "slices"))
    assert [line.partition(",")[0] for line in lines] == [f"{angles} projections" for angles in range(30, 181, 30)]
    assert lines[-1].endswith("at column 80.0")
    assert len(list((tmp_path / "slices").glob("after_*.png"))) == 6
