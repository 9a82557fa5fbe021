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
