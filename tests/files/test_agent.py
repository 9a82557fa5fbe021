# SPDX-License-Identifier: Apache-2.0
"""Files of a home that is not the manager's server: its agent shows them, whoever dies and when."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from forebay.workflows.files.daemons import find_daemons
from tests.files.agent_pool import HOME, MANAGER, NAME, AgentPool, agent_pool
from tests.remote.nodes import why_not
from tests.slurm.cluster import wait_for
from tests.support.munged import why_no_munge

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Ganesha serves any user's files"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("nfs-cp") is None, reason="needs libnfs-utils; ./run test files installs it"),
    pytest.mark.timeout(600),
]


_T = TypeVar("_T")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentPool]:
    if reason := why_not() or why_no_munge():
        pytest.skip(reason)
    with agent_pool(tmp_path_factory.mktemp("agents")) as running:
        yield running


@pytest.fixture
def reservation(pool: AgentPool) -> Iterator[str]:
    """The uuid of one whose home is not the manager's server."""
    uuid = pool.create()
    yield uuid
    with pool.agent():
        pool.ask(MANAGER, "destroy", NAME, "--force")
    assert pool.nothing_is_shown(uuid)


def test_files_of_another_server_are_shown_to_a_jobs_nodes_and_end_with_the_job(
    pool: AgentPool, reservation: str
) -> None:
    with pool.agent():
        script = pool.begin(17, "node[3-4]")
        exports = pool.exports(reservation)
        assert exports.keys() == {"node3", "node4"}
        assert pool.put(3, reservation, exports["node3"], "three")
        assert pool.put(4, reservation, exports["node4"], "four")
        assert not pool.put(4, reservation, exports["node3"], "five")
        assert pool.listed(reservation) == ["four", "three"]
        pool.end(17, script)
        assert pool.nothing_is_shown(reservation)


def test_a_job_on_the_home_and_another_node_uses_the_same_files(
    pool: AgentPool, reservation: str, tmp_path: Path
) -> None:
    """By all of Slurm's calls. The other node, whose kernel has no NFS client, does not come to its epilog."""
    with pool.agent():
        script = pool.begin(18, "node[2-3]")
        pool.must("paths", "--token", "18", "--job", script, "--pathfile", tmp_path / "paths")
        variables = dict(line.split("=", 1) for line in (tmp_path / "paths").read_text().splitlines())
        place = variables[f"DW_PERSISTENT_STRIPED_{NAME}"]
        assert place == f"{pool.node_folder}/.mounts/{reservation}/"
        pool.ask(HOME, "job-begin", "18", "--node", "node2")
        assert pool.put(3, reservation, pool.exports(reservation)["node3"], "three")
        done = pool.run(HOME, "sh", "-c", f"cat {place}three && echo here > {place}two")
        assert done.stdout == "three from node 3\n", done.stderr
        pool.ask(HOME, "job-end", "18", "--node", "node2")
        assert pool.run(HOME, "ls", place).returncode != 0
        pool.end(18, script)
        assert "node node3 was fenced" in json.dumps(pool.ask(MANAGER, "why", "18"))
        assert pool.listed(reservation) == ["three", "two"]


def test_who_has_files_of_another_server_open_is_not_asked_here(pool: AgentPool, reservation: str) -> None:
    there = f"$DW_PERSISTENT_STRIPED_{NAME}/data"
    line = f"#FB stage_out match=* source={there} destination=/tmp/out"
    pool.must("job_process", "--job", pool.script(f"#DW persistentdw name={NAME}", line))
    script = pool.script(f"#DW persistentdw name={NAME}", f"{line} complete=closed")
    status, words = pool.call("job_process", "--job", script)
    reason = f"the files of {NAME} lie on server node2, and who has them open is seen there alone; use complete rename"
    assert (status, words[: len(reason)]) == (1, reason)
    for more in ((), ("--follow",)):
        arguments = ("stage-out", f"{NAME}:data", "/tmp/out", "--match", "*", "--complete", "closed", *more)
        done = pool.forebay(MANAGER, *arguments)
        assert done.returncode == 1
        assert reason in done.stderr


