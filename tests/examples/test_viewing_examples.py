# SPDX-License-Identifier: Apache-2.0
"""The examples that draw and publish run as their heads say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.example_programs import demo_reservation, lines_of

__all__ = ["demo_reservation"]

pytestmark = pytest.mark.usefixtures("demo_reservation")


def test_publish_for_paraview(tmp_path: Path) -> None:
    lines = lines_of("10_publish_for_paraview.py", "demo/bump", str(tmp_path / "plots"))
    assert lines == [
        f"6 steps published; open {tmp_path / 'plots' / 'bump.pvd'}",
        "27648 cells from 0 to 4.8: at most 1.00",
    ]


@pytest.mark.timeout(240)
def test_view(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    assert lines_of("11_view.py", "demo/waves", str(folder)) == [
        f"12 steps drawn; {folder / 'waves.mp4'}",
        f"1 steps drawn; {folder / 'last.png'}",
    ]
    assert (folder / "waves.mp4").stat().st_size > 10_000
