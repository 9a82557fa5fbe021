# SPDX-License-Identifier: Apache-2.0
"""Snakemake submits each rule as a job of Slurm; the reservation is the workflow's own, and the jobs share it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm.centre import Centre, needs_slurm
from tests.slurm.cluster import PERSON, make_python, wait_for
from tests.support.snakemake import PROGRAMS, PYTHON, needs_snakemake
from tests.support.time_limits import seconds

pytestmark = [*needs_slurm, needs_snakemake]

_WORKFLOW = """
storage fb:
    provider="forebay",
    reservation="wf",
    capacity="64MiB",
    files="16MiB",
    keep_streams=KEEP

RUN = config["python"] + " " + config["programs"]

rule all:
    input:
        "sums.txt",
        "archive/done",

rule simulate:
    output:
        flow=storage.fb("forebay://wf/flow", retrieve=False),
        steps=[storage.fb(f"forebay://wf/flow@{step}", retrieve=False) for step in range(6)],
    shell:
        RUN + "/{config[simulation]} {output.flow}"

rule analyse:
    input:
        storage.fb("forebay://wf/flow@{step}", retrieve=False),
    output:
        storage.fb("forebay://wf/files/{step,\\\\d+}.txt"),
    shell:
        RUN + "/analyse.py {input} > {output}"

rule collect:
    input:
        storage.fb(expand("forebay://wf/files/{step}.txt", step=[0, 5])),
    output:
        "sums.txt",
    shell:
        "cat {input} > {output}"

rule archive:
    input:
        storage.fb("forebay://wf/flow", retrieve=False),
    output:
        touch("archive/done"),
    shell:
        "{config[python]} -m forebay stage-out wf/flow archive --every 2; "
        "{config[python]} -m forebay steps wf/flow --json > steps.json"
"""


@pytest.fixture(scope="session")
def snakemake(folder: Path) -> Path:
    """A Python with Snakemake that the jobs' user can run."""
    return make_python(folder / "snakemake", PYTHON)


def start(centre: Centre, python: Path, desk: Path, workflow: str, simulation: str) -> subprocess.Popen[str]:
    """The user starts Snakemake, which submits to this Slurm."""
    (desk / "Snakefile").write_text(workflow)
    shutil.chown(desk / "Snakefile", PERSON)
    home = pwd.getpwnam(PERSON).pw_dir
    command = [
        *(str(python), "-m", "snakemake", "--executor", "slurm", "--jobs", "4", "--latency-wait", "20"),
        *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "2"),
        *("--default-resources", "mem_mb=100", "runtime=10"),
        *("--config", f"python={python}", f"programs={PROGRAMS.absolute()}", f"simulation={simulation}"),
    ]
    return subprocess.Popen(
        ["runuser", "-u", PERSON, "--", *command],
        cwd=desk,
        env={
            "HOME": home,
            "PATH": os.environ["PATH"],
            "SLURM_CONF": str(centre.cluster.configuration),
            "FOREBAY_ROOT": str(centre.instance.root),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check_results(centre: Centre, desk: Path, goes_on: bool) -> None:
    """The rules' files, the archived steps, each once; and nothing of the workflow is left."""
    assert (desk / "sums.txt").read_text() == "0 0.0\n5 80.0\n"
    steps = json.loads((desk / "steps.json").read_text())["steps"]
    assert [step["number"] for step in steps] == list(range(6))
    # The steps of the run that Slurm ended are there only where the program goes on after them.
    assert (steps[0]["incarnation"] < steps[3]["incarnation"]) is goes_on
    assert steps[3]["incarnation"] == steps[5]["incarnation"]
    assert len(list((desk / "archive").glob("*.bp"))) == 3
    wait_for(lambda: centre.instance.ask("ls")["reservations"] == [], "the workflow's reservation to go")
    centre.must_be_clean()


def job_of(centre: Centre, rule: str) -> int | None:
    """The running job of a rule: the executor writes the rule's name into the comment."""
    rows = [line.split("|") for line in centre.cluster.ask("squeue", "-h", "-t", "R", "-o", "%i|%k").splitlines()]
    return next((int(number) for number, comment in rows if rule in comment), None)


# crash-matrix: A Snakemake workflow | Slurm requeues a rule's job while it writes (snakemake-executor-plugin-slurm) | the stream begins anew, or goes on if the program appends; each step is there once, and nothing is left
@pytest.mark.parametrize(("simulation", "keep"), [("simulate.py", False), ("resume.py", True)])
def test_a_rule_that_slurm_requeues_runs_again_and_the_workflow_finishes(
    centre: Centre, snakemake: Path, destination: Path, simulation: str, keep: bool
) -> None:
    (destination / "wait").touch()
    workflow = _WORKFLOW.replace("KEEP", str(keep))
    with start(centre, snakemake, destination, workflow, simulation) as running:
        try:
            wait_for(lambda: committed(centre) == 3 or running.poll() is not None, "the third step", 120)
            job = job_of(centre, "simulate")
            assert job is not None, running.communicate()[0]
            assert centre.cluster.run("scontrol", "requeue", str(job)).returncode == 0
            # Slurm waits two minutes before it runs a requeued job, so it is told when. Not at once: what the requeue
            # revoked it knows by the second, and in the same second a node refuses the new run, too.
            wait_for(lambda: centre.cluster.show(job)["JobState"] == "PENDING", "the job to be queued", 60)
            (destination / "wait").unlink()  # not before: what is left of the first run would write on
            assert centre.cluster.run("scontrol", "update", f"jobid={job}", "starttime=now+2").returncode == 0
            told, _ = running.communicate(timeout=seconds(240))
        finally:
            running.terminate()
    assert running.returncode == 0, told + centre.cluster.log()
    assert centre.cluster.show(job)["Restarts"] == "1"
    check_results(centre, destination, keep)


_COUPLED = """
storage fb:
    provider="forebay",
    reservation="wf",
    capacity="64MiB"

rule all:
    input:
        "seen.txt",

rule simulate:
    output:
        pipe("token"),
        flow=storage.fb("forebay://wf/flow", retrieve=False),
    shell:
        "echo started > token; {config[python]} {config[programs]}/simulate.py {output.flow}"

rule live:
    input:
        "token",
    output:
        "seen.txt",
    shell:
        "cat {input}; {config[python]} -m forebay follow wf/flow --exec sh -c "
        "'echo {{step}} >> {output}; test {{step}} != 2 || rm -f wait'"
"""


def test_rules_that_a_pipe_couples_run_as_one_job(centre: Centre, snakemake: Path, destination: Path) -> None:
    # The producer waits after its third step until the consumer has seen it.
    (destination / "wait").touch()
    with start(centre, snakemake, destination, _COUPLED, "") as running:
        try:
            told, _ = running.communicate(timeout=seconds(240))
        finally:
            running.terminate()
    assert running.returncode == 0, told + centre.cluster.log()
    assert (destination / "seen.txt").read_text().split() == [str(step) for step in range(6)]
    assert told.count("has been submitted with SLURM jobid") == 1, told
    wait_for(lambda: centre.instance.ask("ls")["reservations"] == [], "the workflow's reservation to go")
    centre.must_be_clean()


def committed(centre: Centre) -> int:
    """How many steps the stream has."""
    done = centre.instance.run("steps", "wf/flow", "--json")
    return done.stdout.count('"number"') if done.returncode == 0 else 0
