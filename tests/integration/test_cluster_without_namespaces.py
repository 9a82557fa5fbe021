# SPDX-License-Identifier: Apache-2.0
"""`forebay cluster` as an ordinary user has it: nodes that share the machine's network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import CommandLineCluster

pytestmark = pytest.mark.instance

WRITE = """
import forebay
with forebay.open("run1/flow", "w") as stream, stream.step() as step:
    step["x"] = 3
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CommandLineCluster]:
    """Two nodes."""
    with CommandLineCluster(tmp_path / "cluster", "--nodes", "2", "--capacity", "64MiB") as up:
        yield up


@pytest.mark.timeout(180)
def test_nodes_write_to_each_other_and_can_be_killed(cluster: CommandLineCluster, tmp_path: Path) -> None:
    status = cluster.ask("status")
    assert not status["namespaces"]
    server = status["nodes"][0]["server"]
    cluster.forebay(1, "create", "run1", "--capacity", "32MiB")
    token = tmp_path / "token"
    cluster.forebay(1, "token", "create", "run1", "--rights", "read,write", "--output", str(token))
    remote = {"FOREBAY_SERVER": server, "FOREBAY_TOKEN_FILE": str(token)}
    cluster.on(2, sys.executable, "-c", WRITE, **remote)
    assert "flow" in cluster.forebay(1, "streams", "run1")

    refused = cluster.run("cut", "2")
    assert refused.returncode != 0
    assert "--netns" in refused.stderr
    cluster.must("kill", "1")
    assert [node["processes"] > 0 for node in cluster.ask("status")["nodes"]] == [False, True]
    assert cluster.ask("heal", "1")["serves"]
    assert "flow" in cluster.forebay(2, "streams", "run1", **remote)
    unknown = cluster.run("kill", "3")
    assert unknown.returncode != 0
    assert "no node 3" in unknown.stderr
    again = cluster.run("up", "--nodes", "2")
    assert again.returncode != 0
    assert "forebay cluster down" in again.stderr


def test_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    cluster = CommandLineCluster(tmp_path)
    for arguments in (("up", "--nodes", "1"), ("down",)):
        assert cluster.run(*arguments).returncode != 0
    assert (tmp_path / "thesis.txt").read_text() == "important"
