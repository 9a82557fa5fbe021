# SPDX-License-Identifier: Apache-2.0
"""Files of a home that is not the manager's server: its agent shows them, whoever dies and when."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.files.agent_pool import HOME, MANAGER, NAME, AgentPool, AgentProcess, agent_pool
from tests.remote.nodes import why_not
from tests.slurm.cluster import wait_for
from tests.support.munged import why_no_munge

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Ganesha serves any user's files"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("nfs-cp") is None, reason="needs libnfs-utils; ./run test files installs it"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentPool]:
    if reason := why_not() or why_no_munge():
        pytest.skip(reason)
    with agent_pool(tmp_path_factory.mktemp("agents")) as running:
        yield running


@pytest.fixture
def agent(pool: AgentPool) -> Iterator[AgentProcess]:
    started = pool.start_agent()
    yield started
    started.end()


@pytest.fixture
def reservation(pool: AgentPool) -> Iterator[str]:
    """The uuid of one whose home is not the manager's server; an agent is to run."""
    uuid = pool.create()
    yield uuid
    pool.ask(MANAGER, "destroy", NAME, "--force")
    assert pool.nothing_is_shown(uuid)


def test_files_of_another_server_are_shown_to_a_jobs_nodes_and_end_with_the_job(
    pool: AgentPool, agent: AgentProcess, reservation: str
) -> None:
    script = pool.begin(17, "node[3-4]")
    exports = pool.exports(reservation)
    assert exports.keys() == {"node3", "node4"}
    assert pool.put(3, reservation, exports["node3"], "three")
    assert pool.put(4, reservation, exports["node4"], "four")
    assert not pool.put(4, reservation, exports["node3"], "five")
    assert pool.listed(reservation) == ["four", "three"]
    pool.end(17, script)
    assert pool.nothing_is_shown(reservation)
