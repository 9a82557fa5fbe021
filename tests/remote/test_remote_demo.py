# SPDX-License-Identifier: Apache-2.0
"""`./run demo --remote` over a small grid: server, simulation and consumers on three nodes, one of them cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_demo import run_node_demo


@pytest.mark.timeout(300)
def test_everything_that_the_demo_shows_on_three_nodes_holds(nodes_possible: None, tmp_path: Path) -> None:
    printed, summary = run_node_demo("--remote", tmp_path / "out")
    assert "node 3, with rendering, is cut off" in printed
    assert summary["rendering_cut_off"]["steps"] > 0
