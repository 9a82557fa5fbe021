# SPDX-License-Identifier: Apache-2.0
"""Jobs with `#DW` lines under stock Slurm: its plugin burst_buffer/datawarp, our dw_wlm_cli, an ordinary user."""

from __future__ import annotations

import pwd
import shutil
from pathlib import Path

import adios2
import numpy as np

from tests.slurm.centre import needs_slurm
from tests.slurm.cluster import PERSON, Cluster, wait_for
from tests.support.instance import CommandLineInstance

pytestmark = needs_slurm

_SCRIPT = """\
#!/bin/bash
#DW jobdw capacity=64MiB access_mode=striped type=scratch
#DW stage_in type=file source={home}/input.txt destination=$DW_JOB_STRIPED/in/input.txt
#DW stage_out type=directory  source=$DW_JOB_STRIPED/out destination={destination}/files
#FB stage_out stream=flow every=2 destination={destination}/steps format=bp5
set -e
mkdir -p "${{DW_JOB_STRIPED}}out"
tr a-z A-Z < "${{DW_JOB_STRIPED}}in/input.txt" > "${{DW_JOB_STRIPED}}out/result.txt"
{python} {home}/simulate.py
"""


def states(instance: CommandLineInstance) -> dict[str, str]:
    """State of each job, by its number."""
    return {job["token"]: job["state"] for job in instance.ask("status", "--all")["jobs"]}


# crash-matrix: A Slurm job with #DW lines | nobody | files and chosen steps lie at their destination, nothing is left
def test_a_job_gets_its_files_and_leaves_its_results(
    instance: CommandLineInstance, cluster: Cluster, home: Path, python: Path, destination: Path
) -> None:
    job = cluster.submit(_SCRIPT.format(home=home, destination=destination, python=python))
    wait_for(lambda: states(instance).get(str(job)) == "gone", f"job {job} to be over", 180)

    assert (destination / "files" / "result.txt").read_text() == "WATER FLOWS\n", cluster.output(job)
    for step in (0, 2, 4):
        (output,) = (destination / "steps").glob(f"*{step:06d}*.bp*")
        with adios2.FileReader(str(output)) as reader:
            assert np.array_equal(reader.read("T"), np.full((8, 8), float(step)))
    assert not list((destination / "steps").glob("*000001*.bp*"))
    assert (destination / "files" / "result.txt").stat().st_uid == pwd.getpwnam(PERSON).pw_uid
    assert instance.ask("ls")["reservations"] == []
    assert instance.run("doctor").returncode == 0
    wait_for(lambda: "JobID=" not in cluster.ask("scontrol", "show", "burst"), "Slurm to have let go of its buffer")


# crash-matrix: A Slurm job's stage-out | the destination may not be written | its data is kept, and its owner sees why
def test_a_job_whose_stage_out_fails_keeps_its_data(
    instance: CommandLineInstance, cluster: Cluster, home: Path, python: Path, destination: Path
) -> None:
    destination.chmod(0o500)
    shutil.chown(destination, "root")
    job = cluster.submit(_SCRIPT.format(home=home, destination=destination, python=python))
    wait_for(lambda: states(instance).get(str(job)) == "kept", f"job {job} to be kept", 180)

    (row,) = [job_row for job_row in instance.ask("status")["jobs"] if job_row["token"] == str(job)]
    assert "data_out" in row["reason"]
    (reservation,) = instance.ask("ls")["reservations"]
    assert reservation["name"] == row["reservation"]
    assert reservation["files_bytes"] == 64 << 20
    assert (Path(reservation["files_path"]) / str(job) / "out" / "result.txt").read_text() == "WATER FLOWS\n"
    wait_for(lambda: f"JobID={job}" not in cluster.ask("scontrol", "show", "burst"), "Slurm to have let go of it")
    instance.ask("destroy", row["reservation"], "--force")


def test_a_mistaken_directive_is_told_when_the_job_is_submitted(cluster: Cluster, home: Path) -> None:
    script = home / "wrong.sh"
    script.write_text("#!/bin/bash\n#DW jobdw capacity=1.5GiB access_mode=striped type=scratch\ntrue\n")
    done = cluster.run("sbatch", str(script), user=PERSON)
    assert done.returncode != 0
    assert "capacity=1.5GiB is no size" in done.stderr


