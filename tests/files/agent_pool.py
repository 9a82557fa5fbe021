# SPDX-License-Identifier: Apache-2.0
"""A pool of two servers on nodes with networks of their own. Node 1 has the manager, node 2 an agent, and nodes 3 and 4
compute. Slurm is a stand-in that says what a test tells it; its calls come by the real `dw_wlm_cli`. No node has a
kernel's NFS client. Clients are libnfs, which knows NFS 4.0 alone, so these servers have that version, too. Where the
manager would mount files for stages, it mounts the home's image once more.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.workflows.files.daemons import end_daemons, find_daemons
from forebay.workflows.files.state_file import STATE_NAME
from forebay.workflows.manager.instance.daemon import is_locked
from tests.slurm.cluster import wait_for
from tests.support.cluster import CommandLineCluster
from tests.support.munged import Munged
from tests.support.processes import processes_where
from tests.support.site_engine import SiteEngine
from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds

__all__ = ["HOME", "MANAGER", "NAME", "AgentPool", "AgentProcess", "agent_pool"]

#: The node with the manager.
MANAGER = 1
#: The node with the reservation's home, whose files its agent shows.
HOME = 2
#: A persistent reservation of the job's user there.
NAME = "mesh"
_CAPACITY = "320MiB"  # XFS takes 300 MiB or more
_USER = "nobody"
_SECONDS_MAX = seconds(120)

_SLURM = """\
#!{python}
import json, pathlib, sys
program = pathlib.Path(sys.argv[0]).name
jobs = json.loads(pathlib.Path({jobs!r}).read_text())
if program == "sinfo":
    for node in range(1, 5):
        print(f"node{{node}}|10.94.0.{{node}}")
elif program == "squeue":
    number = sys.argv[-1].removeprefix("--jobs=")
    if number not in jobs:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    print(f"{{number}}|{{jobs[number][0]}}|{uid}|{{jobs[number][1]}}|(null)")
"""

#: libnfs knows NFS 4.0 alone. Its programs come as root of their node, and lists of access do not count here: root may
#: write, as the tree's own mode is the server's business, which takes back what others make of it.
_CLIENTS = """\
import sys
if "forebay.workflows.files" in sys.orig_argv:
    from forebay.workflows.files import nfs
    nfs._MINOR_VERSIONS = "0, 1, 2"
    nfs._EXPORT = nfs._EXPORT.replace("Root_Squash", "No_Root_Squash")
if "forebay.workflows.manager" in sys.orig_argv:
    import json, pathlib, subprocess
    from forebay.workflows.files import node_mounts
    from forebay.workflows.files.driver_state import STATE_NAME as STATE
    def mount(options, wanted, place, deadline):
        assert options == node_mounts.STAGE_OPTIONS, options
        servers = (path.parent for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                   if {home!r}.encode() in path.read_bytes() and b"forebayd" in path.read_bytes())
        (server,) = servers
        state = json.loads((server / "root" / {home!r}[1:] / "drivers" / wanted.id / STATE).read_text())
        number = state["exports"]["forebay.stages"]["number"]
        assert wanted.port == state["port"] and wanted.source.endswith(str(number)), (wanted, state)
        lines = (server / "mountinfo").read_text().splitlines()
        (device,) = {{line.split(" - ")[1].split()[1] for line in lines if wanted.id in line.split()[4]}}
        subprocess.run(["mount", "-n", device, str(place)], check=True)
    node_mounts._mount = mount
"""


@dataclass
class AgentProcess:
    """`forebay agent` of the home's node."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """It dies without a word, and what it has started goes on."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Asks it to end; its status."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Until it has ended."""
        return self.process.wait(_SECONDS_MAX)


