# SPDX-License-Identifier: Apache-2.0
"""A Slurm on this machine: a real slurmctld and slurmds, run without MUNGE, and jobs of an ordinary user."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import site
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.processes import processes_where
from tests.support.time_limits import seconds

__all__ = ["PERSON", "SLURM", "Cluster", "make_person", "make_python", "python_is_usable", "wait_for"]

PERSON = "forebay-person"
SLURM = "slurm"
_SECONDS_MAX = seconds(60)
_SITE = Path("/etc/slurm")

_SLURM_CONF = """\
ClusterName=forebay
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={slurm_user}
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/pid/slurmctld.pid
SlurmdPidFile={folder}/pid/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0,batch_sched_delay=1
ReturnToService=2
MailProg=/bin/true
KillWait=2
SlurmdParameters=config_overrides
BurstBufferType={plugin}
DebugFlags=BurstBuffer
{more}
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
"""

_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=512 State=UNKNOWN"

_BURST_BUFFER_CONF = """\
GetSysState={program}
GetSysStatus={status_program}
Flags={flags}
StageInTimeout=300
StageOutTimeout=300
OtherTimeout=280
"""

_BURST_BUFFER_CONF_OF_LUA = """\
Directive=DW
StageInTimeout=300
StageOutTimeout=300
OtherTimeout=280
"""


def wait_for(condition: Callable[[], bool], what: str, seconds_max: float = _SECONDS_MAX) -> None:
    """Returns when it holds; AssertionError if it does not come to."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds_max:g} s for {what}"
        time.sleep(0.1)


def make_person() -> pwd.struct_passwd:
    """The ordinary user whose jobs run: Slurm gives root no burst buffers."""
    try:
        return pwd.getpwnam(PERSON)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", PERSON], check=True)
        return pwd.getpwnam(PERSON)


