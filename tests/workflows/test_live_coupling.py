# SPDX-License-Identifier: Apache-2.0
"""Producer and consumer as rules that run at the same time, started by a pipe() token."""

from __future__ import annotations

from pathlib import Path

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.snakemake import needs_snakemake, run, run_whatever_comes

pytestmark = [needs_snakemake, pytest.mark.timeout(300)]

COUPLED = """
storage fb:
    provider="forebay"

rule all:
    input:
        storage.fb("forebay://wf/flow", retrieve=False),
        "seen.txt",

rule simulate:
    output:
        pipe("token"),
        flow=storage.fb("forebay://wf/flow", retrieve=False),
    shell:
        "echo started > token; {config[python]} {config[programs]}/PROGRAM {output.flow}"

rule live:
    input:
        "token",
    output:
        "seen.txt",
    params:
        flow="wf/flow",
    shell:
        "cat {input}; {config[python]} -m forebay follow {params.flow} --exec sh -c "
        "'echo {{step}} >> {output}; test {{step}} != 2 || rm -f wait'"
"""


def coupled(folder: Path, program: str) -> Path:
    folder.mkdir()
    (folder / "Snakefile").write_text(COUPLED.replace("PROGRAM", program))
    return folder


def test_a_consumer_rule_follows_while_its_producer_runs(instance: CommandLineInstance, tmp_path: Path) -> None:
    folder = coupled(tmp_path / "live", "simulate.py")
    # The producer waits after its third step until the consumer has seen it.
    (folder / "wait").touch()
    run(instance, folder)
    assert (folder / "seen.txt").read_text().split() == [str(number) for number in range(6)]
    assert instance.run("doctor").returncode == 0


# crash-matrix: A Snakemake workflow | a producer that is coupled by a pipe() token fails while its consumer follows | the consumer is ended, and the workflow fails; its reservation is clean
def test_a_producer_that_fails_ends_its_consumer_and_the_workflow(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    folder = coupled(tmp_path / "live", "fail.py")
    done = run_whatever_comes(instance, folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Error in rule simulate" in done.stdout + done.stderr
    assert instance.run("doctor").returncode == 0
    with forebay.Admin() as admin:
        assert not any(consumer.connected for info in admin.streams("wf") for consumer in info.consumers)


QUEUED = """
import queue
import threading

import forebay

storage fb:
    provider="forebay"

targets, DONE = queue.Queue(), "done"


def follow():
    try:
        for step in forebay.open("wf/flow").follow():
            targets.put(f"sums/{step.number}.txt")
    finally:
        targets.put(DONE)


if workflow.is_main_process and not workflow.dryrun:
    threading.Thread(target=follow, daemon=True).start()

rule all:
    input:
        storage.fb("forebay://wf/flow", retrieve=False),
        from_queue(targets, finish_sentinel=DONE),

rule simulate:
    output:
        storage.fb("forebay://wf/flow", retrieve=False),
    shell:
        "{config[python]} {config[programs]}/PROGRAM {output}"

rule analyse:
    input:
        storage.fb("forebay://wf/flow@{step}", retrieve=False),
    output:
        "sums/{step,\\\\d+}.txt",
    shell:
        "{config[python]} {config[programs]}/analyse.py {input} > {output}; test {wildcards.step} != 2 || rm -f wait"
"""


def queued(folder: Path, program: str) -> Path:
    folder.mkdir()
    (folder / "Snakefile").write_text(QUEUED.replace("PROGRAM", program))
    return folder


def test_a_queue_makes_a_job_of_each_step_while_the_producer_runs(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    folder = queued(tmp_path / "queued", "simulate.py")
    # The producer waits after its third step until that step has been analysed.
    (folder / "wait").touch()
    run(instance, folder, "--queue-input-wait-time", "1")
    sums = {int(path.stem): path.read_text() for path in (folder / "sums").glob("*.txt")}
    assert sums == {step: f"{step} {16.0 * step}\n" for step in range(6)}
    assert instance.run("doctor").returncode == 0


# crash-matrix: A Snakemake workflow | a producer fails whose steps a from_queue() thread makes into jobs | the workflow fails; its reservation is clean
def test_a_producer_that_fails_fails_the_workflow_that_waits_for_its_queue(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    folder = queued(tmp_path / "queued", "fail.py")
    done = run_whatever_comes(instance, folder, "--queue-input-wait-time", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Error in rule simulate" in done.stdout + done.stderr
    assert instance.run("doctor").returncode == 0