class AgentPool:
    """All of it. A context manager: what is left of a failed test goes with it."""

    def __init__(
        self, folder: Path, munged: Munged, python: str, pool_settings: str, site: SiteEngine | None = None
    ) -> None:
        self.folder = folder
        self.python = python
        self._more = folder / "more"
        self._more.mkdir()
        (folder / "nodes").mkdir()  # the cluster would close it to others
        self._jobs: dict[str, tuple[str, str]] = {}
        self.node_folder = Path(f"/run/forebay-node-{os.getpid()}")
        account = pwd.getpwnam(_USER)
        self.uid, self.gid = account.pw_uid, account.pw_gid
        for name in ("scontrol", "squeue", "sinfo"):
            program = self._more / name
            program.write_text(
                _SLURM.format(python=sys.executable, jobs=str(self._more / "jobs.json"), uid=account.pw_uid)
            )
            program.chmod(0o755)
        self._tell_slurm()
        home = str(folder / "nodes" / f"node{HOME}" / "root")
        (self._more / "sitecustomize.py").write_text(_CLIENTS.format(home=home))
        # The instances are started with one that names none of them: it is meant for all that root runs.
        roots = {node: f'root = "{folder}/nodes/node{node}/root"\n' for node in (MANAGER, HOME)}
        image, driver = ("xfs", "nfs") if site is None else ("", "commands")
        commands = "" if site is None else site.configuration()
        for node, root in (roots | {0: ""}).items():
            self._configuration(node).write_text(
                f'{root}files_image = "{image}"\n[pools.default]\nfiles_driver = "{driver}"\n{pool_settings}'
                '[files]\nserver = "node1:7460"\noperation_seconds_max = 30.0\nlease_seconds = 6.0\n'
                "begin_seconds_max = 30.0\nend_seconds_max = 10.0\n"
                f'[slurm]\nscheduler_user = "root"\nuid_min = {min(1000, self.uid)}\ngranularity = "16MiB"\n'
                f'server = "node1:7460"\n'
                f'node_folder = "{self.node_folder}"\nscontrol = "{self._more}/scontrol"\nquiet_seconds_max = 1.0\n'
                f"{commands}"
            )
        self.cluster = CommandLineCluster(
            folder / "nodes",
            *("--nodes", "4", "--servers", "2", "--netns", "--capacity", "1GiB"),
            python=python,
            FOREBAY_CONFIG=str(self._configuration(0)),
            FOREBAY_MUNGE_SOCKET=str(munged.socket),
            PYTHONPATH=f"{self._more}:{os.getcwd()}",
        )
        self._environments: dict[int, dict[str, str]] = {}
        self._agents: list[AgentProcess] = []

    def _configuration(self, node: int) -> Path:
        return self._more / f"node{node}.toml"

    def instance(self, node: int) -> Instance:
        """Of a node that has a server."""
        return Instance(self.cluster.folder / f"node{node}" / "root")

    @property
    def drivers(self) -> Path:
        """Of the home."""
        return self.instance(HOME).root / "drivers"

    def command(self, node: int, *command: str, **environment: str) -> tuple[list[str], dict[str, str]]:
        """What runs a command where the server of that node runs, in its network and with its mounts; the environment
        for it.
        """
        pid = json.loads(self.instance(node).server_identity.read_text())["pid"]
        if node not in self._environments:
            told = self.cluster.on(node, "env")
            self._environments[node] = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        own = self._environments[node] | {
            "FOREBAY_CONFIG": str(self._configuration(node)),
            "PYTHONPATH": f"{self._more}:{os.getcwd()}",
        }
        return ["nsenter", "--target", str(pid), "--mount", "--net", "--", *command], own | environment

    def run(self, node: int, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs it there, whatever comes of it."""
        words, variables = self.command(node, *command, **environment)
        return subprocess.run(
            words,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )

    def forebay(self, node: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`forebay ARGUMENTS` likewise."""
        return self.run(node, self.python, "-m", "forebay", *arguments, **environment)

    def ask(self, node: int, *arguments: str) -> Any:
        """`forebay ARGUMENTS --json`, which must succeed."""
        done = self.forebay(node, *arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return json.loads(done.stdout)

    def start_agent(self, *prefix: str, **environment: str) -> AgentProcess:
        """Of the home; returns when it serves, or has ended. ``prefix``: what starts it."""
        words, variables = self.command(HOME, *prefix, self.python, "-m", "forebay", "agent", **environment)
        log = self._more / f"agent-{len(self._agents)}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
        agent = AgentProcess(process, log)
        self._agents.append(agent)
        wait_for(lambda: "serving node2" in log.read_text() or process.poll() is not None, "the agent to serve")
        return agent

    @contextlib.contextmanager
    def agent(self, **environment: str) -> Iterator[AgentProcess]:
        """One that is asked to end with it."""
        started = self.start_agent(**environment)
        try:
            yield started
        except BaseException:
            started.kill()
            raise
        assert started.end() == 0, started.log.read_text()

    def slurm_says(self, job: int, state: str, nodes: str = "") -> None:
        """What the stand-in says of a job from now on; "": it knows none of that number."""
        self._jobs[str(job)] = (state, nodes)
        if not state:
            del self._jobs[str(job)]
        self._tell_slurm()

    def _tell_slurm(self) -> None:
        written = self._more / "jobs.new"
        written.write_text(json.dumps(self._jobs))
        written.replace(self._more / "jobs.json")

    def script(self, *lines: str) -> Path:
        """A job's script with these directives."""
        path = self._more / "script"
        path.write_bytes("\n".join(["#!/bin/bash", *lines, "true"]).encode() + b"\n\0")
        return path

    def start_call(self, function: str | Path, *arguments: str | Path) -> subprocess.Popen[str]:
        """Begins a call of Slurm's."""
        program = forebayd().parents[1] / "workflows" / "dw_wlm_cli"
        words, variables = self.command(MANAGER, str(program), "--function", *map(str, (function, *arguments)))
        return subprocess.Popen(
            words,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, function: str | Path, *arguments: str | Path) -> tuple[int, str]:
        """A call of Slurm's, whatever comes of it: its status, and what it printed."""
        with self.start_call(function, *arguments) as process:
            words, _ = process.communicate(timeout=_SECONDS_MAX)
        return process.returncode, words

    def must(self, function: str | Path, *arguments: str | Path) -> str:
        """A call of Slurm's that must succeed."""
        status, words = self.call(function, *arguments)
        assert status == 0, f"{function}: {words}\n{self.logs()}"
        return words

    def setup_call(self, job: int, script: Path, capacity_bytes: int = 0) -> list[str | Path]:
        """Slurm's call `setup`: its name and arguments."""
        who = ("--token", str(job), "--caller", "SLURM", "--user", str(self.uid), "--groupid", str(self.gid))
        return ["setup", *who, "--capacity", f"forebay:{capacity_bytes}", "--job", script]

    def set_up(self, job: int, script: Path, nodes: str, capacity_bytes: int = 0) -> None:
        """All of Slurm's calls before `pre_run`."""
        self.slurm_says(job, "PENDING")
        self.must(*self.setup_call(job, script, capacity_bytes))
        self.must("data_in", "--token", str(job), "--job", script)
        self.slurm_says(job, "RUNNING", nodes)

    def begin(self, job: int, nodes: str, script: Path | None = None) -> Path:
        """All of Slurm's calls before the job's prologs; the script."""
        script = script or self.script(f"#DW persistentdw name={NAME}")
        self.set_up(job, script, nodes)
        self.must("pre_run", "--token", str(job), "--job", script)
        return script

    def end(self, job: int, script: Path) -> None:
        """All of Slurm's calls after the job's epilogs."""
        self.slurm_says(job, "COMPLETED")
        self.must("post_run", "--token", str(job), "--job", script)
        self.must("data_out", "--token", str(job), "--job", script)
        self.must("teardown", "--token", str(job), "--job", script)

    def create(self) -> str:
        """The reservation on the home, with files; its uuid."""
        made = self.ask(
            MANAGER, "create", NAME, "--on", "node2", "--capacity", "32MiB", "--files", _CAPACITY, "--persistent"
        )["reservation"]
        self.ask(MANAGER, "share", NAME, "--user", _USER, "--rights", "write")
        return str(made["id"])

    def tree(self, reservation: str) -> Path:
        """Its files at the home, for commands there."""
        return self.instance(HOME).root / "reservations" / reservation / "files"

    def state(self, reservation: str) -> dict[str, Any]:
        """What the driver has written down of it at the home."""
        state: dict[str, Any] = json.loads((self.drivers / reservation / STATE_NAME).read_text())
        return state

    def exports(self, reservation: str) -> dict[str, str]:
        """The export of each node that has one open."""
        exports = self.state(reservation)["exports"]
        return {node: f"{node}.{export['number']}" for node, export in exports.items() if not export["fenced"]}

    def put(self, node: int, reservation: str, export: str, name: str, folder: str = ".") -> bool:
        """A client on a node writes a file through an export, as root."""
        source = self._more / name
        source.write_text(f"{name} from node {node}\n")
        port = self.state(reservation)["port"]
        url = f"nfs://10.94.0.2/{export}/{folder}/{name}?nfsport={port}&version=4"
        prefix = ["ip", "netns", "exec", self._namespace(node)]
        command = [*prefix, "nfs-cp", str(source), url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
        print(done.stdout, done.stderr)  # shown where a test fails
        return done.returncode == 0

    def _namespace(self, node: int) -> str:
        plan = json.loads((self.cluster.folder / "cluster.json").read_text())
        return f"{plan['label']}-{node}"

    def listed(self, reservation: str) -> list[str]:
        """Names in its tree, as the home sees them."""
        done = self.run(HOME, "ls", str(self.tree(reservation)))
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def daemons(self, reservation: str) -> list[int]:
        """Processes of its NFS server."""
        marks = [self.drivers / reservation / name for name in ("ganesha.conf", "bus.conf")]
        return [pid for mark in marks for pid in find_daemons(mark)]

    def nothing_is_shown(self, reservation: str) -> bool:
        """No process, state or folder of it is left at the home."""
        folders = (self.drivers / reservation, Path("/run/forebay-files") / reservation)
        return not self.daemons(reservation) and not any(folder.exists() for folder in folders)

    def manager(self) -> ManagerClient:
        """A connection to it, as root of its node."""
        return ManagerClient(self.instance(MANAGER))

    def report(self, job: int, node: int, state: str) -> bool:
        """A node says what has become of its files; whether it is fenced."""
        with self.manager() as manager:
            run = manager.files_on_node(str(job), f"node{node}").run
            return manager.report_node(str(job), run, f"node{node}", state, "a test").fenced

    def operations(self) -> list[int]:
        """Processes that carry out an operation of a driver at the home."""
        root = f"FOREBAY_ROOT={self.instance(HOME).root}".encode()
        return processes_where(
            lambda process: (
                b"forebay.workflows.files\0" in (process / "cmdline").read_bytes()
                and root in (process / "environ").read_bytes().split(b"\0")
            )
        )

    def stopped_operation(self) -> int:
        """The one that has come to a fail point that stops it."""

        def stopped() -> list[int]:
            return [pid for pid in self.operations() if "T (stopped)" in Path(f"/proc/{pid}/status").read_text()]

        wait_for(lambda: bool(stopped()), "an operation that has stopped")
        return stopped()[0]

    def kill_manager(self) -> None:
        """It dies without a word; returns when it is gone."""
        instance = self.instance(MANAGER)
        os.kill(json.loads(instance.manager_identity.read_text())["pid"], signal.SIGKILL)
        wait_for(lambda: not is_locked(instance.manager_lock), "the manager to be gone")

    def start_manager(self) -> None:
        """After it was killed."""
        self.cluster.must("heal", str(MANAGER))

    def logs(self) -> str:
        """What manager and agents have written last."""
        paths = [self.instance(MANAGER).manager_log, *(agent.log for agent in self._agents[-2:])]
        return "\n".join(path.read_text()[-3000:] for path in paths if path.exists())

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self._agents:
            agent.kill()
        for path in self.drivers.glob("*/*.conf"):
            end_daemons(path, time.monotonic() + 30)
            shutil.rmtree(Path("/run/forebay-files") / path.parent.name, ignore_errors=True)
        self.cluster.__exit__(kind, error, trace)
        shutil.rmtree(self.node_folder, ignore_errors=True)


@contextlib.contextmanager
def agent_pool(
    folder: Path, python: str = sys.executable, pool_settings: str = "", site: SiteEngine | None = None
) -> Iterator[AgentPool]:
    """One that runs, without an agent. `python`: one that other users may run, where they are to have stages.
    `pool_settings`: lines of the configuration. `site`: what shows files, in place of NFS.
    """
    with Munged() as munged, AgentPool(folder, munged, python, pool_settings, site) as pool:
        wait_for((pool.instance(MANAGER).root / "slurm" / "snapshot").exists, "the pool's list")
        yield pool
