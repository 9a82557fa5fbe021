# SPDX-License-Identifier: Apache-2.0
"""A centre whose nodes are guests: an instance of root's on this machine, which shows files by NFS, and a Slurm with
MUNGE, whose nodes see neither the instance's root nor its sockets. This machine, the home, is a node, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forebay.workflows.files.daemons import end_daemons, find_daemons
from forebay.workflows.files.mounts import mounts_below
from tests.slurm.centre import programs
from tests.slurm.cluster import SLURM, Cluster, wait_for
from tests.support.guests import Guest, GuestNetwork
from tests.support.instance import CommandLineInstance
from tests.support.munged import Munged
from tests.support.site_engine import SiteEngine

__all__ = ["CAPACITY", "HOME", "SECOND", "GuestCentre", "guest_centre", "second_server"]

#: What a job asks for: XFS takes 300 MiB or more.
CAPACITY = "320MiB"
#: A second server of the pool, on this machine as well.
SECOND = "second"
#: The node that is the home.
HOME = "home"
_NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=2 RealMemory=200 State=UNKNOWN"
_PORT = 6818
_FOLDERS = {".mounts", ".answers", ".private", "lock", "commands.log"}
_CGROUP = "CgroupPlugin=cgroup/v1\n"


class _GuestCluster(Cluster):
    """Slurm's daemon here, its nodes in guests."""

    def __init__(
        self, folder: Path, configuration: Path, guests: dict[str, Guest], network: GuestNetwork, munged: Munged
    ) -> None:
        super().__init__(
            folder,
            programs(),
            configuration,
            node_count=len(guests),
            scripts={"cgroup.conf": _CGROUP},
            more=f"Prolog={folder.parent}/begin\nEpilog={folder.parent}/end\nPrologFlags=Alloc\nJobRequeue=0\n"
            "PrologEpilogTimeout=300",
        )
        self._nodes.append(HOME)
        self._guests = guests
        self._munged = munged
        self._key = folder / "munge.key"
        self._key.touch(mode=0o600)
        self._key.write_bytes((munged.folder / "key").read_bytes())
        lines = []
        state = folder.parent / "node"
        host = socket.gethostname().split(".")[0]
        for line in self.configuration.read_text().splitlines():
            if line.startswith("NodeName="):
                continue
            if line.startswith("PartitionName="):
                for name, guest in guests.items():
                    lines.append(_NODE.format(name=name, host=name, address=guest.address, port=_PORT))
                lines.append(_NODE.format(name=HOME, host=host, address=network.host, port=_free_port(network.host)))
            changed = {
                "SlurmctldHost": f"{host}({network.host})",
                "AuthType": f"auth/munge\nAuthInfo=socket={munged.socket}",
                "CredType": "cred/munge",
                # A folder of its own in each guest, and one that goes with the test on this machine.
                "SlurmdSpoolDir": f"{state}/spool.%n",
                "SlurmdPidFile": f"{state}/slurmd.%n.pid",
                "SlurmdLogFile": f"{state}/slurmd.log",
            }
            name = line.partition("=")[0]
            lines.append(f"{name}={changed[name]}" if name in changed else line)
        self.configuration.write_text("\n".join([*lines, "SlurmdTimeout=300", ""]))

    def start_node(self, node: str) -> None:
        """Starts munged and slurmd in the guest; at the home, where a munged runs, slurmd alone."""
        if node == HOME:
            super().start_node(node)
            return
        guest, folder = self._guests[node], self._munged.folder
        places = " ".join(f"--{name}-file={folder}/{name}" for name in ("log", "pid", "seed"))
        guest.run(f"mkdir -p -m 755 {folder} && cp {self._key} {folder}/key && chmod 400 {folder}/key")
        guest.run(f"munged --key-file={folder}/key --socket={self._munged.socket} {places}")
        guest.run(f"SLURM_CONF={self.configuration} slurmd -N {node} </dev/null >/run/slurmd.out 2>&1")


