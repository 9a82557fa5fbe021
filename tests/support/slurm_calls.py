# SPDX-License-Identifier: Apache-2.0
"""What slurmctld does with dw_wlm_cli, without Slurm: its calls for a job, and programs of Slurm that say what they are
told.
"""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.instance import CommandLineInstance
from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds

__all__ = ["SlurmCalls", "Start", "job_of", "outside", "reservations", "run_to_its_end"]

_SECONDS_MAX = seconds(60)

#: Either program, as squeue or scontrol.
_PROGRAM = """\
#!{python}
import pathlib, sys
states = pathlib.Path({states!r})
if sys.argv[1] in ("release", "update"):
    with (states / "told").open("a") as told:
        told.write(" ".join(sys.argv[1:]) + chr(10))
    sys.exit()
job = sys.argv[-1].removeprefix("--jobs=")
with (states / "asked").open("a") as asked:
    asked.write(job + " ")
state = (states / job).read_text() if (states / job).exists() else ""
if state == "?":
    sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
if not state:
    sys.exit("slurm_load_jobs error: Invalid job id specified")
told = states / (job + ".account")
account, comment = told.read_text().split("|") if told.exists() else ("(null)", "")
held = states / (job + ".reason")
reason = held.read_text() if held.exists() else "Priority"
if sys.argv[0].endswith("squeue"):
    if "--format=%A|%T|%r" in sys.argv:
        sys.exit(print(f"{{job}}|{{state}}|{{reason}}"))
    assert "--format=%A|%T|%U|%N|%a" in sys.argv, sys.argv
    print(f"{{job}}|{{state}}|{uid}|n1|{{account}}")
else:
    told = f"JobState={{state}} Account={{account}} Reason={{reason.replace(' ', '_')}} "
    told += "EndTime=2030-01-02T03:04:05 WorkDir=/tmp"
    print(f"JobId={{job}} JobName=flow {{told}} Comment={{comment}}")
"""


