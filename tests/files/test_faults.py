# SPDX-License-Identifier: Apache-2.0
"""What dies while jobs have files on two nodes, and who tries what is not theirs."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.workflows.files.daemons import find_daemons
from tests.files.guest_centre import CAPACITY, GuestCentre
from tests.slurm.cluster import wait_for
from tests.support.guests import why_no_guests

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("munged") is None, reason="needs MUNGE; ./run test files installs it"),
    pytest.mark.timeout(600),
]

#: Node 2 writes and syncs line after line until `go` has something in it. A file is looked at anew when it is opened.
_COUNTING = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
#DW stage_out type=directory source=$DW_JOB_STRIPED destination={{destination}}/out
set -e
cd "$DW_JOB_STRIPED"
touch go
srun --nodes=1 --ntasks=1 --nodelist=n2 bash -c '
    set -e
    cd "$DW_JOB_STRIPED"
    number=0
    until read -r line < go; do number=$((number + 1)); echo $number >> lines; sync lines; done
    echo $number > last'
"""


def _kill_engine(centre: GuestCentre) -> None:
    (folder,) = [path for path in (centre.instance.root / "drivers").iterdir() if path.is_dir()]
    (pid,) = find_daemons(folder / "ganesha.conf")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: bool(set(find_daemons(folder / "ganesha.conf")) - {pid}), "the NFS server to be back")


def _kill_manager(centre: GuestCentre) -> None:
    centre.instance.kill_manager()
    centre.instance.up()


def _kill_server(centre: GuestCentre) -> None:
    centre.instance.kill_server()
    centre.instance.up()


# crash-matrix: A Slurm job that writes on two nodes | the NFS server, the manager or the staging server, killed | the job waits and goes on; no line is lost, and nothing is left
@pytest.mark.parametrize("kill", [_kill_engine, _kill_manager, _kill_server])
def test_a_job_survives_what_is_killed_at_the_home(
    centre: GuestCentre, destination: Path, kill: Callable[[GuestCentre], None]
) -> None:
    job = centre.submit(_COUNTING.format(destination=destination))
    folder = _folder_of(centre, job)
    _wait_for_lines(folder, 5)
    for _ in range(2):
        kill(centre)
        _wait_for_lines(folder, _lines(folder) + 5)
    (folder / "go").write_text("go\n")
    centre.wait_until_gone(job)
    lines = [int(line) for line in (destination / "out" / "lines").read_text().splitlines()]
    assert lines == list(range(1, int((destination / "out" / "last").read_text()) + 1)), centre.story(job)
    centre.must_be_clean()


def test_another_node_and_an_ordinary_user_get_no_way_in(centre: GuestCentre, destination: Path) -> None:
    script = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
cd "$DW_JOB_STRIPED"
touch go
until read -r line < go; do sleep 0.1; done
"""
    job = centre.cluster.submit(script, "--nodes=1", "--nodelist=n1", "--output=/dev/null")
    folder = _folder_of(centre, job)
    wait_for((folder / "go").exists, "the job to run", 120)
    first, second = centre.guests["n1"], centre.guests["n2"]
    (line,) = [line for line in first.run("cat /proc/mounts").splitlines() if " nfs4 " in line]
    source, options = line.split()[0], line.split()[3]
    (port,) = [option for option in options.split(",") if option.startswith("port=")]
    second.run("mkdir -p /run/try")
    status, said = second.try_to_run(f"mount -t nfs4 -o vers=4.2,{port},retry=0 {source} /run/try")
    assert status != 0, said
    # The root of the export tree is nothing to go on from.
    second.try_to_run(f"mount -t nfs4 -o vers=4.2,{port},retry=0 {source.split(':')[0]}:/ /run/try")
    assert second.run("ls /run/try") == ""
    second.try_to_run("umount /run/try")
    # With a port of its own choice the listed node is refused, too: so any of its users is.
    first.run("mkdir -p /run/try")
    wanted = f"vers=4.2,{port},retry=0,noresvport,nosharecache"
    status, said = first.try_to_run(f"mount -t nfs4 -o {wanted} {source} /run/try && ls /run/try")
    first.try_to_run("umount /run/try")
    assert status != 0, said
    (folder / "go").write_text("go\n")
    centre.wait_until_gone(job)
    centre.must_be_clean()


def test_a_job_without_a_burst_buffer_needs_no_manager(centre: GuestCentre) -> None:
    centre.instance.kill_manager()
    try:
        job = centre.submit("#!/bin/bash\ntrue\n")
        wait_for(lambda: centre.cluster.show(job).get("JobState") == "COMPLETED", f"job {job} to be over", 120)
    finally:
        centre.instance.up()


# crash-matrix: A Slurm job on two nodes | a program that stays behind on a node and has a file open for writing | that node is fenced and named; all that was synced is staged out
# crash-matrix: A Slurm job on two nodes | a program that stays behind on a node and keeps the mount alive, also in namespaces of its own | the node is clean, and the program can write nothing any more
@pytest.mark.parametrize(
    "left",
    [
        pytest.param("exec sleep 600 >> whole", id="writes"),
        pytest.param("exec sleep 600", id="stays"),
        pytest.param("exec unshare --user --mount sleep 600", id="hides"),
    ],
)
def test_a_program_that_stays_behind(centre: GuestCentre, destination: Path, left: str) -> None:
    writes = ">>" in left
    script = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
#DW stage_out type=directory source=$DW_JOB_STRIPED destination={destination}/out
cd "$DW_JOB_STRIPED"
echo whole > whole
"""
    guest = centre.guests["n2"]
    job = centre.submit(script + "touch go\nuntil read -r line < go; do sleep 0.1; done\n")
    folder = _folder_of(centre, job)
    wait_for((folder / "go").exists, "the job to run", 120)
    wait_for(lambda: "nfs4" in guest.run("cat /proc/mounts"), "node 2 to have mounted")
    # Slurm did not start it, and does not end it.
    user = f"setpriv --reuid={folder.stat().st_uid} --regid={folder.stat().st_gid} --clear-groups"
    inside = f"cd {centre.node_folder}/{job} && {left}"
    guest.run(f"{user} setsid sh -c '{inside}' > /dev/null 2>&1 & echo $! > /run/left")
    try:
        wait_for(lambda: "sleep" in guest.run("cat /proc/$(cat /run/left)/comm"), "the program to run")
        (folder / "go").write_text("go\n")
        centre.wait_until_gone(job)
        answers = centre.instance.ask("why", str(job))["answers"]
        (waits,) = [answer["waits_for"] for answer in answers if answer["subject"].startswith("job ")]
        assert ("node n2 (it cannot be unmounted" in waits) == writes, waits
        assert (destination / "out" / "whole").read_text() == "whole\n"
    finally:
        guest.try_to_run("kill -9 $(cat /run/left)")
    centre.must_be_clean()


def _folder_of(centre: GuestCentre, job: int) -> Path:
    """The job's files at the home."""
    pattern = f"reservations/*/files/{job}"
    wait_for(lambda: bool(list(centre.instance.root.glob(pattern))), f"job {job} to be set up", 120)
    (folder,) = centre.instance.root.glob(pattern)
    return folder


def _lines(folder: Path) -> int:
    path = folder / "lines"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _wait_for_lines(folder: Path, count: int) -> None:
    wait_for(lambda: _lines(folder) >= count, f"{count} lines", 120)