@dataclass(frozen=True)
class GuestCentre:
    """All of it."""

    instance: CommandLineInstance
    python: Path
    cluster: Cluster
    guests: dict[str, Guest]
    node_folder: str

    def states(self) -> dict[str, str]:
        """State of each job, by its number."""
        return {job["token"]: job["state"] for job in self.instance.ask("status", "--all")["jobs"]}

    def wait_until_gone(self, job: int) -> None:
        """Until the manager has nothing of it any more, and Slurm neither."""
        try:
            wait_for(lambda: self.states().get(str(job)) == "gone", f"job {job} to be gone", 120)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.cluster.show(job)}\n{self.story(job)}") from None
        wait_for(lambda: f"JobID={job} " not in self.cluster.buffers(), f"Slurm to let go of job {job}", 60)

    def submit(self, script: str, *options: str) -> int:
        """A job of the ordinary user on both nodes; what it prints stays in the guest."""
        return self.cluster.submit(script, "--nodes=2", "--nodelist=n1,n2", "--output=/tmp/job-%j.out", *options)

    def story(self, job: int) -> str:
        """What the job, prologs and epilogs printed on the nodes that live."""
        command = (
            f"tail -n 30 /tmp/job-{job}.out /run/begin.log /run/end.log {self.cluster.folder.parent}/node/slurmd.log"
        )
        texts = [guest.try_to_run(command)[1] for guest in self.guests.values() if guest.is_up]
        return "\n".join([*texts, self.instance.logs()[-3000:]])

    def daemons(self) -> list[Path]:
        """Configurations of engines that run for this instance."""
        found = []
        for folder in (self.instance.root / "drivers").iterdir():
            found += [file for file in folder.glob("*.conf") if find_daemons(file)]
        return found

    def must_be_clean(self) -> None:
        """No mount, process, image or export is left, here and on the nodes that live."""
        assert self.instance.ask("ls")["reservations"] == []
        assert [path.name for path in (self.instance.root / "drivers").iterdir() if path.is_dir()] == []
        mounts = Path("/proc/self/mounts").read_text()
        assert f"{self.instance.root}/" not in mounts
        assert f"{self.node_folder}/" not in mounts
        loops = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
        assert not any(text.startswith(f"{self.instance.root}/") for text in loops), loops
        for guest in self.guests.values():
            assert self.node_folder not in guest.run("cat /proc/mounts")
            left = guest.run(f"find {self.node_folder} -mindepth 1 2>/dev/null || true").split()
            assert {path.rpartition("/")[2] for path in left} <= _FOLDERS
        assert {path.name for path in Path(self.node_folder).rglob("*")} <= _FOLDERS
        done = self.instance.run("doctor")
        assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def guest_centre(folder: Path, python: Path, site: SiteEngine | None = None) -> Iterator[GuestCentre]:
    """Starts it below ``folder``, which all can enter, and which is neither below /tmp nor /run.

    Parameters
    ----------
    site : SiteEngine, optional
        What shows files, in place of NFS.
    """
    names = ("n1", "n2", "n3") if site is None else ("n1", "n2")
    driver = "nfs" if site is None else "commands"
    node_folder = f"/run/forebay-node-{os.getpid()}-{driver}"
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(GuestNetwork())
        munged = stack.enter_context(Munged())
        server = f"{network.host}:{_free_port(network.host)}"
        configuration = folder / "forebay.toml"
        configuration.write_text(
            f'root = "{folder}/root"\nfiles_image = "{"xfs" if site is None else ""}"\n'
            f'[pools.default]\nfiles_driver = "{driver}"\n'
            f'[files]\nserver = "{server}"\nbegin_seconds_max = 60.0\nlease_seconds = 15.0\n'
            f"end_seconds_max = {5.0 if site is None else 30.0}\n"
            f'[slurm]\nscheduler_user = "{SLURM}"\ngranularity = "{CAPACITY}"\nnode_folder = "{node_folder}"\n'
            + ("" if site is None else site.configuration())
        )
        for verb in ("begin", "end"):
            script = folder / verb
            script.write_text(
                f"#!/bin/sh\nexport FOREBAY_CONFIG={configuration} FOREBAY_MUNGE_SOCKET={munged.socket}\n"
                f"exec {python} -m forebay job-{verb} >> /run/{verb}.log 2>&1\n"
            )
            script.chmod(0o755)
        key = folder / "pool.key"
        instance = CommandLineInstance(
            folder / "root", capacity="2GiB", python=python, up_options=("--pool-key", str(key), "--listen", server)
        )
        instance.environment |= {
            "FOREBAY_CONFIG": str(configuration),
            "SLURM_CONF": str(folder / "slurm" / "etc" / "slurm.conf"),
            "FOREBAY_MUNGE_SOCKET": str(munged.socket),
        }
        made = instance.run("servers", "key", str(key))
        assert made.returncode == 0, made.stderr
        stack.callback(_end_what_is_left, folder / "root", Path(node_folder))
        stack.enter_context(instance)
        wait_for((folder / "root" / "slurm" / "snapshot").exists, "the pool's list")
        (folder / "node").mkdir()
        guests = {
            name: stack.enter_context(
                Guest(
                    name,
                    10 + place,
                    network,
                    folder / f"guest-{name}",
                    tmpfs=(str(folder / "root"), str(folder / "node")),
                )
            )
            for place, name in enumerate(names, start=1)
        }
        cluster = _GuestCluster(folder / "slurm", configuration, guests, network, munged)
        stack.enter_context(cluster)
        yield GuestCentre(instance, python, cluster, guests, node_folder)