class SlurmCalls:
    """A caller of the programs for Slurm, for jobs of a user who is not root."""

    def __init__(self, folder: Path, instance: CommandLineInstance, *settings: str) -> None:
        self.folder = folder
        self._programs = forebayd().parents[1] / "workflows"
        self._states = folder / "states"
        self._states.mkdir()
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        self.uid, self.gid = account.pw_uid, account.pw_gid
        assert grp.getgrgid(self.gid)
        for name in ("scontrol", "squeue"):
            program = folder / name
            program.write_text(_PROGRAM.format(python=sys.executable, states=str(self._states), uid=self.uid))
            program.chmod(0o755)
        configuration = folder / "forebay.toml"
        configuration.write_text(
            f'root = "{instance.root}"\n{instance.database}[slurm]\nuid_min = {min(1000, self.uid)}\n'
            f'scontrol = "{folder}/scontrol"\n'
            + "".join(f"{setting}\n" for setting in _with_default("quiet_seconds_max = 1.0", settings))
        )
        instance.environment["FOREBAY_CONFIG"] = str(configuration)
        self.environment = {"FOREBAY_CONFIG": str(configuration), "PATH": os.environ["PATH"]}

    def script(self, *lines: str) -> Path:
        """A job script with these directives."""
        path = self.folder / "script"
        path.write_bytes("\n".join(["#!/bin/bash", *lines, "true"]).encode() + b"\n\0")
        return path

    def say(self, token: str, state: str) -> None:
        """What Slurm says of the job from now on; "": it does not know it; "?": it cannot be reached."""
        (self._states / token).write_text(state)

    def hold(self, token: str, reason: str) -> None:
        """Slurm holds the job, for this reason."""
        self.say(token, "PENDING")
        (self._states / f"{token}.reason").write_text(reason)

    def told(self) -> list[str]:
        """What Slurm was told to do: `release JOB`, `update JobId=JOB …`."""
        told = self._states / "told"
        return told.read_text().splitlines() if told.exists() else []

    def set_account(self, token: str, account: str, comment: str = "") -> None:
        """The account that Slurm has for the job, and the comment that its user gave it."""
        (self._states / f"{token}.account").write_text(f"{account}|{comment}")

    def times_asked(self, token: str) -> int:
        """How often Slurm was asked for the job."""
        asked = self._states / "asked"
        return asked.read_text().split().count(token) if asked.exists() else 0

    def command(self, function: str, *arguments: str | Path) -> list[str]:
        """The command line of a call."""
        return [str(self._programs / "dw_wlm_cli"), "--function", function, *map(str, arguments)]

    def call(self, function: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Calls a function, whatever comes of it."""
        return self._run(self.command(function, *arguments))

    def start(self, function: str, *arguments: str | Path) -> subprocess.Popen[str]:
        """Begins a call."""
        return subprocess.Popen(
            self.command(function, *arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ask(self, function: str, *arguments: str | Path) -> str:
        """Calls a function, which must succeed; what it printed."""
        done = self.call(function, *arguments)
        assert done.returncode == 0, f"{function}: {done.returncode} {done.stdout}"
        return done.stdout

    def setup_arguments(self, token: str, script: Path, capacity: str = "forebay:64MiB") -> list[str]:
        """Of the call that makes a job's reservation."""
        owner = ["--user", str(self.uid), "--groupid", str(self.gid)]
        return ["--token", token, "--caller", "SLURM", *owner, "--capacity", capacity, "--job", str(script)]

    def set_up(self, token: str, script: Path, capacity: str = "forebay:64MiB") -> None:
        """Makes a job's reservation."""
        self.ask("setup", *self.setup_arguments(token, script, capacity))

    def create_persistent(self, name: str, capacity: str = "forebay:67108864") -> str:
        """As for `#BB create_persistent`."""
        return self.ask("create_persistent", "-c", "CLI", "-t", name, "-u", str(self.uid), "-C", capacity)

    def dwstat(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What `dwstat` prints."""
        return self._run([str(self._programs / "dwstat"), *arguments])

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of one of its tables, by the names of the columns."""
        done = self.dwstat(name)
        assert done.returncode == 0, done.stdout
        head, *rows = (line.split() for line in done.stdout.splitlines())
        assert all(len(row) == len(head) for row in rows), done.stdout
        return [dict(zip(head, row, strict=True)) for row in rows]

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )


def _with_default(default: str, settings: tuple[str, ...]) -> list[str]:
    """The settings, after one that they may have, too."""
    name = default.partition(" = ")[0]
    return [*([] if any(setting.startswith(name) for setting in settings) else [default]), *settings]


#: Starts an instance with these settings of [slurm]; jobs' users can reach its folder.
Start = Callable[..., tuple[SlurmCalls, CommandLineInstance]]


def job_of(instance: CommandLineInstance, token: str) -> dict[str, Any]:
    """The newest run."""
    runs = [job for job in instance.ask("status", "--all")["jobs"] if job["token"] == token]
    return max(runs, key=lambda job: int(job["run"]))


def reservations(instance: CommandLineInstance) -> dict[str, Path]:
    """Their files, by name."""
    return {row["name"]: Path(row["files_path"]) for row in instance.ask("ls")["reservations"]}


def outside(slurm: SlurmCalls) -> Path:
    """A folder of the job's user, outside the instance. It goes with the folder that both are in."""
    folder = Path(tempfile.mkdtemp(prefix="pfs-", dir=slurm.folder))
    os.chown(folder, slurm.uid, slurm.gid)
    return folder


def run_to_its_end(slurm: SlurmCalls, token: str, script: Path, state: str = "COMPLETED") -> None:
    """Up to the call after which data_out comes."""
    slurm.set_up(token, script, "forebay:16MiB")
    slurm.ask("data_in", "--token", token, "--job", script)
    slurm.ask("pre_run", "--token", token, "--job", script)
    slurm.say(token, state)
    slurm.ask("post_run", "--token", token, "--job", script)
