# SPDX-License-Identifier: Apache-2.0
"""A job's program that asks libdatawarp for a copy at the job's end, under stock Slurm."""

from __future__ import annotations

import pwd
from pathlib import Path

from tests.slurm.centre import needs_slurm
from tests.slurm.cluster import PERSON, Cluster, wait_for
from tests.support.datawarp_program import AT_JOB_END, REVOKE, DatawarpProgram
from tests.support.instance import CommandLineInstance

pytestmark = needs_slurm

_SCRIPT = """\
#!/bin/bash
#DW jobdw capacity=64MiB access_mode=striped type=scratch
set -e
echo first > "${{DW_JOB_STRIPED}}first"
echo second > "${{DW_JOB_STRIPED}}second"
{program} file_out "${{DW_JOB_STRIPED}}first" {destination}/first {at_job_end}
{program} file_out "${{DW_JOB_STRIPED}}second" {destination}/second {at_job_end}
{program} file_out "${{DW_JOB_STRIPED}}first" null {revoke}
{program} query_file "${{DW_JOB_STRIPED}}second"
echo last > "${{DW_JOB_STRIPED}}second"
"""


# crash-matrix: A Slurm job whose program asks for a copy at its end | nobody | it lies at its destination, although no line asks for a stage-out, and nothing is left
def test_what_a_program_defers_is_copied_in_data_out(
    instance: CommandLineInstance, cluster: Cluster, folder: Path, destination: Path
) -> None:
    person = pwd.getpwnam(PERSON)
    program = DatawarpProgram(folder, instance, person.pw_uid, person.pw_gid)
    script = _SCRIPT.format(program=program.path, destination=destination, at_job_end=AT_JOB_END, revoke=REVOKE)
    job = cluster.submit(script)

    def state() -> str | None:
        jobs = {row["token"]: row["state"] for row in instance.ask("status", "--all")["jobs"]}
        return jobs.get(str(job))

    wait_for(lambda: state() == "gone", f"job {job} to be over", 180)
    assert cluster.output(job) == "0\n0\n0\n0 0 1 0 0\n"
    assert (destination / "second").read_text() == "last\n"
    assert (destination / "second").stat().st_uid == person.pw_uid
    assert not (destination / "first").exists()
    assert instance.ask("ls")["reservations"] == []
