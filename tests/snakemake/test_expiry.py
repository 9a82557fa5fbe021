# SPDX-License-Identifier: Apache-2.0
"""A reservation whose time is over while a workflow needs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.snakemake import command, committed, needs_snakemake, run_whatever_comes
from tests.support.time_limits import seconds

pytestmark = [needs_snakemake, pytest.mark.timeout(300)]

TWO_RULES = """
storage fb:
    provider="forebay"DECLARED

rule all:
    input:
        "sum.txt",

rule simulate:
    output:
        storage.fb("forebay://own/flow", retrieve=False),
    shell:
        "{config[python]} {config[programs]}/simulate.py {output}"

rule analyse:
    input:
        storage.fb("forebay://own/flow", retrieve=False),
    output:
        "sum.txt",
    shell:
        "until test -e go; do sleep 0.1; done; {config[python]} {config[programs]}/analyse.py {input}@5 > {output}"
"""


def folder_of(tmp_path: Path, declared: str = "") -> Path:
    folder = tmp_path / "expiring"
    folder.mkdir()
    (folder / "Snakefile").write_text(TWO_RULES.replace("DECLARED", declared))
    (folder / "wait").touch()
    return folder


def start(instance: CommandLineInstance, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(),
        cwd=folder,
        env=os.environ | instance.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def reservations() -> set[str]:
    with forebay.Admin() as admin:
        return {info.name for info in admin.reservations()}


def attached(instance: CommandLineInstance) -> set[str]:
    with instance.manager() as manager:
        return {row.holder for row in manager.attachments()}


# crash-matrix: A Snakemake workflow | the time of its reservation is over (`attach --ttl`) while a rule writes into it | the writer ends undisturbed, then the reservation goes; the next rule and the workflow fail with the reason
def test_a_reservation_that_expires_goes_after_its_writer_and_fails_the_next_rule(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    instance.ask("create", "own", "--capacity", "16MiB")
    instance.ask("attach", "own", "--ttl", "1h", "--as", "shift")
    folder = folder_of(tmp_path)
    with start(instance, folder) as running:
        until(lambda: committed("own/flow") >= 3, "the simulation comes to its third step", timeout=seconds(120))
        instance.ask("extend", "own", "--ttl", "1s", "--as", "shift")
        until(lambda: attached(instance) == set(), "the time is over", timeout=seconds(60))
        assert reservations() == {"wf", "own"}
        (folder / "wait").unlink()
        until(lambda: reservations() == {"wf"}, "the reservation is destroyed", timeout=seconds(60))
        (folder / "go").touch()
        told, _ = running.communicate(timeout=seconds(200))
    assert running.returncode == 1, told
    # Snakemake may still see that the first rule's output is there, or miss it.
    assert "no such reservation" in told or "MissingOutputException" in told, told
    assert not (folder / "sum.txt").exists()
    assert instance.run("doctor").returncode == 0
    assert run_whatever_comes(instance, folder, "--unlock").returncode == 0


def test_a_reservation_that_the_workflow_declares_outlives_the_time_that_others_gave_it(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    instance.ask("create", "own", "--capacity", "16MiB")
    instance.ask("attach", "own", "--ttl", "1h", "--as", "shift")
    folder = folder_of(tmp_path, ',\n    reservation="own",\n    capacity="16MiB"')
    with start(instance, folder) as running:
        until(lambda: committed("own/flow") >= 3, "the simulation comes to its third step", timeout=seconds(120))
        instance.ask("extend", "own", "--ttl", "1s", "--as", "shift")
        until(lambda: "shift" not in attached(instance), "the time is over", timeout=seconds(60))
        (folder / "wait").unlink()
        (folder / "go").touch()
        told, _ = running.communicate(timeout=seconds(200))
    assert running.returncode == 0, told
    assert (folder / "sum.txt").read_text() == "5 80.0\n"
    until(lambda: reservations() == {"wf"}, "the reservation goes with the workflow", timeout=seconds(60))
    assert instance.run("doctor").returncode == 0
