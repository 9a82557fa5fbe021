# SPDX-License-Identifier: Apache-2.0
"""Jobs that Slurm holds because their setup failed: those for which there was no room only for the moment are released
by the manager, the others are not, and `forebay why` tells of both.
"""

from __future__ import annotations

import os
import pwd
from functools import partial
from pathlib import Path

import pytest

from forebay.errors import PermissionDeniedError
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.other_user import as_user
from tests.support.slurm_calls import SlurmCalls, Start, job_of

pytestmark = pytest.mark.instance

JOB = "#DW jobdw capacity=16MiB access_mode=striped type=scratch"
SWEEPS = "sweep_seconds = 0.2"


def account() -> tuple[str, ...]:
    """Settings of one that has room for a single job."""
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    return ("[accounts.poor]", f'users = ["{user.pw_name}"]', 'quota = "32MiB"')


def fail_to_set_up(slurm: SlurmCalls, token: str, script: Path, capacity: str = "forebay:16MiB") -> str:
    """What setup says; then Slurm holds the job, and tears down what there is of it."""
    slurm.say(token, "PENDING")
    failed = slurm.call("setup", *slurm.setup_arguments(token, script, capacity))
    assert failed.returncode == 1
    slurm.ask("teardown", "--token", token, "--job", script, "--hurry")
    slurm.hold(token, f"burst_buffer/datawarp: setup: {failed.stdout.strip()}")
    return failed.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: jobs' users are not the instance's own")
def test_nobody_takes_the_name_of_a_job_to_come(start_slurm: Start) -> None:
    """The numbers of jobs are easily guessed, and who has the name of one keeps that job from its reservation."""
    slurm, instance = start_slurm()

    def create(name: str) -> None:
        with ManagerClient(Instance(instance.root)) as manager:
            manager.create(name, "8MiB", persistent=True)

    for name in ("job17", "job17.2"):
        with pytest.raises(PermissionDeniedError, match="those of Slurm's jobs"):
            as_user(slurm.uid, partial(create, name))
        refused = slurm.call("create_persistent", "-c", "CLI", "-t", name, "-u", str(slurm.uid), "-C", "forebay:1")
        assert "those of Slurm's jobs" in refused.stdout
        assert refused.returncode == 1
    as_user(slurm.uid, partial(create, "jobs"))
    slurm.set_up("17", slurm.script(JOB), "forebay:16MiB")


def wait_for_sweeps(slurm: SlurmCalls, token: str) -> None:
    asked = slurm.times_asked(token)
    until(lambda: slurm.times_asked(token) >= asked + 3, "the sweep to look at the job")


def why(instance: CommandLineInstance, token: str) -> dict[str, str]:
    (answer,) = instance.ask("why", token)["answers"]
    return dict(answer)


# crash-matrix: Slurm's setup of a job | nobody, the server is drained | the job is held, and released when there is room
def test_a_job_that_met_a_drained_server_is_released(start_slurm: Start) -> None:
    slurm, instance = start_slurm(SWEEPS)
    script = slurm.script(JOB)
    instance.ask("drain")
    told = fail_to_set_up(slurm, "17", script)
    assert "is drained" in told
    assert "the job is released by itself when there is room" in told
    wait_for_sweeps(slurm, "17")
    assert slurm.told() == []
    answer = why(instance, "17")
    assert answer["state"] == "waiting"
    assert answer["waits_for"].startswith("room: setup: server")
    assert "the manager then releases the job" in answer["ends"]
    instance.kill_manager()
    instance.up()
    instance.ask("undrain")
    until(lambda: "release 17" in slurm.told(), "the job to be released")
    slurm.set_up("17", script, "forebay:16MiB")
    row = job_of(instance, "17")
    assert (row["state"], row["run"], row["reservation"]) == ("data_in", 1, "job17")
    instance.ask("down", "--force")
    instance.up()


def test_a_job_beyond_a_quota_is_released_when_another_has_ended(start_slurm: Start) -> None:
    slurm, instance = start_slurm(SWEEPS, *account())
    script = slurm.script(JOB)
    for token in ("17", "18", "19"):
        slurm.say(token, "PENDING")
        slurm.set_account(token, "poor")
    slurm.set_up("17", script, "forebay:16MiB")
    for token in ("18", "19"):
        assert "of which 24 MiB are held" in fail_to_set_up(slurm, token, script)
    wait_for_sweeps(slurm, "18")
    assert slurm.told() == []
    slurm.ask("teardown", "--token", "17", "--job", script, "--hurry")
    until(lambda: slurm.told() != [], "a job to be released")
    # For both there is no room: which is released depends on where the sweep is.
    released = slurm.told()[0].removeprefix("release ")
    other = "18" if released == "19" else "19"
    wait_for_sweeps(slurm, other)
    slurm.set_up(released, script, "forebay:16MiB")
    wait_for_sweeps(slurm, other)
    assert slurm.told() == [f"release {released}"]
    # Its user does not want it any more.
    slurm.say(other, "CANCELLED")
    until(lambda: job_of(instance, other)["state"] == "gone", "it to be forgotten")


@pytest.mark.parametrize("size", ["64MiB", "900GiB"])
def test_a_job_that_cannot_succeed_stays_held(start_slurm: Start, size: str) -> None:
    slurm, instance = start_slurm(SWEEPS, *account())
    slurm.set_account("17", "poor")
    told = fail_to_set_up(slurm, "17", slurm.script(JOB.replace("16MiB", size)), f"forebay:{size}")
    assert "ask for less" in told
    assert "released" not in told
    assert job_of(instance, "17")["state"] == "gone"
    answer = why(instance, "17")
    assert answer["waits_for"].startswith("its user: Slurm holds it, because of setup: ")
    assert "`scontrol release 17` by an administrator" in answer["ends"]


def test_what_its_user_holds_is_not_released(start_slurm: Start) -> None:
    slurm, instance = start_slurm(SWEEPS)
    instance.ask("drain")
    fail_to_set_up(slurm, "17", slurm.script(JOB))
    slurm.hold("17", "JobHeldUser")
    instance.ask("undrain")
    wait_for_sweeps(slurm, "17")
    assert slurm.told() == []
    assert job_of(instance, "17")["state"] == "waiting"


def test_why_tells_what_a_held_job_waits_for(start_slurm: Start) -> None:
    slurm, instance = start_slurm()
    script = slurm.script(JOB, "#DW stage_in type=file source=/nowhere/mesh destination=$DW_JOB_STRIPED/mesh")
    slurm.say("17", "PENDING")
    slurm.set_up("17", script, "forebay:16MiB")
    assert slurm.call("data_in", "--token", "17", "--job", script).returncode == 1
    slurm.ask("teardown", "--token", "17", "--job", script, "--hurry")
    slurm.hold("17", "burst_buffer/datawarp: data_in: there is no such file")
    assert why(instance, "17")["waits_for"].startswith("its user: Slurm holds it, because of data_in: there is no such")
    slurm.say("17", "CANCELLED")
    assert why(instance, "17")["waits_for"].startswith("nothing: it is over")