# crash-matrix: Files of a home on another server | the manager, killed while a stage follows them by its mount | the stage goes on by the next manager's: what was copied stays, and what comes is copied
def test_files_of_another_server_are_followed_as_they_appear(pool: AgentPool, reservation: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    target = tmp_path / "out"
    target.mkdir()
    tree = pool.tree(reservation)

    def write(name: str, *, whole: bool = True) -> None:
        done = pool.run(HOME, "sh", "-ec", f"mkdir -p {tree}/run/{name}; echo {name} > {tree}/run/{name}/data")
        assert done.returncode == 0, done.stderr
        if whole:
            assert pool.run(HOME, "touch", f"{tree}/run/{name}/done").returncode == 0

    def states() -> list[str]:
        stages = pool.ask(MANAGER, "stages")["stages"]
        return [each["state"] for each in stages if each["job"].get("destination") == str(target)]

    def number() -> str:
        stages = pool.ask(MANAGER, "stages")["stages"]
        return str(next(each["id"] for each in stages if each["job"].get("destination") == str(target)))

    with pool.agent():
        follow = ("--match", "chk*", "--complete", "marker=done", "--follow", "--no-wait")
        pool.ask(MANAGER, "stage-out", f"{NAME}:run", str(target), *follow)
        write("chk1")
        write("chk2", whole=False)
        wait_for((target / "chk1/data").exists, "the first one")
        pool.kill_manager()
        write("chk3")
        pool.start_manager()
        wait_for((target / "chk3/data").exists, "what came while no manager ran")
        assert not (target / "chk2").exists()
        write("chk2")
        pool.ask(MANAGER, "stages", "cancel", number())  # it takes what is complete
        wait_for(lambda: states() == ["succeeded"], "its end")
        assert [path.read_text() for path in sorted(target.glob("chk*/data"))] == ["chk1\n", "chk2\n", "chk3\n"]
        assert pool.nothing_is_shown(reservation)
        assert str(pool.instance(MANAGER).root / "stage-trees") not in pool.run(MANAGER, "cat", "/proc/mounts").stdout


@pytest.mark.parametrize("line", ["#DW stage_in type=directory", "#DW stage_out type=directory"])
def test_a_job_may_stage_files_of_another_server(pool: AgentPool, reservation: str, line: str) -> None:
    """What its stages do, as those of a command: below."""
    there = f"$DW_PERSISTENT_STRIPED_{NAME}/data"
    source, destination = ("/tmp/in", there) if "stage_in" in line else (there, "/tmp/out")
    script = pool.script(f"#DW persistentdw name={NAME}", f"{line} source={source} destination={destination}")
    pool.must("job_process", "--job", script)


def _interrupted(pool: AgentPool, place: str, call: Callable[[], _T]) -> _T:
    """What the call says, whose agent dies there, and whose work the next one does."""
    mortal = pool.start_agent(FOREBAY_FAIL_POINT=place)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(call)
        assert mortal.wait() == -signal.SIGKILL
        following = pool.start_agent()
        said = answer.result()
    following.end()
    return said


# crash-matrix: Files of a home on another server | `forebay agent`, killed with any call that it has taken, before at `agent.taken` or after at `agent.done` it has carried it out | the next agent of that server carries it out, and the call succeeds
@pytest.mark.parametrize("place", ["agent.taken", "agent.done"])
def test_what_a_killed_agent_was_asked_for_the_next_one_does(pool: AgentPool, place: str) -> None:
    uuid = pool.create()
    script = pool.script(f"#DW persistentdw name={NAME}")
    for job, nodes in ((20, "node[2-4]"), (21, "node4")):
        pool.set_up(job, script, nodes)
        _interrupted(pool, place, lambda: pool.must("pre_run", "--token", str(job), "--job", script))  # noqa: B023
    exports = pool.exports(uuid)
    assert exports.keys() == {"node2", "node3", "node4"}
    assert pool.put(3, uuid, exports["node3"], "before")
    assert _interrupted(pool, place, lambda: pool.report(20, 3, "unclean"))
    assert not pool.put(3, uuid, exports["node3"], "fenced")
    assert pool.put(4, uuid, exports["node4"], "other")
    assert not any(pool.report(20, node, "clean") for node in (2, 4))
    pool.slurm_says(20, "COMPLETED")
    _interrupted(pool, place, lambda: pool.must("post_run", "--token", "20", "--job", script))
    assert pool.exports(uuid) == {"node4": exports["node4"]}
    pool.slurm_says(21, "COMPLETED")
    _interrupted(pool, place, lambda: pool.must("post_run", "--token", "21", "--job", script))
    assert not pool.daemons(uuid)
    assert not pool.put(4, uuid, exports["node4"], "late")
    with pool.agent():
        for job in (20, 21):
            pool.must("data_out", "--token", str(job), "--job", script)
        pool.must("teardown", "--token", "20", "--job", script)
    _interrupted(pool, f"{place}:2", lambda: pool.must("teardown", "--token", "21", "--job", script))
    assert pool.nothing_is_shown(uuid)
    assert pool.listed(uuid) == ["before", "other"]
    _interrupted(pool, place, lambda: pool.ask(MANAGER, "destroy", NAME, "--force"))
    assert list(pool.drivers.glob("*.exports")) == []


# crash-matrix: Files of a home on another server | an operation of its driver, killed | the call fails, and the same call again succeeds
def test_an_operation_that_is_killed_fails_its_call_and_is_repeated(pool: AgentPool, reservation: str) -> None:
    script = pool.script(f"#DW persistentdw name={NAME}")
    pool.set_up(30, script, "node3")
    with pool.agent(FOREBAY_FAIL_POINT="files.admit.state"):
        status, words = pool.call("pre_run", "--token", "30", "--job", script)
        assert status == 1
        assert words.startswith("admit of files has failed"), words
    with pool.agent():
        pool.must("pre_run", "--token", "30", "--job", script)
        assert pool.put(3, reservation, pool.exports(reservation)["node3"], "data")
        pool.end(30, script)


# crash-matrix: Files of a home on another server | `forebay agent`, killed while an operation of it goes on | the next agent waits for it, and does the same; what the dead one would still do is refused
def test_an_operation_that_outlives_its_agent_does_no_harm(pool: AgentPool, reservation: str) -> None:
    script = pool.script(f"#DW persistentdw name={NAME}")
    pool.set_up(31, script, "node[3-4]")
    agent = pool.start_agent(FOREBAY_FAIL_POINT="files.admit.state=stop")
    with ThreadPoolExecutor(1) as thread:
        begun = thread.submit(pool.must, "pre_run", "--token", "31", "--job", script)
        left = pool.stopped_operation()
        older = (pool.drivers / "incarnation").read_text()
        agent.kill()
        with pool.agent():
            os.kill(left, signal.SIGCONT)
            begun.result()
            exports = pool.exports(reservation)
            assert pool.put(4, reservation, exports["node4"], "data")
            before = pool.state(reservation)
            done = pool.run(
                HOME,
                *(sys.executable, "-P", "-m", "forebay.workflows.files", "stop"),
                FOREBAY_FILES_DRIVER="nfs",
                FOREBAY_FILES_FOLDER=str(pool.drivers / reservation),
                FOREBAY_FILES_RESERVATION=reservation,
                FOREBAY_FILES_INCARNATION=older.strip(),
                FOREBAY_FILES_SECONDS="30",
            )
            assert "newer manager has taken over" in done.stdout
            assert pool.state(reservation) == before
            assert pool.put(4, reservation, exports["node4"], "more")
            pool.end(31, script)


# crash-matrix: Files of a home on another server | the network, cut before the agent's answer has come | the agent says it again, and the call succeeds
def test_an_answer_that_is_lost_on_the_way_comes_again(pool: AgentPool, reservation: str) -> None:
    script = pool.script(f"#DW persistentdw name={NAME}")
    pool.set_up(32, script, "node3")
    with pool.agent(FOREBAY_FAIL_POINT="files.admit.export=stop"), ThreadPoolExecutor(1) as thread:
        begun = thread.submit(pool.must, "pre_run", "--token", "32", "--job", script)
        operation = pool.stopped_operation()
        pool.cluster.must("cut", str(HOME))
        try:
            os.kill(operation, signal.SIGCONT)
            wait_for(lambda: not pool.operations(), "the operation to end")
        finally:
            pool.cluster.must("heal", str(HOME))
        begun.result()
        assert pool.put(3, reservation, pool.exports(reservation)["node3"], "data")
        pool.end(32, script)


# crash-matrix: Files of a home on another server | the manager, killed while its agent carries out a call | the same call again succeeds; exports that are open stay so
def test_a_manager_that_is_killed_finds_its_agent_again(pool: AgentPool, reservation: str) -> None:
    script = pool.script(f"#DW persistentdw name={NAME}")
    with pool.agent():
        pool.begin(33, "node3", script)
        exports = pool.exports(reservation)
        pool.set_up(34, script, "node4")
        with pool.start_call("pre_run", "--token", "34", "--job", script):
            wait_for(lambda: bool(pool.operations()), "an operation")
            (operation,) = pool.operations()
            os.kill(operation, signal.SIGSTOP)
            pool.kill_manager()
            assert pool.put(3, reservation, exports["node3"], "alone")
            os.kill(operation, signal.SIGCONT)
            pool.start_manager()
        pool.must("pre_run", "--token", "34", "--job", script)
        assert pool.exports(reservation)["node3"] == exports["node3"]
        assert pool.put(4, reservation, pool.exports(reservation)["node4"], "later")
        for job in (33, 34):
            pool.end(job, script)
        assert pool.nothing_is_shown(reservation)


# crash-matrix: Files of a home on another server | its NFS server, killed while the manager is away | its agent starts it again, with the exports that are open
def test_an_agent_starts_an_nfs_server_again_without_the_manager(pool: AgentPool, reservation: str) -> None:
    with pool.agent():
        script = pool.begin(35, "node3")
        before = set(pool.daemons(reservation))
        pool.kill_manager()
        for pid in find_daemons(pool.drivers / reservation / "ganesha.conf"):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: len(set(pool.daemons(reservation)) - before) == 2, "the NFS server to be back", 60)
        export = pool.exports(reservation)["node3"]
        wait_for(lambda: pool.put(3, reservation, export, "data"), "the server's grace to end")
        pool.start_manager()
        pool.end(35, script)