def test_a_persistent_reservation_is_made_used_and_destroyed_by_jobs(
    instance: CommandLineInstance, cluster: Cluster, home: Path
) -> None:
    made = "#!/bin/bash\n#BB create_persistent name=pool1 capacity=64MiB access=striped type=scratch\ntrue\n"
    cluster.submit(made)
    wait_for(lambda: "pool1" in cluster.ask("scontrol", "show", "burst"), "Slurm to know the reservation", 120)
    (row,) = [info for info in instance.ask("ls")["reservations"] if info["name"] == "pool1"]
    assert (row["files_bytes"], row["owner_uid"]) == (64 << 20, pwd.getpwnam(PERSON).pw_uid)

    used = cluster.submit(
        "#!/bin/bash\n#DW persistentdw name=pool1\n"
        f"#DW stage_in type=file source={home}/input.txt destination=$DW_PERSISTENT_STRIPED_pool1/input.txt\n"
        'cat "${DW_PERSISTENT_STRIPED_pool1}input.txt"\necho "$FOREBAY_RESERVATION"\n'
    )
    wait_for(lambda: states(instance).get(str(used)) == "gone", f"job {used} to be over", 180)
    assert cluster.output(used) == "water flows\npool1\n"
    with instance.manager() as manager:
        assert manager.attachments() == []

    # What users ask, with arguments that Slurm passes on as they are.
    shown = cluster.run("scontrol", "show", "bbstat", "sessions", user=PERSON).stdout
    assert "pool1" in shown, shown
    assert cluster.run("scontrol", "show", "bbstat", "../snapshot", user=PERSON).stdout == "Error running dwstat\n"

    cluster.submit("#!/bin/bash\n#BB destroy_persistent name=pool1\ntrue\n")
    wait_for(lambda: "pool1" not in {info["name"] for info in instance.ask("ls")["reservations"]}, "it to go", 120)
    wait_for(lambda: "pool1" not in cluster.ask("scontrol", "show", "burst"), "Slurm to have let go of it", 120)


# crash-matrix: slurmctld is started | manager, killed before | Slurm knows its pool and its buffers; a job that was submitted meanwhile runs when the manager is back
def test_slurm_starts_and_takes_jobs_while_the_manager_is_away(
    instance: CommandLineInstance, cluster: Cluster, home: Path
) -> None:
    cluster.submit("#!/bin/bash\n#BB create_persistent name=pool2 capacity=64MiB access=striped type=scratch\ntrue\n")
    wait_for(lambda: "pool2" in cluster.ask("scontrol", "show", "burst"), "Slurm to know the reservation", 120)
    wait_for(lambda: cluster.ask("squeue", "--noheader") == "", "an empty queue")
    instance.kill_manager()
    cluster.kill_controller()
    cluster.start_controller()
    wait_for(lambda: "Name=pool2" in cluster.ask("scontrol", "show", "burst"), "Slurm to know it still", 120)
    shown = cluster.ask("scontrol", "show", "burst")
    assert "DefaultPool=forebay" in shown
    job = cluster.submit(
        "#!/bin/bash\n#DW jobdw capacity=64MiB access_mode=striped type=scratch\n#DW persistentdw name=pool2\n"
        'touch "${DW_PERSISTENT_STRIPED_pool2}was-here"\n'
    )
    instance.up()
    # A call that met no manager may have ended in a teardown; Slurm sets the job up again.
    wait_for(lambda: cluster.show(job).get("JobState") == "COMPLETED", f"job {job} to be over", 180)
    wait_for(lambda: states(instance).get(str(job)) == "gone", f"what job {job} had to be gone", 180)
    (row,) = [info for info in instance.ask("ls")["reservations"] if info["name"] == "pool2"]
    assert (Path(row["files_path"]) / "was-here").exists(), cluster.output(job)
    cluster.submit("#!/bin/bash\n#BB destroy_persistent name=pool2\ntrue\n")
    wait_for(lambda: "pool2" not in {info["name"] for info in instance.ask("ls")["reservations"]}, "it to go", 120)
    assert instance.run("doctor").returncode == 0
    # What Slurm 22.05 forgets when it is killed before it saved its state: docs/operations/slurm.md.
    cluster.run("scancel", "--hurry", "--user", PERSON)
    cluster.restart_controller()
