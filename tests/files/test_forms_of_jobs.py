# SPDX-License-Identifier: Apache-2.0
"""Jobs on three nodes, job arrays, a job that comes back, the home as a node, and a network that is cut for a while."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.files.guest_centre import CAPACITY, HOME, GuestCentre
from tests.slurm.cluster import PERSON, wait_for
from tests.support.guests import why_no_guests
from tests.support.time_limits import seconds

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("munged") is None, reason="needs MUNGE; ./run test files installs it"),
    pytest.mark.timeout(600),
]

_HEAD = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
"""
_OUT = "#DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={destination}/out\n"


# crash-matrix: A Slurm job with #DW lines on three nodes, one of them the home | nobody | each node reads by the same name what every other one wrote; it is staged out, and nothing is left
@pytest.mark.parametrize("nodes", [("n1", "n2", "n3"), (HOME, "n1", "n2")])
def test_every_node_reads_what_every_other_node_has_written(
    centre: GuestCentre, destination: Path, nodes: tuple[str, ...]
) -> None:
    script = _HEAD + _OUT.format(destination=destination)
    script += """\
set -e
mkdir "$DW_JOB_STRIPED/out"
srun --ntasks-per-node=1 sh -ec 'cd "$DW_JOB_STRIPED"; echo $SLURMD_NODENAME > of-$SLURMD_NODENAME'
srun --ntasks-per-node=1 sh -ec 'cd "$DW_JOB_STRIPED"; pwd > out/$SLURMD_NODENAME; cat of-* >> out/$SLURMD_NODENAME'
"""
    job = centre.cluster.submit(
        script, f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--output=/tmp/job-%j.out"
    )
    centre.wait_until_gone(job)
    for node in nodes:
        file = destination / "out" / node
        assert file.exists(), centre.story(job)
        # The shell knows the folder by its link.
        assert file.read_text().splitlines() == [f"{centre.node_folder}/{job}", *sorted(nodes)]
        assert file.owner() == PERSON
    centre.must_be_clean()


# crash-matrix: A job array with #DW lines, each task on two nodes | nobody | each task has files of its own, which are staged out; nothing is left
def test_each_task_of_an_array_has_files_of_its_own_on_its_nodes(centre: GuestCentre, destination: Path) -> None:
    script = _HEAD + _OUT.format(destination=destination).replace("/out\n", "/out.%A.%a\n")
    script += """\
set -e
mkdir "$DW_JOB_STRIPED/out"
srun --ntasks-per-node=1 sh -ec 'cd "$DW_JOB_STRIPED/out"; echo $SLURM_ARRAY_TASK_ID > $SLURMD_NODENAME'
"""
    array = centre.submit(script, "--array=1-2")
    jobs = [int(job) for job in centre.cluster.ask("squeue", "-h", "-r", "-o", "%A", "-j", str(array)).split()]
    for task in (1, 2):
        wait_for((destination / f"out.{array}.{task}").exists, f"task {task} to be staged out", 180)
    for job in {array, *jobs}:
        centre.wait_until_gone(job)
    for task in (1, 2):
        found = {path.name: path.read_text() for path in (destination / f"out.{array}.{task}").iterdir()}
        assert found == {"n1": f"{task}\n", "n2": f"{task}\n"}
    centre.must_be_clean()


# crash-matrix: A heterogeneous Slurm job with #DW lines, each part on a node of its own | nobody | each part has files of its own on its node, which are staged out; nothing is left
def test_each_part_of_a_heterogeneous_job_has_files_of_its_own(centre: GuestCentre, destination: Path) -> None:
    out = "#DW stage_out type=file source=$DW_JOB_STRIPED/name destination={destination}/part-{node}\n"
    first, second = (out.format(destination=destination, node=node) for node in ("n1", "n2"))
    script = _HEAD.replace("\n", "\n#SBATCH --nodelist=n1\n", 1) + first + "#SBATCH hetjob\n"
    script += "#SBATCH --nodelist=n2\n" + _HEAD.partition("\n")[2] + second
    # Who starts the parts has the first one's variables.
    inside = f"echo $SLURMD_NODENAME > $(echo {centre.node_folder}/[0-9]*)/name"
    script += f"srun --het-group=0,1 sh -c '{inside}'\n"
    job = centre.cluster.submit(script, "--output=/tmp/job-%j.out")
    for part in (job, job + 1):
        centre.wait_until_gone(part)
    for node in ("n1", "n2"):
        assert (destination / f"part-{node}").exists(), centre.story(job)
        assert (destination / f"part-{node}").read_text() == f"{node}\n"
    centre.must_be_clean()