# crash-matrix: Files of a home on another server | no agent runs there | a job that needs it is held, which says so; `forebay doctor` says so, too; exports that are open stay so
def test_without_an_agent_jobs_are_told_so_and_what_is_shown_stays(pool: AgentPool, reservation: str) -> None:
    script = pool.script(f"#DW persistentdw name={NAME}")
    with pool.agent():
        pool.begin(36, "node3", script)
    assert pool.put(3, reservation, pool.exports(reservation)["node3"], "data")
    pool.set_up(37, script, "node4")
    status, words = pool.call("pre_run", "--token", "37", "--job", script)
    assert status == 1
    assert "start `forebay agent` there" in words, words
    # Nothing is copied, or destroyed, before it is sure that nothing can land.
    pool.slurm_says(36, "COMPLETED")
    pool.must("post_run", "--token", "36", "--job", script)
    status, words = pool.call("data_out", "--token", "36", "--job", script)
    assert status == 1
    assert "start `forebay agent` there" in words
    assert pool.forebay(MANAGER, "destroy", NAME, "--force").returncode == 1
    wait_for(lambda: _agent_findings(pool) == ["server node2"], "doctor to miss the agent", 60)
    with pool.agent():
        wait_for(lambda: _agent_findings(pool) == [], "doctor to find the agent")
        pool.must("pre_run", "--token", "37", "--job", script)
        for job in (36, 37):
            pool.end(job, script)