@contextlib.contextmanager
def second_server(centre: GuestCentre) -> Iterator[CommandLineInstance]:
    """A server that joins the centre's pool, with an agent beside it."""
    first = centre.instance
    folder = first.root.parent
    listen = json.loads(first.files.pool_membership.read_text())["listen"]
    host = listen.rpartition(":")[0]
    configuration = folder / "second.toml"
    text = Path(first.environment["FOREBAY_CONFIG"]).read_text()
    configuration.write_text(text.replace(f'root = "{first.root}"', f'root = "{folder}/second"'))
    second = CommandLineInstance(
        folder / "second",
        capacity="1GiB",
        python=centre.python,
        up_options=(
            *("--pool-key", str(folder / "pool.key"), "--listen", f"{host}:{_free_port(host)}"),
            *("--join", listen, "--name", SECOND),
        ),
    )
    second.environment |= {
        "FOREBAY_CONFIG": str(configuration),
        "FOREBAY_MUNGE_SOCKET": first.environment["FOREBAY_MUNGE_SOCKET"],
    }
    with contextlib.ExitStack() as stack:
        stack.callback(_end_what_is_left, second.root, Path(centre.node_folder))
        second.up()
        stack.callback(second.run, "down", "--force")
        log = stack.enter_context((folder / "agent.log").open("wb"))
        agent = subprocess.Popen(
            second.command("agent"),
            env=os.environ | second.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        stack.callback(agent.wait)
        stack.callback(agent.terminate)
        yield second
        first.ask("servers", "retire", SECOND)


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _end_what_is_left(root: Path, node_folder: Path) -> None:
    """Engines and mounts of an instance that went down while a job had files, because a test failed."""
    for file in root.glob("drivers/*/*.conf"):
        end_daemons(file, time.monotonic() + 30)
        shutil.rmtree(Path("/run/forebay-files") / file.parent.name, ignore_errors=True)
    for mount in [*mounts_below(node_folder), *mounts_below(root)]:
        subprocess.run(["umount", "--lazy", mount.place], check=True)
    shutil.rmtree(node_folder, ignore_errors=True)
