# SPDX-License-Identifier: Apache-2.0
"""Centres that decided otherwise: SlurmUser=root, burst_buffer.conf without TeardownFailure, burst_buffer/lua."""

from __future__ import annotations

from pathlib import Path

from tests.slurm.centre import Centre, needs_slurm, programs, slurm_centre
from tests.slurm.cluster import PERSON, wait_for

pytestmark = needs_slurm

_THIN_PATH = """\
#!/bin/bash
#DW jobdw capacity=64MiB access_mode=striped type=scratch {pool}
#DW stage_in type=file source={home}/input.txt destination=$DW_JOB_STRIPED/in.txt
#DW stage_out type=file source=$DW_JOB_STRIPED/out.txt destination={destination}/out.txt
#FB stage_out stream=flow every=2 destination={destination}/steps
tr a-z A-Z < "${{DW_JOB_STRIPED}}in.txt" > "${{DW_JOB_STRIPED}}out.txt"
{python} {home}/simulate.py
"""

_ACCOUNTS = {"poor": 'quota = "32MiB"\n', "rich": ""}


def run_thin_path(centre: Centre, home: Path, python: Path, destination: Path, pool: str = "") -> None:
    """A job with stage-in, a stream, chosen steps and stage-out."""
    job = centre.cluster.submit(_THIN_PATH.format(home=home, python=python, destination=destination, pool=pool))
    wait_for(lambda: centre.states().get(str(job)) == "gone", f"job {job} to be gone", 180)
    assert (destination / "out.txt").read_text() == "WATER FLOWS\n", centre.cluster.output(job)
    assert len(list((destination / "steps").glob("*.bp*"))) == 3
    wait_for(lambda: f"JobID={job} " not in centre.cluster.buffers(), "Slurm to have let go of it")
    assert centre.instance.run("doctor").returncode == 0


def test_the_thin_path_with_slurm_as_root(folder: Path, home: Path, python: Path, destination: Path) -> None:
    below = folder / "of-root"
    below.mkdir(mode=0o755)
    with slurm_centre(below, python, slurm_user="root") as centre:
        run_thin_path(centre, home, python, destination)
        centre.must_be_clean()


def test_without_teardown_failure_a_failed_job_waits_and_loses_nothing(
    folder: Path, home: Path, python: Path, destination: Path
) -> None:
    below = folder / "without-teardown-failure"
    below.mkdir(mode=0o755)
    with slurm_centre(below, python, flags="EnablePersistent") as centre:
        run_thin_path(centre, home, python, destination)
        # A stage-in that fails: held, with the reason; only scancel ends it.
        missing = f"#DW stage_in type=file source={home}/nothing destination=$DW_JOB_STRIPED/x\ntrue\n"
        job = centre.cluster.submit(f"#!/bin/bash\n#DW jobdw capacity=64MiB type=scratch\n{missing}")
        wait_for(lambda: "data_in" in centre.cluster.ask("scontrol", "show", "job", str(job)), "the reason", 120)
        centre.cluster.run("scancel", str(job), user=PERSON)
        centre.wait_until_gone(job)
        # A stage-out that fails: Slurm keeps the buffer until `scancel --hurry`; we keep the data all the same.
        wrong = f"#DW stage_out type=file source=$DW_JOB_STRIPED/x destination={home}/no/such/../../../proc/x\n"
        job = centre.cluster.submit(
            f"#!/bin/bash\n#DW jobdw capacity=64MiB type=scratch\n{wrong}echo kept > ${{DW_JOB_STRIPED}}x\n"
        )
        wait_for(lambda: "data_out" in centre.cluster.ask("scontrol", "show", "job", str(job)), "the reason", 120)
        centre.cluster.run("scancel", "--hurry", str(job), user=PERSON)
        wait_for(lambda: centre.states().get(str(job)) == "kept", f"job {job} to be kept", 120)
        (reservation,) = centre.instance.ask("ls")["reservations"]
        assert (Path(reservation["files_path"]) / str(job) / "x").read_text() == "kept\n"
        centre.instance.ask("destroy", reservation["name"], "--force")
        centre.must_be_clean()


def test_a_slurm_without_the_datawarp_plugin_runs_jobs_by_lua(
    folder: Path, home: Path, python: Path, destination: Path
) -> None:
    below = folder / "lua"
    below.mkdir(mode=0o755)
    script = Path(__file__).parents[3] / "workflows/slurm/burst_buffer.lua"
    hooks = script.read_text().replace("/path/to/dw_wlm_cli", str(programs() / "dw_wlm_cli"))
    with slurm_centre(below, python, plugin="burst_buffer/lua", scripts={"burst_buffer.lua": hooks}) as centre:
        run_thin_path(centre, home, python, destination, pool="pool=forebay")
        # A persistent reservation is made by `forebay create`, and used by `persistentdw`.
        centre.instance.ask("create", "mesh", "--capacity", "64MiB", "--files", "64MiB", "--persistent")
        centre.instance.ask("share", "mesh", "--user", PERSON, "--rights", "write")
        user = centre.cluster.submit(
            "#!/bin/bash\n#DW persistentdw name=mesh\n"
            "test -d $DW_PERSISTENT_STRIPED_mesh && echo $FOREBAY_RESERVATION\n"
        )
        wait_for(lambda: centre.states().get(str(user)) == "gone", f"job {user} to be over", 180)
        assert centre.cluster.output(user) == "mesh\n", centre.cluster.output(user)
        centre.instance.ask("destroy", "mesh")
        # What cannot be done is told at submission, and why a stage fails by Slurm itself.
        refused = centre.cluster.try_to_submit("#!/bin/bash\n#DW swap 1GiB\n#DW jobdw pool=forebay capacity=1GiB\n")
        assert refused.returncode != 0
        assert "swap is not there" in refused.stderr
        assert "forebay" in centre.cluster.run("scontrol", "show", "bbstat", "pools", user=PERSON).stdout
        centre.must_be_clean()


def test_a_job_counts_in_the_account_that_slurm_has_for_it(folder: Path, python: Path) -> None:
    below = folder / "accounts"
    below.mkdir(mode=0o755)
    accounts = "".join(f'[accounts.{name}]\nusers = ["{PERSON}"]\n{quota}' for name, quota in _ACCOUNTS.items())
    script = "#!/bin/bash\n#DW jobdw capacity=64MiB type=scratch\ntrue\n"
    with slurm_centre(below, python, settings=accounts) as centre:
        # Without accounting, Slurm takes any account; of what it took, nothing else that the user writes changes it.
        forged = ("--job-name", "x Account=rich JobState=RUNNING", "--comment", "Account=rich JobState=RUNNING")
        poor = centre.cluster.submit(script, "--account", "poor", *forged)
        told = "quota of account poor is 32 MiB"
        wait_for(lambda: told in centre.cluster.ask("scontrol", "show", "job", str(poor)), "the reason", 120)
        centre.cluster.run("scancel", str(poor), user=PERSON)
        rich = centre.cluster.submit(script, "--account", "rich")
        none = centre.cluster.submit(script)
        centre.wait_until_gone(poor, rich, none)
        centre.must_be_clean()
