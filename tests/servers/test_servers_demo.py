# SPDX-License-Identifier: Apache-2.0
"""`./run demo --servers` over a small grid: a reservation over three servers, one of which is killed and healed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_demo import run_node_demo


@pytest.mark.timeout(300)
def test_everything_that_the_demo_shows_on_three_servers_holds(nodes_possible: None, tmp_path: Path) -> None:
    printed, summary = run_node_demo("--servers", tmp_path / "out")
    assert "the server of node 3 is killed" in printed
    assert summary["server_away"]["steps"] > 0