def _agent_findings(pool: AgentPool) -> list[str]:
    done = pool.forebay(MANAGER, "doctor", "--json")
    findings = json.loads(done.stdout)["findings"]
    return [finding["where"] for finding in findings if "forebay agent" in finding["what"]]


def test_a_second_agent_of_a_server_ends(pool: AgentPool) -> None:
    with pool.agent():
        second = pool.start_agent()
        assert second.wait() == 1
        assert "another agent runs for this server" in second.log.read_text()


def test_who_does_not_have_the_pools_key_is_no_agent(pool: AgentPool, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0" * 64 + "\n")
    pools_key = json.loads(pool.instance(HOME).pool_membership.read_text())["key"]
    wrong = pool.start_agent("unshare", "--mount", "sh", "-c", f'mount --bind {key} {pools_key} && exec "$@"', "sh")
    wait_for(lambda: "does not have the pool's key" in wrong.log.read_text(), "the manager to refuse it")
    wrong.end()
    # Root of a node without a server, for whom MUNGE speaks.
    said = pool.cluster.run("exec", "3", "--", sys.executable, "-c", _IMPOSTOR)
    assert "does not have the pool's key" in said.stderr


_IMPOSTOR = """
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
ManagerClient(Instance.current()).agent_turn({
    "server": "node2", "root_uuid": "", "agent": "a", "proof": "", "manager": "", "incarnation": 0,
    "shown": [], "ended": [], "answers": [], "under_way": [], "wait_seconds": 0,
})
"""


def test_stages_of_files_of_another_server_go_by_the_managers_node(
    pool: AgentPool, reservation: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    source, destination = tmp_path / "in", tmp_path / "out"
    for folder in (source / "deep", destination):
        folder.mkdir(parents=True)
        os.chown(folder, pool.uid, pool.gid)
    (source / "deep" / "file").write_bytes(os.urandom(3 << 20))
    with pool.agent():
        pool.ask(MANAGER, "stage-in", str(source), f"{NAME}:data", "--as-root")
        assert pool.run(HOME, "ls", f"{pool.tree(reservation)}/data/deep").stdout == "file\n"
        assert pool.nothing_is_shown(reservation)
        pool.ask(MANAGER, "stage-out", f"{NAME}:data", str(destination / "data"), "--as-root")
        assert (destination / "data/deep/file").read_bytes() == (source / "deep/file").read_bytes()
        assert pool.nothing_is_shown(reservation)
        assert str(pool.instance(MANAGER).root / "stage-trees") not in pool.run(MANAGER, "cat", "/proc/mounts").stdout


# crash-matrix: Files of a home on another server | the manager, killed while a stage moves them by its mount | the next manager takes the mount away and does the stage again; nothing stays mounted or shown
def test_a_stage_by_the_managers_mount_outlives_the_manager(pool: AgentPool, reservation: str, tmp_path: Path) -> None:
    """It waits for a program that has the file open for writing until that is killed."""
    tmp_path.chmod(0o755)
    file, target = pool.tree(reservation) / "data", tmp_path / "data"
    manager = pool.instance(MANAGER)

    def mounted() -> bool:
        pid = json.loads(manager.manager_identity.read_text())["pid"]
        return str(manager.root / "stage-trees") in Path(f"/proc/{pid}/mounts").read_text()

    def is_done() -> bool:
        stages = pool.ask(MANAGER, "stages")["stages"]
        return [each["state"] for each in stages if each["job"].get("outside") == str(target)] == ["succeeded"]

    with pool.agent():
        words, variables = pool.command(HOME, "sh", "-c", f"exec > {file}; echo staged; exec sleep 600")
        with subprocess.Popen(words, env=variables) as writer:
            try:
                wait_for(lambda: "data" in pool.listed(reservation), "the file")
                out = ("stage-out", f"{NAME}:data", str(target), "--as-root", "--no-wait")
                pool.ask(MANAGER, *out)
                wait_for(mounted, "the stage's mount")
                pool.kill_manager()
                pool.start_manager()
                wait_for(mounted, "the mount of the stage's second run")
                assert not is_done()
            finally:
                writer.kill()
        wait_for(is_done, "the stage")
        assert target.read_text() == "staged\n"
        assert pool.nothing_is_shown(reservation)
        assert not mounted()