# crash-matrix: A Slurm job with #DW lines on two nodes | Slurm, which requeues it while it writes; it comes back on other nodes | the second run has empty files, its own are staged out, and no node has the first run's mount
def test_a_job_that_is_requeued_has_new_files_on_other_nodes(centre: GuestCentre, destination: Path) -> None:
    script = (
        _HEAD
        + """\
set -e
cd "$DW_JOB_STRIPED"
srun --ntasks-per-node=1 sh -ec 'cd "$DW_JOB_STRIPED"; echo ${SLURM_RESTART_COUNT:-0} > run-on-$SLURMD_NODENAME'
touch go
until read -r line < go; do sleep 0.1; done
ls > $line
"""
    )
    job = centre.submit(script, "--requeue")
    first = _folder_of(centre, job)
    wait_for((first / "go").exists, "the first run", 120)
    assert centre.cluster.run("scontrol", "requeue", str(job)).returncode == 0
    # Slurm waits two minutes before it runs a requeued job, so that it may begin at once it is told.
    wait_for(lambda: centre.cluster.show(job)["JobState"] == "PENDING", "the job to be queued", 60)
    told = ("nodelist=n2,n3", "starttime=now")
    assert centre.cluster.run("scontrol", "update", f"jobid={job}", *told).returncode == 0
    wait_for(lambda: any(path != first for path in _folders_of(centre, job)), "the second run's files", 180)
    (second,) = [path for path in _folders_of(centre, job) if path != first]
    wait_for((second / "go").exists, "the second run", 120)
    names = {path.name: path.read_text() for path in second.glob("run-*")}
    assert names == {"run-on-n2": "1\n", "run-on-n3": "1\n"}, centre.story(job)
    assert "nfs4" not in centre.guests["n1"].run("cat /proc/mounts")
    assert centre.guests["n2"].run("cat /proc/mounts").count(" nfs4 ") == 1
    (second / "go").write_text(f"{destination}/listed\n")
    centre.wait_until_gone(job)
    centre.must_be_clean()


# crash-matrix: A Slurm job that writes on two nodes | the network of one node, cut for some seconds | that node waits, goes on within 15 s after it is healed, and no line is lost; the other node notices nothing
def test_a_node_that_is_cut_off_for_a_while_goes_on(centre: GuestCentre, destination: Path) -> None:
    script = _HEAD + _OUT.format(destination=destination)
    script += """\
set -e
cd "$DW_JOB_STRIPED"
mkdir out
touch go
srun --ntasks-per-node=1 bash -ec '
    cd "$DW_JOB_STRIPED"
    number=0
    until read -r line < go; do
        number=$((number + 1)); echo $number >> out/$SLURMD_NODENAME; sync out/$SLURMD_NODENAME
    done
    echo $number > out/last-$SLURMD_NODENAME'
"""
    job = centre.submit(script)
    out = _folder_of(centre, job) / "out"
    guest = centre.guests["n2"]
    wait_for(lambda: min(_lines(out / "n1"), _lines(out / "n2")) > 5, "both nodes to write", 120)
    began = time.monotonic()
    guest.cut()
    try:
        before, other = _lines(out / "n2"), _lines(out / "n1")
        # As long as it takes the other node to go on, and time enough for TCP to wait longer and longer.
        wait_for(lambda: _lines(out / "n1") > other + 20 and time.monotonic() > began + 8, "the other node", 60)
        assert _lines(out / "n2") <= before + 2
        before = _lines(out / "n2")
    finally:
        guest.heal()
    healed = time.monotonic()
    wait_for(lambda: _lines(out / "n2") > before + 2, "the node to go on", seconds(60))
    stall = time.monotonic() - healed
    assert stall < seconds(15), f"{stall:.1f} s after a cut of {healed - began:.1f} s"
    (out.parent / "go").write_text("go\n")
    centre.wait_until_gone(job)
    for node in ("n1", "n2"):
        lines = [int(line) for line in (destination / "out" / node).read_text().splitlines()]
        last = int((destination / "out" / f"last-{node}").read_text())
        assert lines == list(range(1, last + 1)), centre.story(job)
    centre.must_be_clean()


def _folders_of(centre: GuestCentre, job: int) -> list[Path]:
    """The job's files at the home, of each run that has some."""
    return list(centre.instance.root.glob(f"reservations/*/files/{job}"))


def _folder_of(centre: GuestCentre, job: int) -> Path:
    wait_for(lambda: bool(_folders_of(centre, job)), f"job {job} to be set up", 120)
    (folder,) = _folders_of(centre, job)
    return folder


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
