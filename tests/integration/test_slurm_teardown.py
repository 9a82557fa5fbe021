# SPDX-License-Identifier: Apache-2.0
"""The one rule of teardown, sweep and quarantine: a job's data is deleted only if nobody may write it any more, and
what was to outlive the job has its receipts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal

import pytest

from tests.support.load import until
from tests.support.slurm_calls import Start, job_of, outside, reservations, run_to_its_end
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance

JOB = "#DW jobdw capacity=16MiB access_mode=striped type=scratch"


# crash-matrix: a job that Slurm has lost | Slurm says that it does not know the job | what was not to be kept is destroyed; the rest is kept in quarantine
def test_the_sweep_ends_what_slurm_has_lost_and_keeps_what_was_to_be_kept(start_slurm: Start) -> None:
    slurm, instance = start_slurm("sweep_seconds = 0.2", "lost_seconds = 0.2")
    folder = outside(slurm)
    try:
        keeps = slurm.script(JOB, f"#DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={folder}/out")
        for token in ("17", "19"):
            slurm.say(token, "RUNNING")
            slurm.set_up(token, keeps, "forebay:16MiB")
            slurm.ask("data_in", "--token", token, "--job", keeps)
            slurm.ask("pre_run", "--token", token, "--job", keeps)
        drops = slurm.script(JOB)
        slurm.say("18", "RUNNING")
        slurm.set_up("18", drops, "forebay:16MiB")
        slurm.ask("pre_run", "--token", "18", "--job", drops)
        # Not by silence: slurmctld may be away.
        slurm.say("19", "?")
        asked = slurm.times_asked("19")
        until(lambda: slurm.times_asked("19") >= asked + 3, "the sweep to ask for a job again")
        assert {job_of(instance, token)["state"] for token in ("17", "18", "19")} == {"running"}
        slurm.say("17", "")
        slurm.say("18", "")
        until(lambda: job_of(instance, "17")["state"] == "kept", "job 17 to be kept")
        until(lambda: job_of(instance, "18")["state"] == "gone", "job 18 to be gone")
        assert set(reservations(instance)) == {"job17", "job19"}
        assert "job17" not in slurm.ask("show_sessions")
        assert instance.run("doctor").returncode == 0
    finally:
        shutil.rmtree(folder)


# crash-matrix: setup of a job | server, so slow that the time is up | the reason is told, and what is made late goes with the job
def test_a_setup_that_takes_too_long_fails_with_the_reason_and_leaves_nothing(start_slurm: Start) -> None:
    slurm, instance = start_slurm("setup_seconds_max = 0.5")
    instance.ask("create", "shared", "--capacity", "16MiB", "--persistent")
    instance.ask("share", "shared", "--user", str(slurm.uid), "--rights", "write")
    script = slurm.script(JOB, "#DW persistentdw name=shared")
    pid = json.loads(instance.files.server_identity.read_text())["pid"]
    tokens = ("17", "18", "19")  # of which one waits, as a user's reservations are made two at a time
    os.kill(pid, signal.SIGSTOP)
    try:
        calls = [slurm.start("setup", *slurm.setup_arguments(token, script, "forebay:16MiB")) for token in tokens]
        for call in calls:
            output, _ = call.communicate(timeout=seconds(60))
            assert call.returncode == 1
            assert "its reservation is not made within" in output
        ending = slurm.start("teardown", "--token", "19", "--job", script, "--hurry")
    finally:
        os.kill(pid, signal.SIGCONT)
    output, _ = ending.communicate(timeout=seconds(60))
    assert ending.returncode == 0, output
    (told,) = instance.ask("why", "18")["answers"]
    assert told["state"] == "setup"
    assert "setup: its reservation is not made within" in told["waits_for"]
    assert "if Slurm forgets the job, the manager ends it after" in told["ends"]
    # It goes on where it was.
    slurm.set_up("18", script, "forebay:16MiB")
    for token in ("17", "18"):
        slurm.ask("teardown", "--token", token, "--job", script, "--hurry")
    until(lambda: set(reservations(instance)) == {"shared"}, "all of them to be gone")
    assert {job_of(instance, token)["state"] for token in tokens} == {"gone"}
    with instance.manager() as manager:
        assert manager.attachments() == []


def test_each_state_of_a_job_says_what_ends_it_and_when(start_slurm: Start) -> None:
    slurm, instance = start_slurm()
    script = slurm.script(JOB)

    def ends() -> str:
        (told,) = instance.ask("why", "17")["answers"]
        return str(told["ends"])

    slurm.say("17", "PENDING")
    slurm.set_up("17", script, "forebay:16MiB")
    assert "what is not done by then is cancelled" in ends()
    slurm.ask("data_in", "--token", "17", "--job", script)
    assert ends().startswith("the scheduler, where it is PENDING, Priority: see `scontrol show job 17`; if")
    slurm.say("17", "RUNNING")
    slurm.ask("pre_run", "--token", "17", "--job", script)
    assert ends().startswith("its end, or its time limit at 2030-01-02 03:04:05; if Slurm forgets")
    slurm.say("17", "COMPLETED")
    slurm.ask("post_run", "--token", "17", "--job", script)
    assert ends().startswith("their end, or 20")
    slurm.ask("data_out", "--token", "17", "--job", script)
    assert ends().startswith("the scheduler, where it is COMPLETED")
    slurm.say("17", "")
    assert ends().startswith("the scheduler, which does not know the job now; if Slurm forgets")
    slurm.ask("teardown", "--token", "17", "--job", script)


def test_quarantine_ends_after_its_time_and_not_before(start_slurm: Start) -> None:
    slurm, instance = start_slurm("sweep_seconds = 0.2", "quarantine_days = 1.0")
    keeps = slurm.script(JOB, "#DW stage_out type=directory source=$DW_JOB_STRIPED/none destination=/nowhere/out")
    run_to_its_end(slurm, "17", keeps)
    failed = slurm.call("data_out", "--token", "17", "--job", keeps)
    assert failed.returncode == 1
    assert failed.stdout.startswith("data_out: there is no such file or directory to stage")
    slurm.ask("teardown", "--token", "17", "--job", keeps)
    row = job_of(instance, "17")
    assert row["state"] == "kept"
    assert row["deadline_ns"] - row["changed_ns"] == pytest.approx(86400e9, rel=0.01)
    (told,) = instance.ask("why", "17")["answers"]
    assert "it is deleted at" in told["ends"]
    assert set(reservations(instance)) == {"job17"}
    assert [pool["free_bytes"] < pool["capacity_bytes"] for pool in instance.ask("status")["pools"]] == [True]
    # The owner may end it before.
    instance.ask("destroy", "job17")
    until(lambda: job_of(instance, "17")["state"] == "gone", "the job to be gone")


def test_quarantine_that_is_over_is_deleted(start_slurm: Start) -> None:
    slurm, instance = start_slurm("sweep_seconds = 0.2", "quarantine_days = 0.00002")
    keeps = slurm.script(JOB, "#DW stage_out type=directory source=$DW_JOB_STRIPED/none destination=/nowhere/out")
    run_to_its_end(slurm, "17", keeps)
    assert slurm.call("data_out", "--token", "17", "--job", keeps).returncode == 1
    slurm.ask("teardown", "--token", "17", "--job", keeps)
    until(lambda: job_of(instance, "17")["state"] == "gone", "the quarantine to be over")
    assert reservations(instance) == {}
    assert instance.run("doctor").returncode == 0


def test_hurry_alone_is_no_consent_but_during_the_stage_out_it_is(start_slurm: Start) -> None:
    slurm, instance = start_slurm()
    folder = outside(slurm)
    try:
        keeps = slurm.script(JOB, f"#DW stage_out type=file source=$DW_JOB_STRIPED/result destination={folder}/result")
        # While the job runs, as a scheduler says that was begun anew.
        slurm.set_up("17", keeps, "forebay:16MiB")
        slurm.ask("pre_run", "--token", "17", "--job", keeps)
        slurm.say("17", "PENDING")
        slurm.ask("teardown", "--token", "17", "--job", keeps, "--hurry")
        assert job_of(instance, "17")["state"] == "kept"
        # While it is staged out: a program has the file open for writing, so it waits.
        run_to_its_end(slurm, "18", keeps)
        with (reservations(instance)["job18"] / "18" / "result").open("w") as result:
            result.write("of no use")
            result.flush()
            os.chown(result.fileno(), slurm.uid, slurm.gid)
            with slurm.start("data_out", "--token", "18", "--job", str(keeps)) as staging:
                until(lambda: job_of(instance, "18")["state"] == "data_out", "the stage-out to begin")
                slurm.ask("teardown", "--token", "18", "--job", keeps, "--hurry")
                staging.communicate(timeout=seconds(60))
        assert job_of(instance, "18")["state"] == "gone"
        assert set(reservations(instance)) == {"job17"}
        # Before it ran there is nothing to lose.
        slurm.set_up("19", keeps, "forebay:16MiB")
        slurm.ask("teardown", "--token", "19", "--job", keeps, "--hurry")
        assert job_of(instance, "19")["state"] == "gone"
    finally:
        shutil.rmtree(folder)


def test_a_token_that_comes_back_touches_no_older_run(start_slurm: Start) -> None:
    slurm, instance = start_slurm()
    folder = outside(slurm)
    try:
        keeps = slurm.script(JOB, f"#DW stage_out type=directory source=$DW_JOB_STRIPED destination={folder}/out")
        slurm.say("17", "RUNNING")
        slurm.set_up("17", keeps, "forebay:16MiB")
        slurm.ask("data_in", "--token", "17", "--job", keeps)
        slurm.ask("pre_run", "--token", "17", "--job", keeps)
        # A call of a scheduler that died meanwhile comes late.
        late = slurm.call("setup", *slurm.setup_arguments("17", keeps, "forebay:16MiB"))
        assert (late.returncode, late.stdout) == (1, "job 17 runs: its reservation is made already\n")
        first = reservations(instance)["job17"] / "17"
        (first / "written").write_text("by the first run")
        # slurmctld dies and takes the job for one that waits, while its processes still run.
        slurm.say("17", "PENDING")
        slurm.ask("teardown", "--token", "17", "--job", keeps, "--hurry")
        assert (job_of(instance, "17")["run"], job_of(instance, "17")["state"]) == (1, "kept")
        run_to_its_end(slurm, "17", keeps)
        files = reservations(instance)
        assert set(files) == {"job17", "job17.2"}
        (files["job17.2"] / "17" / "written").write_text("by the second run")
        slurm.ask("data_out", "--token", "17", "--job", keeps)
        slurm.ask("teardown", "--token", "17", "--job", keeps)
        assert (job_of(instance, "17")["run"], job_of(instance, "17")["state"]) == (2, "gone")
        assert (folder / "out" / "written").read_text() == "by the second run"
        assert (first / "written").read_text() == "by the first run"
        assert set(reservations(instance)) == {"job17"}
    finally:
        shutil.rmtree(folder)


def test_what_may_still_be_written_is_not_deleted(start_slurm: Start) -> None:
    slurm, instance = start_slurm("sweep_seconds = 0.2")
    script = slurm.script(JOB)
    slurm.set_up("17", script, "forebay:16MiB")
    slurm.ask("pre_run", "--token", "17", "--job", script)
    slurm.say("17", "COMPLETING")
    slurm.ask("post_run", "--token", "17", "--job", script)
    assert "still run" in job_of(instance, "17")["reason"]
    slurm.ask("data_out", "--token", "17", "--job", script)
    slurm.ask("teardown", "--token", "17", "--job", script)
    assert job_of(instance, "17")["state"] == "kept"
    assert set(reservations(instance)) == {"job17"}
    # There was nothing to keep: it goes as soon as Slurm says that nobody writes.
    slurm.say("17", "COMPLETED")
    until(lambda: job_of(instance, "17")["state"] == "gone", "the job to be gone")
    assert reservations(instance) == {}


def test_a_stage_in_that_takes_too_long_ends_with_a_reason(start_slurm: Start) -> None:
    # Less than the stage's process takes to start.
    slurm, instance = start_slurm("stage_in_seconds_max = 0.01")
    folder = outside(slurm)
    try:
        (folder / "mesh").write_bytes(b"mesh")
        script = slurm.script(JOB, f"#DW stage_in type=file source={folder}/mesh destination=$DW_JOB_STRIPED/mesh")
        slurm.set_up("17", script, "forebay:16MiB")
        late = slurm.call("data_in", "--token", "17", "--job", script)
        assert late.returncode == 1
        assert re.match(r"data_in: not done within .*s, and cancelled: stage 1 \(0 of \?", late.stdout), late.stdout
        assert job_of(instance, "17")["reason"].startswith("data_in: not done within")
        until(lambda: instance.ask("stages", "show", "1")["stage"]["state"] == "cancelled", "the stage to be cancelled")
        slurm.ask("teardown", "--token", "17", "--job", script, "--hurry")
        assert reservations(instance) == {}
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("state", ["PENDING", "COMPLETED", "COMPLETING", "?", ""])
def test_a_hurried_teardown_keeps_what_slurm_does_not_call_cancelled(start_slurm: Start, state: str) -> None:
    slurm, instance = start_slurm()
    keeps = slurm.script(JOB, "#DW stage_out type=file source=$DW_JOB_STRIPED/result destination=/nowhere/result")
    slurm.say("17", "RUNNING")
    slurm.set_up("17", keeps, "forebay:16MiB")
    slurm.ask("data_in", "--token", "17", "--job", keeps)
    slurm.ask("pre_run", "--token", "17", "--job", keeps)
    slurm.say("17", state)
    slurm.ask("teardown", "--token", "17", "--job", keeps, "--hurry")
    assert job_of(instance, "17")["state"] == "kept"


# crash-matrix: `scancel --hurry` of a running job | its user | its data is discarded when its last process has gone
def test_a_running_job_that_is_cancelled_in_a_hurry_gives_its_space_back(start_slurm: Start) -> None:
    slurm, instance = start_slurm("quiet_seconds_max = 60.0")
    keeps = slurm.script(JOB, "#DW stage_out type=file source=$DW_JOB_STRIPED/result destination=/nowhere/result")
    slurm.say("17", "RUNNING")
    slurm.set_up("17", keeps, "forebay:16MiB")
    slurm.ask("data_in", "--token", "17", "--job", keeps)
    slurm.ask("pre_run", "--token", "17", "--job", keeps)
    slurm.say("17", "COMPLETING")
    asked = slurm.times_asked("17")
    with slurm.start("teardown", "--token", "17", "--job", str(keeps), "--hurry") as teardown:
        until(lambda: slurm.times_asked("17") >= asked + 2, "the end of its processes to be waited for")
        assert set(reservations(instance)) == {"job17"}
        slurm.say("17", "CANCELLED")
        teardown.communicate(timeout=seconds(60))
    assert job_of(instance, "17")["state"] == "gone"
    assert reservations(instance) == {}
