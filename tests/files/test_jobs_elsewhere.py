# SPDX-License-Identifier: Apache-2.0
"""Jobs' own reservations, and those of `#BB create_persistent`, on another server than the manager's: their whole life,
whoever dies and when.
"""

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
from tests.slurm.cluster import make_python, python_is_usable
from tests.support.munged import why_no_munge

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Ganesha serves any user's files"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("nfs-cp") is None, reason="needs libnfs-utils; ./run test files installs it"),
    pytest.mark.skipif(not python_is_usable(), reason="needs the distribution's Python in the version of this one"),
    pytest.mark.timeout(600),
]

_MIB = 1 << 20
_CAPACITY = 320 * _MIB  # XFS takes 300 MiB or more
_SCRATCH = f"#DW jobdw capacity={_CAPACITY >> 20}MiB access_mode=striped,private type=scratch"


@pytest.fixture(scope="module")
def pool() -> Iterator[AgentPool]:
    """Its manager's server has less room than the other one, so jobs come to lie on that."""
    if reason := why_not() or why_no_munge():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="jobs-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own are closed to other users
        running = stack.enter_context(agent_pool(folder, str(make_python(folder / "python"))))
        running.ask(MANAGER, "create", "ballast", "--on", "node1", "--capacity", "128MiB", "--persistent")
        yield running


@pytest.fixture
def folder(pool: AgentPool) -> Iterator[Path]:
    """One in which the job's user may make names, with something to be staged in."""
    with tempfile.TemporaryDirectory(prefix="job-") as name:
        folder = Path(name)
        for inner in ("", "in", "in/deep"):
            (folder / inner).mkdir(exist_ok=True)
            os.chown(folder / inner, pool.uid, pool.gid)
        (folder / "in/deep/file").write_bytes(os.urandom(3 << 20))
        yield folder


def _home(pool: AgentPool, name: str) -> tuple[str, str]:
    """The server of a reservation, and its uuid."""
    (found,) = [each for each in pool.ask(MANAGER, "ls")["reservations"] if each["name"] == name]
    on_home = pool.run(HOME, "test", "-d", str(pool.tree(found["id"]))).returncode == 0
    return ("node2" if on_home else "node1"), str(found["id"])


def _names(pool: AgentPool) -> list[str]:
    return sorted(each["name"] for each in pool.ask(MANAGER, "ls")["reservations"] if each["name"] != "ballast")


def _owners(pool: AgentPool, tree: Path) -> dict[str, tuple[str, ...]]:
    """Mode, user and group of all folders, to the third one deep."""
    done = pool.run(HOME, "find", str(tree), "-maxdepth", "2", "-type", "d", "-printf", "%P %m %U %G\\n")
    assert done.returncode == 0, done.stderr
    return {name: tuple(words) for name, *words in (line.split(" ") for line in done.stdout.splitlines())}


def _variables(pool: AgentPool, job: int, script: Path, folder: Path) -> dict[str, str]:
    pool.must("paths", "--token", str(job), "--job", script, "--pathfile", folder / "paths")
    return dict(line.split("=", 1) for line in (folder / "paths").read_text().splitlines())


def test_a_job_lives_on_another_server_from_setup_to_teardown(pool: AgentPool, folder: Path) -> None:
    uid, gid = str(pool.uid), str(pool.gid)
    script = pool.script(
        _SCRATCH,
        f"#DW stage_in type=directory source={folder}/in destination=$DW_JOB_STRIPED/in",
        f"#DW stage_out type=directory source=$DW_JOB_STRIPED/ destination={folder}/out",
    )
    with pool.agent():
        pool.set_up(40, script, "node[2-3]", _CAPACITY)
        (name,) = _names(pool)
        server, reservation = _home(pool, name)
        assert server == "node2"
        tree = pool.tree(reservation)
        made: dict[str, Any] = {"": ("750", "0", gid), "40": ("770", uid, gid), "private": ("711", "0", gid)}
        assert {path: facts for path, facts in _owners(pool, tree).items() if path in made} == made
        assert pool.run(HOME, "stat", "-c", "%u %s", f"{tree}/40/in/deep/file").stdout == f"{uid} {3 << 20}\n"
        variables = _variables(pool, 40, script, folder)
        assert variables["DW_JOB_STRIPED"] == f"{pool.node_folder}/40/"
        assert variables["FOREBAY_SERVER"] == "10.94.0.2:7460"
        pool.must("pre_run", "--token", "40", "--job", script)
        made |= {f"private/{node}": ("700", uid, gid) for node in ("node2", "node3")}
        assert {path: facts for path, facts in _owners(pool, tree).items() if path in made} == made
        pool.ask(HOME, "job-begin", "40", "--node", "node2")
        striped, private = variables["DW_JOB_STRIPED"], variables["DW_JOB_PRIVATE"]
        write = f"cat {striped}in/deep/file > {striped}result && echo mine > {private}own"
        as_user = ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups")
        done = pool.run(HOME, *as_user, "sh", "-c", write)
        assert done.returncode == 0, done.stderr
        assert pool.put(3, reservation, pool.exports(reservation)["node3"], "three", "40")
        pool.ask(HOME, "job-end", "40", "--node", "node2")
        pool.end(40, script)
        assert (folder / "out/result").read_bytes() == (folder / "in/deep/file").read_bytes()
        assert (folder / "out/three").read_text() == "three from node 3\n"
        assert pool.nothing_is_shown(reservation)
        assert _names(pool) == []
