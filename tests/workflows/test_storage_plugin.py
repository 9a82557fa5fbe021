# SPDX-License-Identifier: Apache-2.0
"""Snakemake's own tests for storage plugins, and each form that a step may take in a rule."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.snakemake import PROGRAMS, PYTHON, needs_snakemake, observed, run
from tests.support.time_limits import seconds

pytestmark = [needs_snakemake, pytest.mark.timeout(300)]


def write(address: str, steps: int, **options: str) -> None:
    with forebay.open(address, "w", **options) as stream:  # type: ignore[call-overload]
        for number in range(steps):
            stream.write("T", [float(number)] * 3)


def test_the_tests_of_the_interface_package_pass(instance: CommandLineInstance, tmp_path: Path) -> None:
    write("wf/flow", 4)
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull,
         PROGRAMS.absolute() / "storage_conformance.py"],
        cwd=tmp_path,
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        timeout=seconds(240),
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{20 + (os.geteuid() == 0)} passed" in done.stdout


def test_rules_take_steps_by_address_by_ticket_and_as_files(instance: CommandLineInstance, tmp_path: Path) -> None:
    folder = tmp_path / "forms"
    folder.mkdir()
    shutil.copy(PROGRAMS / "forms.smk", folder / "Snakefile")
    run(instance, folder)
    told = {path.stem: path.read_text() for path in folder.glob("*.txt")}
    assert told["ticket"] == "1 16.0\n"
    assert told["h5"] == "32.0\n"
    assert told["bp5"] == "48.0\n"
    assert told["gone"] == "4 64.0\n"
    assert "wf/flow, ended, " in told["shown"]
    with forebay.Admin() as admin:
        files = Path(admin.reservation("wf").files_path)
        # The temporary one is gone; nobody took a step out by a retrieval.
        assert [(step.number, step.staged) for step in admin.steps("wf/flow")] == [
            (number, False) for number in (0, 1, 2, 3, 5)
        ]
    assert [(files / f"sum-{step}.txt").read_text() for step in (0, 5)] == ["0 0.0\n", "5 80.0\n"]
    assert instance.run("doctor").returncode == 0


MANY = """
storage fb:
    provider="forebay"

rule all:
    input:
        expand("done/{n}", n=range(30)),

rule use:
    input:
        storage.fb("forebay://wf/flow@{n}", retrieve=False),
        storage.fb("forebay://wf/files/mesh.txt"),
    output:
        touch("done/{n}"),
    shell:
        "true"
"""


def test_inputs_are_answered_from_memory_while_jobs_run(instance: CommandLineInstance, tmp_path: Path) -> None:
    with forebay.open("wf/flow", "w") as stream:
        for number in range(30):
            stream.write("T", float(number))
    with forebay.Admin() as admin:
        (Path(admin.reservation("wf").files_path) / "mesh.txt").write_text("mesh")
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "Snakefile").write_text(MANY)
    done = observed(instance, folder, "count", str(tmp_path / "counts"))
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads((tmp_path / "counts").read_text())
    assert counts["exists"] > 100
    assert counts["size"] > 100
    # The first question of all asks the server for the reservation.
    assert counts["round_trips"] <= 1


RETRIED = """
storage fb:
    provider="forebay"

rule consume:
    input:
        storage.fb("forebay://wf/flow", retrieve=False),
    output:
        "seen.txt",
    retries: 1
    params:
        folder=workflow.basedir,
    shell:
        "{config[python]} -m forebay follow wf/flow --exec sh -c "
        "'test {{step}} != 3 || test -e {params.folder}/once || {{{{ touch {params.folder}/once; exit 1; }}}}; "
        "echo {{step}} >> {params.folder}/noted' && touch {output}"
"""


# crash-matrix: A Snakemake workflow | a rule that consumes a stream by `forebay follow` fails in the middle, and Snakemake retries it | it goes on at its cursor: each step is counted once
def test_a_consumer_rule_that_is_retried_counts_no_step_twice(instance: CommandLineInstance, tmp_path: Path) -> None:
    with forebay.open("wf/flow", "w") as stream:
        for number in range(6):
            stream.write("T", float(number))
    folder = tmp_path / "retried"
    folder.mkdir()
    (folder / "Snakefile").write_text(RETRIED.replace("{{{{", "{{").replace("}}}}", "}}"))
    run(instance, folder)
    assert (folder / "once").exists()
    assert (folder / "noted").read_text().split() == [str(number) for number in range(6)]
