# SPDX-License-Identifier: Apache-2.0
"""Files of another server than the manager's that a site's own commands show: its agent runs those of the home. A
stand-in records them, and mounts a folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.files.agent_pool import HOME, MANAGER, AgentPool, agent_pool
from tests.remote.nodes import why_not
from tests.slurm.cluster import make_python, python_is_usable
from tests.support.munged import why_no_munge
from tests.support.site_engine import SiteEngine

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root mounts"),
    pytest.mark.skipif(not python_is_usable(), reason="needs the distribution's Python in the version of this one"),
    pytest.mark.timeout(600),
]

_CAPACITY = 320 << 20
_SCRATCH = "#DW jobdw capacity=320MiB access_mode=striped type=scratch"


@pytest.fixture(scope="module")
def site() -> Iterator[SiteEngine]:
    with tempfile.TemporaryDirectory(prefix="site-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield SiteEngine(folder / "site")


@pytest.fixture(scope="module")
def pool(site: SiteEngine) -> Iterator[AgentPool]:
    """Its manager's server has less room than the other one, so jobs come to lie on that."""
    if reason := why_not() or why_no_munge():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="elsewhere-", dir="/var/tmp") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        running = stack.enter_context(agent_pool(folder, str(make_python(folder / "python")), site=site))
        running.ask(MANAGER, "create", "ballast", "--on", "node1", "--capacity", "128MiB", "--persistent")
        yield running


@pytest.fixture
def outside(pool: AgentPool) -> Iterator[Path]:
    """A folder of the job's user, with something to be staged in."""
    with tempfile.TemporaryDirectory(prefix="outside-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "input").write_bytes(os.urandom(1 << 20))
        for path in (folder, folder / "input"):
            os.chown(path, pool.uid, pool.gid)
        yield folder


def _job(pool: AgentPool) -> tuple[str, str]:
    """Name and uuid of the reservation of the only job; it lies on the home."""
    (found,) = [each for each in pool.ask(MANAGER, "ls")["reservations"] if each["name"] != "ballast"]
    assert pool.run(HOME, "test", "-d", str(pool.tree(found["id"]))).returncode == 0
    return found["name"], found["id"]


def _nothing_is_left(pool: AgentPool, site: SiteEngine, reservation: str) -> None:
    for node in (MANAGER, HOME):
        assert reservation not in pool.run(node, "cat", "/proc/mounts").stdout
        assert not (pool.instance(node).root / "drivers" / reservation).exists()
    assert [each["name"] for each in pool.ask(MANAGER, "ls")["reservations"]] == ["ballast"]
    for left in (site.folder / "tree").iterdir():  # a real engine's command would have removed them
        shutil.rmtree(left)


# crash-matrix: Files of a home on another server that a site's commands show | a node, which never says that it is clean | the home's agent has it fenced before anything is copied; the others are released, and nothing is left
def test_a_job_lives_on_another_server_by_a_sites_commands(pool: AgentPool, site: SiteEngine, outside: Path) -> None:
    site.forget_calls()
    script = pool.script(
        _SCRATCH,
        f"#DW stage_in type=file source={outside}/input destination=$DW_JOB_STRIPED/input",
        f"#DW stage_out type=directory source=$DW_JOB_STRIPED/ destination={outside}/out",
    )
    as_user = ("setpriv", f"--reuid={pool.uid}", f"--regid={pool.gid}", "--clear-groups")
    with pool.agent():
        pool.set_up(60, script, "node[1,3]", _CAPACITY)
        _, reservation = _job(pool)
        assert pool.run(HOME, "test", "-s", f"{pool.tree(reservation)}/60/input").returncode == 0
        pool.must("pre_run", "--token", "60", "--job", script)
        pool.ask(MANAGER, "job-begin", "60", "--node", "node1")
        striped = f"{pool.node_folder}/60"
        done = pool.run(MANAGER, *as_user, "sh", "-ec", f"cat {striped}/input > {striped}/from-1")
        assert done.returncode == 0, done.stderr
        tree = pool.tree(reservation) / "60"
        done = pool.run(HOME, "cmp", str(tree / "input"), str(tree / "from-1"))
        assert done.returncode == 0, done.stdout + done.stderr
        pool.ask(MANAGER, "job-end", "60", "--node", "node1")
        pool.end(60, script)
        assert (outside / "out/from-1").read_bytes() == (outside / "input").read_bytes()
        assert (outside / "out/fenced").read_text() == "node3\n"
        assert "node node3 was fenced" in json.dumps(pool.ask(MANAGER, "why", "60"))
        stage = ("start", "ready", "admit forebay.stages", "mount", "unmount", "release forebay.stages")
        operations = site.operations()
        operations[10:12] = sorted(operations[10:12])
        assert operations == [
            *("prepare", "start", "ready", "mount"),
            *stage,
            *("admit node1", "admit node3", "mount", "unmount", "release node1", "fence node3"),
            *stage,
            *("unmount", "stop", "destroy"),
        ]
        _nothing_is_left(pool, site, reservation)


def _killed(pool: AgentPool, places: Sequence[str], call: Callable[[], tuple[int, str]]) -> None:
    """An operation dies at each of them, so the call fails; the last one's does not."""
    for place in places:
        with pool.agent(FOREBAY_FAIL_POINT=place):
            status, words = call()
            assert status == 1, f"{place}: {words}"
    with pool.agent():
        status, words = call()
        assert status == 0, f"{words}\n{pool.logs()}"


# crash-matrix: Files of a home on another server that a site's commands show | any operation of the home's agent, killed after each of its commands | the same call of Slurm's succeeds when it is repeated, and nothing is left
def test_an_operation_that_is_killed_after_a_command_is_repeated(
    pool: AgentPool, site: SiteEngine, outside: Path
) -> None:
    site.forget_calls()
    script = pool.script(_SCRATCH, f"#DW stage_out type=directory source=$DW_JOB_STRIPED/ destination={outside}/out")
    job = ("--token", "61", "--job", script)
    pool.slurm_says(61, "PENDING")
    with pool.agent():  # the manager knows that one is there
        pool.ask(MANAGER, "doctor")
    making = [f"files.commands.{name}" for name in ("prepare", "start", "ready", "mounting", "mount")]
    _killed(pool, ["files.prepare.state", *making], lambda: pool.call(*pool.setup_call(61, script, _CAPACITY)))
    _, reservation = _job(pool)
    with pool.agent():
        pool.must("data_in", *job)
    pool.slurm_says(61, "RUNNING", "node[3-4]")
    _killed(pool, ["files.admit.state", "files.commands.admit"], lambda: pool.call("pre_run", *job))
    with pool.agent():
        assert not pool.report(61, 3, "clean")
    pool.slurm_says(61, "COMPLETED")
    pool.must("post_run", *job)  # without an agent
    ending = ["files.commands.release", "files.stop.state", "files.commands.fence"]
    _killed(pool, ending, lambda: pool.call("data_out", *job))
    assert (outside / "out/fenced").read_text() == "node4\n"
    ending = [
        "files.destroy.state",
        "files.commands.unmount",
        "files.destroy.unmounted",
        "files.commands.stop",
        "files.commands.destroy",
    ]
    _killed(pool, ending, lambda: pool.call("teardown", *job))
    _nothing_is_left(pool, site, reservation)
    operations = site.operations()
    assert operations[-1] == "destroy"
    assert "fence node3" not in operations
