# SPDX-License-Identifier: Apache-2.0
"""Streams of a job that lie on several servers, in a pool whose configuration says so; files on one of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.files.agent_pool import HOME, MANAGER, AgentPool, agent_pool
from tests.remote.nodes import why_not
from tests.slurm.cluster import make_python, python_is_usable, wait_for
from tests.support.munged import why_no_munge
from tests.support.staging_server import forebayd

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Ganesha serves any user's files"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(not python_is_usable(), reason="needs the distribution's Python in the version of this one"),
    pytest.mark.timeout(600),
]

_MIB = 1 << 20
_CAPACITY = 320 * _MIB  # XFS takes 300 MiB or more
_SCRIPT = (
    f"#DW jobdw capacity={_CAPACITY >> 20}MiB access_mode=striped type=scratch",
    "#FB stage_out stream=flow destination={folder}/steps format=bp5",
)
#: Above the stripe size of 8 MiB, so that a writer on a node without a server spreads it.
_ELEMENTS = 3 * _MIB
_WRITES = f"""
import forebay, numpy
with forebay.open("flow", "w") as stream:
    for number in range(2):
        with stream.step() as step:
            step["x"] = numpy.arange({_ELEMENTS}.0) + number
"""
_READS = f"""
import forebay, numpy
with forebay.open("flow", verify="read") as stream:
    for number in range(2):
        assert numpy.array_equal(stream[number]["x"][...], numpy.arange({_ELEMENTS}.0) + number), number
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[AgentPool]:
    """Two servers; a job's reservation takes units of 16 MiB from both."""
    if reason := why_not() or why_no_munge():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="striped-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own are closed to other users
        python = str(make_python(folder / "python"))
        yield stack.enter_context(agent_pool(folder, python, 'striped = true\ngranularity = "16MiB"\n'))


@pytest.fixture
def folder(pool: AgentPool) -> Iterator[Path]:
    """One in which the job's user may make names."""
    with tempfile.TemporaryDirectory(prefix="job-") as name:
        os.chown(name, pool.uid, pool.gid)
        yield Path(name)


def _reservations(pool: AgentPool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pool.ask(MANAGER, "ls")["reservations"]
    return found


def _fragments(pool: AgentPool) -> dict[str, str]:
    """The size of each, by its server, as `dwstat` tells it."""
    done = pool.run(MANAGER, str(forebayd().parents[1] / "workflows" / "dwstat"), "fragments")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:] if line.strip()]
    return {words[5]: words[3] for words in lines}


def _stored_bytes(pool: AgentPool, node: int, reservation: str) -> int:
    """What the segments on a server take."""
    folder = pool.instance(node).root / "reservations" / reservation
    done = pool.run(node, "du", "--summarize", "--block-size=1", str(folder / "segments"))
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


def test_a_jobs_streams_lie_on_all_servers_and_its_files_on_one(pool: AgentPool, folder: Path) -> None:
    script = pool.script(*(line.format(folder=folder) for line in _SCRIPT))
    with pool.agent():
        pool.set_up(40, script, "node[3-4]", _CAPACITY)
        (made,) = _reservations(pool)
        assert len(made["members"]) == 2
        pool.set_up(40, script, "node[3-4]", _CAPACITY)  # as Slurm does it that had no answer
        assert [each["id"] for each in _reservations(pool)] == [made["id"]]
        wait_for(lambda: sorted(_fragments(pool).values()) == ["320MiB", "80MiB"], "dwstat to name both servers")
        assert sorted(_fragments(pool)) == ["node1", "node2"]
        pool.must("pre_run", "--token", "40", "--job", script)
        pool.must("paths", "--token", "40", "--job", script, "--pathfile", folder / "paths")
        variables = dict(line.split("=", 1) for line in (folder / "paths").read_text().splitlines())
        # The manager's root, where the token lies, is hidden from these nodes.
        shutil.copyfile(variables["FOREBAY_TOKEN_FILE"], folder / "token")
        os.chmod(folder / "token", 0o600)
        os.chown(folder / "token", pool.uid, pool.gid)
        token = {key: variables[key] for key in ("FOREBAY_SERVER", "FOREBAY_RESERVATION")}
        token["FOREBAY_TOKEN_FILE"] = str(folder / "token")
        as_user = ("setpriv", f"--reuid={pool.uid}", f"--regid={pool.gid}", "--clear-groups")
        pool.cluster.on(3, *as_user, pool.python, "-c", _WRITES, **token)
        pool.cluster.on(4, *as_user, pool.python, "-c", _READS, **token)
        assert all(_stored_bytes(pool, node, made["id"]) >= 16 * _MIB for node in (MANAGER, HOME))
        pool.end(40, script)
        assert len(list((folder / "steps").glob("flow.*.bp"))) == 2
    assert _reservations(pool) == []
    for node in (MANAGER, HOME):
        left = pool.run(node, "ls", str(pool.instance(node).root / "reservations"))
        assert left.stdout == "", left.stdout