def make_python(folder: Path, packages_of: Path | None = None) -> Path:
    """A Python with forebay that every user can run: this one may lie in somebody's home.

    With ``packages_of``, it has what that Python's environment has.
    """
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python*")) / "site-packages"
    here = next(path for path in site.getsitepackages() if Path(path).is_dir())
    if packages_of is not None:
        here = str(next((packages_of.parent.parent / "lib").glob("python*/site-packages")))
    (packages / "forebay.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return folder / "bin" / "python"


def python_is_usable() -> bool:
    """The distribution's Python takes the extension modules that were built for this one."""
    asked = ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.stdout.split() == [str(part) for part in sys.version_info[:2]]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Slurm below ``folder``. A context manager: jobs are cancelled and the daemons ended.

    Parameters
    ----------
    programs : Path
        The folder of ``dw_wlm_cli`` and ``dwstat``.
    node_count : int
        Nodes ``n1``, ``n2`` …; each has mounts of its own.
    node_folder : Path, optional
        A folder that each node has for itself.
    more : str
        Further lines of slurm.conf.
    scripts : dict, optional
        Files beside slurm.conf, by their names.
    """

    def __init__(
        self,
        folder: Path,
        programs: Path,
        configuration: Path,
        *,
        slurm_user: str = SLURM,
        flags: str = "EnablePersistent,TeardownFailure",
        plugin: str = "burst_buffer/datawarp",
        node_count: int = 1,
        cores: int = 2,
        node_folder: Path | None = None,
        more: str = "",
        scripts: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.configuration = folder / "etc" / "slurm.conf"
        self._slurm_user = slurm_user
        self._node_folder = node_folder
        self._nodes = [f"n{number}" for number in range(1, node_count + 1)]
        host = socket.gethostname().split(".")[0]
        for name in ("etc", "state", "pid", "log", *(f"spool.{node}" for node in self._nodes)):
            (folder / name).mkdir(parents=True)
        for name in ("state", "pid", "log"):
            shutil.chown(folder / name, slurm_user)
        nodes = "\n".join(_NODE.format(name=node, host=host, port=_free_port(), cores=cores) for node in self._nodes)
        values = {"host": host, "folder": folder, "slurm_user": slurm_user, "plugin": plugin}
        self.configuration.write_text(
            _SLURM_CONF.format(controller_port=_free_port(), nodes=nodes, more=more, **values)
        )
        (folder / "etc" / "burst_buffer.conf").write_text(
            (_BURST_BUFFER_CONF if plugin.endswith("datawarp") else _BURST_BUFFER_CONF_OF_LUA).format(
                program=programs / "dw_wlm_cli", status_program=programs / "dwstat", flags=flags
            )
        )
        for name, content in (scripts or {}).items():
            (folder / "etc" / name).write_text(content)
        self._environment = os.environ | {"SLURM_CONF": str(self.configuration), "FOREBAY_CONFIG": str(configuration)}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._slurmds: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start_controller()
        for node in self._nodes:
            self.start_node(node)
        self.wait_for_nodes()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run("scancel", "--hurry", "--state=PENDING")
        self.run("scancel", "--signal=KILL", "--user", PERSON)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # Slurm loses processes of jobs whose parents have ended, and a slurmstepd may wait for one.
        for pid in processes_where(self._is_of_a_job):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: processes_where(self._is_of_a_job) == [], "processes of jobs to end")

    def _is_of_a_job(self, process: Path) -> bool:
        variables = (process / "environ").read_bytes().split(b"\0")
        if f"SLURM_CONF={self.configuration}".encode() in variables:
            return any(variable.startswith(b"SLURM_JOB_ID=") for variable in variables)
        # It writes over its environment, and has a socket in the folder of its node.
        if "slurmstepd" not in (process / "exe").readlink().name:
            return False
        rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        sockets = {f"socket:[{row[6]}]" for row in rows if len(row) == 8 and row[7].startswith(f"{self.folder}/")}
        return any(str(file.readlink()) in sockets for file in (process / "fd").iterdir())

    def start_controller(self) -> None:
        """Starts slurmctld as its own user and waits until it answers."""
        as_user = [] if self._slurm_user == "root" else ["runuser", "-u", self._slurm_user, "--"]
        self._controller = self._start([*as_user, "slurmctld", "-D"])
        wait_for(lambda: "UP" in self.ask("scontrol", "ping"), "slurmctld")

    @contextlib.contextmanager
    def saved_jobs(self) -> Iterator[None]:
        """All jobs, as they are now, are in slurmctld's state. One that is killed earlier begins a job again beside its
        first run, or gives its number to the next one. A job that is held says by its comment that it was saved.
        """
        mark = f"saved-{time.monotonic_ns()}"
        held = self.run(
            "sbatch", "--parsable", "--hold", "--comment", mark, "--wrap", "true", user=PERSON
        ).stdout.strip()
        saved = self.folder / "state" / "job_state"
        try:
            wait_for(lambda: saved.exists() and mark.encode() in saved.read_bytes(), "the jobs to be saved")
            yield
        finally:
            self.run("scancel", held)

    def kill_controller(self) -> None:
        """SIGKILL, as by a crash."""
        pid = int((self.folder / "pid" / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        self._controller.wait()

    def restart_controller(self) -> None:
        """An orderly end and a new start: Slurm counts anew what is allocated."""
        self._controller.terminate()
        self._controller.wait(60)
        self.start_controller()

    def start_node(self, node: str) -> None:
        """Starts a node's slurmd."""
        command = ["slurmd", "-D", "-N", node]
        if self._node_folder is not None:
            self._node_folder.mkdir(exist_ok=True)
            mounts = [f"mount -t tmpfs -o mode=755 tmpfs {self._node_folder}"]
            # Where Slurm looks when a job's program has cleared its environment of SLURM_CONF.
            mounts += [f"mount --bind {self.configuration.parent} {_SITE}"]
            whole = " && ".join([*mounts, f"exec {' '.join(command)}"])
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", whole]
        self._slurmds[node] = self._start(command)

    def wait_for_nodes(self) -> None:
        """Until all nodes are there, and idle."""
        count = str(len(self._nodes))
        wait_for(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == count, "idle nodes")

    def kill_node(self, node: str) -> None:
        """SIGKILL of its slurmd; its jobs' processes live on."""
        self._slurmds[node].kill()
        self._slurmds[node].wait()

    def run(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a program of Slurm."""
        whole = [*(["runuser", "-u", user, "--"] if user else []), *command]
        return subprocess.run(
            whole, env=self._environment, cwd="/", capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
        )

    def ask(self, *command: str) -> str:
        """What it prints."""
        return self.run(*command).stdout.strip()

    def submit(self, script: str, *options: str) -> int:
        """Submits a job of the ordinary user; its number."""
        done = self.try_to_submit(script, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(done.stdout.split(";")[0])

    def try_to_submit(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Submits a job of the ordinary user, whatever comes of it."""
        home = Path(pwd.getpwnam(PERSON).pw_dir)
        path = home / "job.sh"
        path.write_text(script)
        shutil.chown(path, PERSON)
        return self.run("sbatch", "--parsable", "--output", str(home / "job-%j.out"), *options, str(path), user=PERSON)

    def start(self, *command: str, user: str = PERSON) -> subprocess.Popen[str]:
        """Starts a program of Slurm for a user."""
        return subprocess.Popen(
            ["runuser", "-u", user, "--", *command],
            env=self._environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def buffers(self) -> str:
        """What `scontrol show burst` says."""
        return self.ask("scontrol", "show", "burst")

    def output(self, job: int) -> str:
        """What the job printed."""
        path = Path(pwd.getpwnam(PERSON).pw_dir) / f"job-{job}.out"
        return path.read_text() if path.exists() else "(nothing)"

    def show(self, job: int) -> dict[str, str]:
        """What `scontrol show job` says."""
        words = self.ask("scontrol", "--oneliner", "show", "job", str(job)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def log(self) -> str:
        """The end of slurmctld's log."""
        return (self.folder / "log" / "slurmctld.log").read_text(errors="replace")[-6000:]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        daemon = subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        self._daemons.append(daemon)
        return daemon
