# SPDX-License-Identifier: Apache-2.0
"""Snakemake and its rules killed at each place: the workflow is run again, and finishes; nothing stands twice."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.snakemake import (
    check_results,
    command,
    committed,
    needs_snakemake,
    observed,
    run,
    run_whatever_comes,
)
from tests.support.time_limits import seconds

pytestmark = [needs_snakemake, pytest.mark.timeout(300)]


# crash-matrix: A Snakemake workflow | Snakemake is killed inside the storage plugin: in a question, while it stores a file, and after it | run again, it finishes; no half file is seen, none is left
@pytest.mark.parametrize("method", ["exists", "copy", "store_object"])
def test_snakemake_that_is_killed_inside_the_plugin_is_run_again_and_finishes(
    instance: CommandLineInstance, workflow: Path, method: str
) -> None:
    killed = observed(instance, workflow, "kill", method)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    with forebay.Admin() as admin:
        files = Path(admin.reservation("wf").files_path)
    if method == "copy":
        assert not (files / "sums.txt").exists()
        (left,) = files.iterdir()
        assert (left.name[:10], left.suffix) == (".sums.txt.", ".part")
    run(instance, workflow, "--unlock")
    run(instance, workflow, "--rerun-incomplete")
    check_results(instance, workflow)
    assert [path.name for path in files.iterdir()] == ["sums.txt"]


RESUMED = """
storage fb:
    provider="forebay",
    keep_streams=True

rule simulate:
    output:
        storage.fb("forebay://wf/flow", retrieve=False),
    shell:
        "{config[python]} {config[programs]}/resume.py {output}"
"""


def test_a_producer_that_was_killed_goes_on_where_streams_are_kept(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    folder = tmp_path / "resumed"
    folder.mkdir()
    (folder / "Snakefile").write_text(RESUMED)
    (folder / "wait").touch()
    killed = subprocess.Popen(
        command(),
        cwd=folder,
        env=os.environ | instance.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: committed("wf/flow") >= 3, "the producer comes to its third step", timeout=seconds(120))
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    (folder / "wait").unlink()
    run(instance, folder, "--unlock")
    run(instance, folder, "--rerun-incomplete")
    with forebay.Admin() as admin:
        steps = admin.steps("wf/flow")
    assert [step.number for step in steps] == list(range(6))
    first, last = steps[0].incarnation, steps[-1].incarnation
    assert [step.incarnation for step in steps] == [first] * 3 + [last] * 3
    assert first < last


# crash-matrix: A Snakemake workflow | its reservation is destroyed while a rule writes into it | the rule and the workflow fail with the reason; nothing is left
def test_a_reservation_that_goes_under_a_workflow_ends_it(instance: CommandLineInstance, workflow: Path) -> None:
    (workflow / "wait").touch()
    with subprocess.Popen(
        command(),
        cwd=workflow,
        env=os.environ | instance.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        until(lambda: committed("wf/flow") >= 3, "the simulation comes to its third step", timeout=seconds(120))
        assert instance.run("destroy", "wf", "--force").returncode == 0
        (workflow / "wait").unlink()
        told, _ = running.communicate(timeout=seconds(200))
    assert running.returncode == 1
    assert "Error in rule simulate" in told
    assert instance.run("doctor").returncode == 0
    assert run_whatever_comes(instance, workflow, "--unlock").returncode == 0
