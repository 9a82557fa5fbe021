# SPDX-License-Identifier: Apache-2.0
"""What programs on two nodes may rely on in files that the driver `juicefs` stripes: the tests of the driver `nfs`,
each with both programs on one node, on two nodes, and at the home and on a node.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.files import test_consistency as shared
from tests.files.shown_tree import USER, Actor, Actors
from tests.striped.striped_tree import StripedTree, striped_tree

pytestmark = pytest.mark.timeout(600)

#: The home's server is node 1; it has a mount of its own, as all nodes have.
_NODES = {"n1": 1, "n3": 3, "n4": 4}
_PAIRS = {"one-node": ("n3", "n3"), "two-nodes": ("n3", "n4"), "home-and-node": ("n1", "n3")}

# Each of its tests asks for the fixtures by name, and finds those of this file.
globals().update({name: test for name, test in vars(shared).items() if name.startswith("test_")})
#: What JuiceFS does otherwise than NFS, between two nodes. docs/operations/files.md tells users.
_DIFFERS = {
    "test_one_of_two_makes_a_folder_or_a_link_or_renames": "both may be told that they have removed a name",
    "test_a_file_that_another_node_removes_stays_while_it_is_open": "its blocks are removed at once",
    "test_lines_that_two_append_under_a_lock_are_all_there": "a file that is open is not looked at anew under a lock",
    "test_a_file_that_is_open_is_looked_at_anew_under_a_lock": "a file that is open is not looked at anew under a lock",
    "test_a_full_tree_says_so_and_space_comes_back": "a node learns late that another one has made room",
    "test_programs_find_what_they_need": "SQLite looks at an open file anew under a lock",
}
_DIFFERS_EVERYWHERE = {
    "test_what_was_synced_is_at_the_home": "the kernel does not pass `syncfs` on to FUSE; `fsync` and `close` are",
}
left, right, name = shared.left, shared.right, shared.name


@dataclass
class _Node:
    """Programs of all nodes are this machine's."""

    def run(self, command: str) -> None:
        """Runs it."""
        subprocess.run(["sh", "-c", command], check=True)


@dataclass
class _Shown:
    """The striped tree, as those tests ask for it."""

    striped: StripedTree
    actors: Actors
    guests: dict[str, _Node] = field(default_factory=lambda: dict.fromkeys(_NODES, _Node()))

    @property
    def tree(self) -> Path:
        """As the home sees it."""
        return self.striped.place(1)

    def actor(self, node: str) -> Actor:
        """A program that uses a node's mount."""
        return self.actors.here(self.striped.place(_NODES[node]), USER, node)


@pytest.fixture(scope="module")
def shown() -> Iterator[_Shown]:
    with tempfile.TemporaryDirectory(prefix="consistency-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        with striped_tree(Path(folder)) as striped, Actors("127.0.0.1") as actors:
            striped.admit(*_NODES.values())
            for node in _NODES.values():
                striped.mount(node)
            striped.place(1).chmod(0o777)
            yield _Shown(striped, actors)


@pytest.fixture(scope="module", params=_PAIRS)
def pair(shown: _Shown, request: pytest.FixtureRequest) -> tuple[Actor, Actor]:
    """Two programs."""
    first, second = (shown.actor(node) for node in _PAIRS[request.param])
    return first, second


@pytest.fixture(autouse=True)
def _differs(request: pytest.FixtureRequest) -> None:
    """Expects a failure where the driver promises less."""
    test = request.node.originalname
    pair = request.node.callspec.params["pair"]
    reason = _DIFFERS_EVERYWHERE.get(test) or (_DIFFERS.get(test) if pair != "one-node" else None)
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
