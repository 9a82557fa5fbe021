# SPDX-License-Identifier: Apache-2.0
"""The folders of a job: what a script may do with them, and what a stage takes of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.slurm_calls import SlurmCalls, Start, job_of, outside, run_to_its_end

pytestmark = pytest.mark.instance

JOB = "#DW jobdw capacity=16MiB access_mode=striped type=scratch"
BOTH = "#DW jobdw capacity=16MiB access_mode=striped,private type=scratch"


def as_user(slurm: SlurmCalls, *command: str) -> subprocess.CompletedProcess[str]:
    """What the job does."""
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": slurm.uid, "group": slurm.gid, "extra_groups": []}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **identity)


def variables(slurm: SlurmCalls, token: str, script: Path) -> dict[str, str]:
    """Those of the job."""
    path = script.with_name("path")
    slurm.ask("paths", "--job", script, "--token", token, "--pathfile", path)
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_removing_the_striped_scratch_leaves_the_private_one(start_slurm: Start) -> None:
    slurm, _instance = start_slurm()
    script = slurm.script(BOTH)
    slurm.set_up("17", script, "forebay:16MiB")
    told = variables(slurm, "17", script)
    striped, private = told["DW_JOB_STRIPED"], told["DW_JOB_PRIVATE"]
    assert as_user(slurm, "sh", "-c", f"echo mine > {private}result; mkdir {striped}out").returncode == 0
    assert Path(striped).name == "17", "scripts take the job's number from it"
    as_user(slurm, "rm", "-rf", striped)
    assert as_user(slurm, "cat", f"{private}result").stdout == "mine\n"
    # Emptied, as DataWarp's mounts were; a script goes on with it. (As the owner of everything, one can do more.)
    assert os.listdir(striped) == [] if os.geteuid() == 0 else not Path(striped).exists()
    if os.geteuid() == 0:
        assert as_user(slurm, "mkdir", f"{striped}again").returncode == 0
        assert as_user(slurm, "mv", striped.rstrip("/"), f"{striped}/../other").returncode != 0


def test_a_stage_out_of_the_striped_scratch_has_nothing_private(start_slurm: Start) -> None:
    slurm, instance = start_slurm()
    folder = outside(slurm)
    try:
        script = slurm.script(BOTH, f"#DW stage_out type=directory source=$DW_JOB_STRIPED destination={folder}/out")
        slurm.say("17", "RUNNING")
        run_to_its_end(slurm, "17", script)
        told = variables(slurm, "17", script)
        as_user(slurm, "sh", "-c", f"echo ours > {told['DW_JOB_STRIPED']}result; echo > {told['DW_JOB_PRIVATE']}secret")
        slurm.ask("data_out", "--token", "17", "--job", script)
        assert [path.name for path in (folder / "out").rglob("*") if "receipt" not in path.name] == ["result"]
        slurm.ask("teardown", "--token", "17", "--job", script)
        assert job_of(instance, "17")["state"] == "gone"
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("file", "folder", "type=file, and the source is a directory; write type=directory"),
        ("directory", "data", "type=directory, and the source is a file; write type=file"),
    ],
)
def test_a_stage_takes_only_what_its_type_says(start_slurm: Start, kind: str, name: str, reason: str) -> None:
    slurm, instance = start_slurm()
    folder = outside(slurm)
    try:
        (folder / "folder").mkdir()
        (folder / "data").write_text("content")
        script = slurm.script(JOB, f"#DW stage_in type={kind} source={folder}/{name} destination=$DW_JOB_STRIPED/in")
        slurm.set_up("17", script, "forebay:16MiB")
        failed = slurm.call("data_in", "--token", "17", "--job", script)
        assert failed.returncode == 1
        assert reason in failed.stdout
        script = slurm.script(
            JOB, f"#DW stage_out type={kind} source=$DW_JOB_STRIPED/{name} destination={folder}/results"
        )
        run_to_its_end(slurm, "18", script)
        striped = variables(slurm, "18", script)["DW_JOB_STRIPED"]
        assert as_user(slurm, "cp", "-r", str(folder / "folder"), str(folder / "data"), striped).returncode == 0
        failed = slurm.call("data_out", "--token", "18", "--job", script)
        assert reason in failed.stdout
        slurm.ask("teardown", "--token", "18", "--job", script)
        assert job_of(instance, "18")["state"] == "kept"
    finally:
        shutil.rmtree(folder)


def test_a_link_is_staged_as_what_it_leads_to(start_slurm: Start) -> None:
    slurm, _instance = start_slurm()
    folder = outside(slurm)
    try:
        lines = (
            f"#DW stage_out type=file source=$DW_JOB_STRIPED/latest destination={folder}/latest",
            f"#DW stage_out type=directory source=$DW_JOB_STRIPED/run destination={folder}/run",
        )
        script = slurm.script(JOB, *lines)
        run_to_its_end(slurm, "17", script)
        striped = variables(slurm, "17", script)["DW_JOB_STRIPED"]
        made = "mkdir run.3; echo kept > run.3/result; echo last > out.9; ln -s run.3 run; ln -s out.9 latest"
        assert as_user(slurm, "sh", "-c", f"cd {striped} && {made}").returncode == 0
        slurm.ask("data_out", "--token", "17", "--job", script)
        slurm.ask("teardown", "--token", "17", "--job", script)
        assert (folder / "latest").read_text() == "last\n"
        assert (folder / "run" / "result").read_text() == "kept\n"
    finally:
        shutil.rmtree(folder)
