# SPDX-License-Identifier: Apache-2.0
"""Daemons of drivers in a cgroup of their own, in real hierarchies, started by a program in a job's cgroup."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import InvalidArgumentError
from forebay.workflows.files.daemon_cgroup import DaemonCgroup, cgroup_problem
from forebay.workflows.files.daemons import end_daemons
from forebay.workflows.files.settings import FilesSettings
from tests.support.cgroups import cgroups_below, job_cgroup, why_no_cgroups
from tests.support.time_limits import seconds

_ID = "5b25bf15-3fd4-42c1-84d2-f10c33f12f0e"
_STARTER = """
import json, sys
from pathlib import Path
from forebay.workflows.files.daemon_cgroup import DaemonCgroup, cgroup_problem
from forebay.workflows.files.daemons import start_daemon
parent, mark = sys.argv[1:]
command = [sys.executable, "-c", "import signal; signal.pause()", mark]
identity = start_daemon(command, Path(mark + ".log"), {}, DaemonCgroup(parent, "ID"))
pid = int(identity.split("/")[1])
print(json.dumps({"pid": pid, "problem": cgroup_problem(parent, [pid])}))
"""
needs_cgroups = pytest.mark.skipif(bool(why_no_cgroups()), reason=why_no_cgroups())


@pytest.fixture
def parent() -> Iterator[str]:
    """A cgroup of this test's alone."""
    name = f"forebay-test-{uuid.uuid4().hex[:8]}"
    yield f"{name}/daemons"
    for below in (f"{name}/daemons", name):
        for place in cgroups_below(below):
            place.rmdir()
    for place in cgroups_below(""):
        if place.name == name:
            place.rmdir()


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """What daemons are found by."""
    yield tmp_path / "mark"
    end_daemons(tmp_path / "mark", time.monotonic() + seconds(30))


def start(command: list[str]) -> tuple[int, str]:
    """The daemon that the program starts, and what it says of its cgroups."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(60), check=True)
    said = json.loads(done.stdout)
    return said["pid"], said["problem"]


@needs_cgroups
def test_a_daemon_is_in_no_cgroup_of_the_job_that_has_started_it(parent: str, mark: Path) -> None:
    with job_cgroup() as job:
        pid, problem = start(job.command([sys.executable, "-c", _STARTER, parent, str(mark)]))
        assert problem == ""
        for place in job.places:
            assert (place / "cgroup.procs").read_text() == ""
        own = cgroups_below(parent)
        assert len(own) == len(job.places)
        assert all(pids == [pid] for pids in own.values())
    # Who is at the top of the hierarchies sees them as well, and nothing that runs is taken away.
    own_cgroup = DaemonCgroup(parent, "ID")
    with job_cgroup() as job:
        subprocess.run(job.command([sys.executable, "-c", _REMOVER, parent]), check=True, timeout=seconds(60))
        assert cgroups_below(parent) == own
        end_daemons(mark, time.monotonic() + seconds(30))
        subprocess.run(job.command([sys.executable, "-c", _REMOVER, parent]), check=True, timeout=seconds(60))
    assert cgroups_below(parent) == {}
    own_cgroup.remove()  # again, which does nothing


_REMOVER = """
import sys
from forebay.workflows.files.daemon_cgroup import DaemonCgroup
DaemonCgroup(sys.argv[1], "ID").remove()
"""


@needs_cgroups
def test_a_daemon_runs_also_where_no_cgroup_can_be_made_and_the_reason_is_said(parent: str, mark: Path) -> None:
    with job_cgroup() as job:
        tops = [place.parent for place in job.places]
        # In a table of mounts of its own, as in a container.
        read_only = " ".join(f"mount -o remount,bind,ro {top};" for top in tops)
        command = ["unshare", "--mount", "/bin/sh", "-ec", f'{read_only} exec "$@"', "sh"]
        try:
            pid, problem = start(job.command([*command, sys.executable, "-c", _STARTER, parent, str(mark)]))
            assert "cannot be used: Read-only file system" in problem
            assert all(str(pid) in (place / "cgroup.procs").read_text().split() for place in job.places)
        finally:
            end_daemons(mark, time.monotonic() + seconds(30))


@needs_cgroups
def test_daemons_that_were_started_before_they_had_a_cgroup_are_named(parent: str, mark: Path) -> None:
    with job_cgroup() as job:
        try:
            pid, problem = start(job.command([sys.executable, "-c", _STARTER, "", str(mark)]))
            assert problem == ""  # nothing was asked for
            assert cgroup_problem(parent, [pid]).startswith(f"process {pid} is in the cgroup /forebay-test-job-")
        finally:
            end_daemons(mark, time.monotonic() + seconds(30))


@needs_cgroups
def test_what_a_sites_command_leaves_is_in_the_reservations_cgroup(parent: str, tmp_path: Path) -> None:
    program = tmp_path / "start"
    program.write_text(f"#!/bin/sh\nsetsid sleep 600 > /dev/null 2>&1 &\necho $! > {tmp_path}/pid\n")
    program.chmod(0o755)
    with job_cgroup() as job:
        subprocess.run(
            job.command([sys.executable, "-c", _SITE, parent, str(program), str(tmp_path)]),
            check=True,
            timeout=seconds(60),
        )
        pid = int((tmp_path / "pid").read_text())
        try:
            own = cgroups_below(parent)
            assert len(own) == len(job.places)
            assert all(pid in pids for pids in own.values())
        finally:
            process = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            select.select([process], [], [], seconds(30))
            os.close(process)


_SITE = """
import sys
from pathlib import Path
from forebay.workflows.files.commands.site_command import CommandRunner
from forebay.workflows.files.commands.site_commands import SiteCommands
parent, program, folder = sys.argv[1:]
commands = SiteCommands.from_json(SiteCommands({"start": (program,)}, {}, 20.0, parent).as_json())
CommandRunner(commands, {"FOREBAY_RESERVATION_ID": "ID"}, Path(folder, "running"), Path(folder, "log")).run("start", {})
"""


@pytest.mark.parametrize("name", ["/forebay", "a/../b", "..", "a//b", "a/", "cgroup procs", "a/.b"])
def test_a_cgroup_outside_the_hierarchy_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cgroup"):
        FilesSettings.from_configuration({"files": {"cgroup": name}}, tmp_path)
    for good in ("", "forebay", "system.slice/forebay.service/daemons"):
        settings = FilesSettings.from_configuration({"files": {"cgroup": good}}, tmp_path)
        assert settings is not None
        assert settings.cgroup == good
