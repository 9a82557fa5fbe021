# SPDX-License-Identifier: Apache-2.0
"""Jobs' own reservations, and those of `#BB create_persistent`, on another server than the manager's: their whole life,
whoever dies and when.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.files.agent_pool import HOME, MANAGER, AgentPool, agent_pool
from tests.remote.nodes import why_not
from tests.slurm.cluster import make_python, python_is_usable, wait_for
from tests.support.datawarp_program import AT_JOB_END, IMMEDIATE, DatawarpProgram
from tests.support.munged import why_no_munge
from tests.support.time_limits import seconds

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Ganesha serves any user's files"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("nfs-cp") is None, reason="needs libnfs-utils; ./run test files installs it"),
    pytest.mark.skipif(not python_is_usable(), reason="needs the distribution's Python in the version of this one"),
    pytest.mark.timeout(600),
]

_MIB = 1 << 20
_CAPACITY = 320 * _MIB  # XFS takes 300 MiB or more
_NOBODYS = "5b25bf15-3fd4-42c1-84d2-f10c33f12f0e"
_WRITES_A_STEP = """
import forebay, numpy
with forebay.open("flow", "w") as stream, stream.step() as step:
    step["x"] = numpy.arange(4.0)
"""
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
        # The manager's root, where the token lies, is hidden from this node.
        shutil.copyfile(variables["FOREBAY_TOKEN_FILE"], folder / "token")
        os.chmod(folder / "token", 0o600)
        os.chown(folder / "token", pool.uid, pool.gid)
        token = {key: variables[key] for key in ("FOREBAY_SERVER", "FOREBAY_RESERVATION")}
        token["FOREBAY_TOKEN_FILE"] = str(folder / "token")
        pool.cluster.on(3, *as_user, pool.python, "-c", _WRITES_A_STEP, **token)
        assert [each["name"] for each in pool.ask(HOME, "streams", name)["streams"]] == ["flow"]
        pool.ask(HOME, "job-end", "40", "--node", "node2")
        pool.end(40, script)
        assert (folder / "out/result").read_bytes() == (folder / "in/deep/file").read_bytes()
        assert (folder / "out/three").read_text() == "three from node 3\n"
        assert pool.nothing_is_shown(reservation)
        assert _names(pool) == []


def test_a_program_on_a_node_without_the_manager_stages_its_files(pool: AgentPool, folder: Path) -> None:
    script = pool.script(_SCRATCH)
    program = DatawarpProgram(folder, cast(Any, None), pool.uid, pool.gid)
    with pool.agent():
        pool.set_up(49, script, "node[2-3]", _CAPACITY)
        pool.must("pre_run", "--token", "49", "--job", script)
        variables = _variables(pool, 49, script, folder)
        (name,) = _names(pool)
        server, reservation = _home(pool, name)
        assert server == "node2"
        as_user = ("setpriv", f"--reuid={pool.uid}", f"--regid={pool.gid}", "--clear-groups")
        tree = pool.tree(reservation)
        assert pool.run(HOME, *as_user, "sh", "-c", f"echo result > {tree}/49/result").returncode == 0
        # What $DW_JOB_STRIPED/result leads to. These nodes have no NFS client: a file stands for the mounted one.
        inside = pool.node_folder / ".mounts" / reservation / "49" / "result"
        inside.parent.mkdir(parents=True)
        inside.write_text("another\n")
        wanted = ("FOREBAY_SERVER", "FOREBAY_ROOT", "FOREBAY_TOKEN_FILE")
        environment = {key: variables[key] for key in wanted if key in variables}

        def call(*arguments: str | Path) -> int:
            words = map(str, arguments)
            said = pool.cluster.on(3, *as_user, str(program.path), *words, **environment)
            return int(said.split()[-1])

        assert call("file_out", inside, folder / "copy", IMMEDIATE) == 0
        assert call("wait_file", inside) == 0
        assert (folder / "copy").read_text() == "result\n"
        assert call("file_out", inside, folder / "late", AT_JOB_END) == 0
        assert call("wait_file", inside) == -errno.EDEADLK
        assert call("query_file", f"{pool.node_folder}/.mounts/{_NOBODYS}/x") == -errno.EINVAL
        stranger = ("setpriv", "--reuid=61234", "--regid=61234", "--clear-groups")
        said = pool.cluster.on(3, *stranger, str(program.path), "query_file", str(inside), **environment)
        assert int(said.split()[-1]) == -errno.EINVAL
        pool.end(49, script)
        assert (folder / "late").read_text() == "result\n"
        assert _names(pool) == []
        shutil.rmtree(inside.parents[1])


# crash-matrix: Jobs of Slurm on another server | the manager, killed while the home's agent makes the folders of a job's scratch | the repeated setup makes them, in the same reservation
def test_a_setup_whose_manager_is_killed_goes_on_where_it_was(pool: AgentPool) -> None:
    script = pool.script(_SCRATCH)
    agent = pool.start_agent(FOREBAY_FAIL_POINT="agent.taken=stop")
    pool.slurm_says(41, "PENDING")
    with pool.start_call(*pool.setup_call(41, script, _CAPACITY)) as setup:
        wait_for(lambda: "T (stopped)" in Path(f"/proc/{agent.process.pid}/status").read_text(), "the agent's stop")
        (name,) = _names(pool)
        home = _home(pool, name)
        assert home[0] == "node2"
        assert sorted(_owners(pool, pool.tree(home[1]))) == [""]
        pool.kill_manager()
        agent.kill()
        pool.start_manager()
        with pool.agent():
            words, _ = setup.communicate(timeout=seconds(120))
    assert setup.returncode == 0, words
    with pool.agent():
        pool.set_up(41, script, "node3", _CAPACITY)
        assert _home(pool, name) == home
        assert sorted(_owners(pool, pool.tree(home[1]))) == ["", "41", "private"]
        pool.must("pre_run", "--token", "41", "--job", script)
        pool.end(41, script)
        assert pool.nothing_is_shown(home[1])
        assert _names(pool) == []


# crash-matrix: Jobs of Slurm on another server | the manager, killed while the job runs | the job goes on; its nodes say to the next manager what they have to say, and everything is copied and ended
def test_a_running_jobs_manager_is_killed_and_the_job_is_requeued(pool: AgentPool, folder: Path) -> None:
    script = pool.script(_SCRATCH, f"#DW stage_out type=directory source=$DW_JOB_STRIPED/ destination={folder}/out")
    with pool.agent():
        homes = []
        for run in ("first", "second"):
            pool.set_up(42, script, "node[2-3]", _CAPACITY)
            (name,) = _names(pool)
            homes.append(_home(pool, name))
            pool.must("pre_run", "--token", "42", "--job", script)
            pool.ask(HOME, "job-begin", "42", "--node", "node2")
            pool.kill_manager()
            assert pool.put(3, homes[-1][1], pool.exports(homes[-1][1])["node3"], run, "42")
            pool.start_manager()
            pool.ask(HOME, "job-end", "42", "--node", "node2")
            pool.end(42, script)
            assert "node node3 was fenced" in json.dumps(pool.ask(MANAGER, "why", "42"))
            assert pool.nothing_is_shown(homes[-1][1])
        assert [server for server, _ in homes] == ["node2", "node2"]
        assert homes[0] != homes[1]
        assert sorted(path.name for path in (folder / "out").iterdir()) == ["first", "second"]
        assert _names(pool) == []


# crash-matrix: Jobs of Slurm on another server | no agent runs there when a job is set up | the setup fails with the server's name, nothing of it stays, and the next one chooses another server
def test_without_an_agent_a_job_comes_to_lie_on_the_managers_server(pool: AgentPool) -> None:
    with pool.agent():  # it was there a moment ago
        pass
    script = pool.script(_SCRATCH)
    pool.slurm_says(43, "PENDING")
    status, words = pool.call(*pool.setup_call(43, script, _CAPACITY))
    assert status == 1
    assert "server node2" in words, words
    assert "start `forebay agent` there, as root; the job is released by itself" in words, words
    assert _names(pool) == []
    assert "start `forebay agent` there" in json.dumps(pool.ask(MANAGER, "why", "43"))
    wait_for(lambda: pool.call(*pool.setup_call(43, script, _CAPACITY))[0] == 0, "a setup that chooses another", 60)
    (name,) = _names(pool)
    assert _home(pool, name)[0] == "node1"
    pool.must("teardown", "--token", "43", "--job", script)
    assert _names(pool) == []


# crash-matrix: Jobs of Slurm on another server | no agent runs there when a job that has staged in is set up again | the setup fails, and what was staged in stays
def test_a_setup_that_comes_again_without_an_agent_keeps_what_was_staged_in(pool: AgentPool, folder: Path) -> None:
    script = pool.script(_SCRATCH, f"#DW stage_in type=directory source={folder}/in destination=$DW_JOB_STRIPED/in")
    with pool.agent():
        pool.set_up(49, script, "node3", _CAPACITY)
        home = _home(pool, *_names(pool))
        assert home[0] == "node2"
    status, words = pool.call(*pool.setup_call(49, script, _CAPACITY))
    assert (status, "start `forebay agent` there" in words) == (1, True), words
    assert _home(pool, *_names(pool)) == home
    with pool.agent():
        pool.set_up(49, script, "node3", _CAPACITY)
        assert pool.run(HOME, "ls", f"{pool.tree(home[1])}/49/in/deep").stdout == "file\n"
        pool.must("pre_run", "--token", "49", "--job", script)
        # Its user cancels it in a hurry.
        pool.slurm_says(49, "CANCELLED")
        pool.must("teardown", "--token", "49", "--job", script, "--hurry")
        assert pool.nothing_is_shown(home[1])
        assert _names(pool) == []


# crash-matrix: Jobs of Slurm on another server | its agent is away when the job is over | nothing is copied, or destroyed, which each call says; it is, when an agent is back
def test_without_an_agent_a_job_that_is_over_waits(pool: AgentPool, folder: Path) -> None:
    script = pool.script(_SCRATCH, f"#DW stage_out type=directory source=$DW_JOB_STRIPED/ destination={folder}/out")
    with pool.agent():
        pool.set_up(44, script, "node3", _CAPACITY)
        pool.must("pre_run", "--token", "44", "--job", script)
        (name,) = _names(pool)
        reservation = _home(pool, name)[1]
        assert pool.put(3, reservation, pool.exports(reservation)["node3"], "three", "44")
    pool.slurm_says(44, "COMPLETED")
    pool.must("post_run", "--token", "44", "--job", script)
    for call in ("data_out", "teardown"):
        status, words = pool.call(call, "--token", "44", "--job", script)
        assert (status, "start `forebay agent` there" in words) == (1, True), words
    assert not (folder / "out").exists()
    assert _names(pool) == [name]
    with pool.agent():
        pool.end(44, script)
        assert (folder / "out/three").read_text() == "three from node 3\n"
        assert pool.nothing_is_shown(reservation)
        assert _names(pool) == []


# crash-matrix: Jobs of Slurm on another server | its home is cut off when a job that has not run ends | the teardown fails with the server's name; what it has goes when it is back
def test_a_home_that_is_away_is_named_and_ends_the_job_when_it_is_back(pool: AgentPool) -> None:
    script = pool.script(_SCRATCH)
    with pool.agent():
        pool.set_up(45, script, "node3", _CAPACITY)
        assert _home(pool, *_names(pool))[0] == "node2"
        pool.cluster.must("cut", str(HOME))
        try:
            away = "its files lie on server node2, which is away since"
            wait_for(lambda: away in json.dumps(pool.ask(MANAGER, "why", "45")), "the home to be missed", 60)
            for call in ("pre_run", "teardown"):
                status, words = pool.call(call, "--token", "45", "--job", script)
                assert (status, "server node2" in words) == (1, True), words
        finally:
            pool.cluster.must("heal", str(HOME))
        wait_for(lambda: _names(pool) == [], "the home to destroy it")
        pool.must("teardown", "--token", "45", "--job", script)


def test_what_follows_files_that_setup_did_not_see_copies_them_elsewhere_too(pool: AgentPool, folder: Path) -> None:
    """Slurm's script of directives, which it makes where it has replaced symbols, has no `#FB`."""
    seen = pool.script(_SCRATCH)
    lines = [
        f"#FB stage_out source=$DW_JOB_STRIPED match={pattern} complete={rule} destination={folder}/{rule}"
        for pattern, rule in (("r*", "rename"), ("c*", "closed"))
    ]
    with pool.agent():
        pool.set_up(46, seen, "node3", _CAPACITY)
        server, reservation = _home(pool, *_names(pool))
        assert server == "node2"
        script = pool.script(_SCRATCH, *lines)
        pool.must("pre_run", "--token", "46", "--job", script)
        for file in ("r1", "c1"):
            assert pool.put(3, reservation, pool.exports(reservation)["node3"], file, "46")
        pool.end(46, script)
        for path in (folder / "rename/r1", folder / "closed/c1"):
            assert path.read_text() == f"{path.name} from node 3\n"
        # One that shows them to its setup lies where they are seen as they appear.
        pool.set_up(47, script, "node3", _CAPACITY)
        (name,) = _names(pool)
        assert _home(pool, name)[0] == "node1"
        pool.must("teardown", "--token", "47", "--job", script)


def test_create_persistent_makes_one_on_another_server(pool: AgentPool) -> None:
    size = f"forebay:{_CAPACITY}"
    create = ("create_persistent", "-c", "SLURM", "-t", "shelf", "-u", str(pool.uid), "-C", size, "-a", "striped")
    with pool.agent():
        for _ in range(2):
            assert pool.must(*create, "-T", "scratch") == "created shelf\n"
        server, reservation = _home(pool, "shelf")
        assert server == "node2"
        nodes = pool.must("show_instances")
        assert '"capacity"' in nodes
        script = pool.script("#DW persistentdw name=shelf")
        pool.begin(48, "node3", script)
        assert pool.put(3, reservation, pool.exports(reservation)["node3"], "three")
        pool.end(48, script)
        pool.must("teardown", "--token", "shelf", "--job", script, "--hurry")
        assert pool.nothing_is_shown(reservation)
        assert _names(pool) == []
