# SPDX-License-Identifier: Apache-2.0
"""Jobs with `#DW` lines under stock Slurm: its plugin burst_buffer/datawarp, our dw_wlm_cli, an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import adios2
import numpy as np
import pytest

from tests.slurm.cluster import PERSON, Cluster, make_person, make_python, python_is_usable, wait_for
from tests.support.instance import CommandLineInstance
from tests.support.staging_server import forebayd

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Slurm's node starts jobs as other users"),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test slurm installs it"),
    pytest.mark.skipif(not python_is_usable(), reason="needs the distribution's Python in the version of this one"),
    pytest.mark.timeout(400),
]

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

_SIMULATE = """\
import adios2, numpy as np
io = adios2.Adios().declare_io("flow")
io.set_engine("Plugin")
io.set_parameters({"PluginName": "forebay", "PluginLibrary": "forebay_adios2", "Stream": "flow"})
with adios2.Stream(io, "flow", "w") as stream:
    for _ in stream.steps(5):
        T = np.full((8, 8), float(stream.current_step()))
        stream.write("T", T, T.shape, [0, 0], T.shape)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where other users may go: pytest closes its own folders to them whenever another run begins."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def home() -> Path:
    """Of the person, with what the jobs read."""
    person = make_person()
    path = Path(person.pw_dir)
    (path / "input.txt").write_text("water flows\n")
    (path / "simulate.py").write_text(_SIMULATE)
    return path


@pytest.fixture(scope="module")
def python(folder: Path) -> Path:
    return make_python(folder / "python")


@pytest.fixture(scope="module")
def instance(folder: Path, python: Path) -> Iterator[CommandLineInstance]:
    """Of root, with Slurm's user as the trusted scheduler."""
    configuration = folder / "forebay.toml"
    configuration.write_text(f'root = "{folder}/root"\n[slurm]\nscheduler_user = "slurm"\n')
    of_root = CommandLineInstance(folder / "root", capacity="1GiB", python=python)
    of_root.environment["FOREBAY_CONFIG"] = str(configuration)
    of_root.environment["SLURM_CONF"] = str(folder / "slurm" / "etc" / "slurm.conf")
    with of_root as up:
        wait_for((folder / "root" / "slurm" / "snapshot").exists, "the pool's list")
        yield up


@pytest.fixture(scope="module")
def cluster(folder: Path, instance: CommandLineInstance, home: Path) -> Iterator[Cluster]:
    program = forebayd().parents[1] / "workflows" / "dw_wlm_cli"
    with Cluster(folder / "slurm", program, folder / "forebay.toml") as running:
        yield running


@pytest.fixture
def destination(home: Path, request: pytest.FixtureRequest) -> Path:
    """An empty folder of the person's."""
    path = home / str(request.node.name)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    shutil.chown(path, PERSON)
    return path


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
    assert (Path(reservation["files_path"]) / "out" / "result.txt").read_text() == "WATER FLOWS\n"
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
