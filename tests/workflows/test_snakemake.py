# SPDX-License-Identifier: Apache-2.0
"""A real Snakemake with the storage plugin: simulate into a stream, analyse its steps, archive chosen ones."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.snakemake import check_results, command, committed, needs_snakemake, run
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

pytestmark = [needs_snakemake, pytest.mark.timeout(300)]


def test_a_workflow_passes_steps_by_address_and_does_nothing_twice(
    instance: CommandLineInstance, workflow: Path
) -> None:
    run(instance, workflow)
    check_results(instance, workflow)
    assert "Nothing to be done" in run(instance, workflow)


# crash-matrix: A Snakemake workflow | Snakemake and its rule are killed while a rule writes a stream | run again, it finishes; no step stands twice
def test_a_workflow_that_was_killed_is_run_again_and_finishes(instance: CommandLineInstance, workflow: Path) -> None:
    (workflow / "wait").touch()
    killed = subprocess.Popen(
        command(),
        cwd=workflow,
        env=os.environ | instance.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: committed("wf/flow") >= 3, "the simulation comes to its third step", timeout=seconds(120))
    # With its rule, as a node that loses power: an orphaned rule would go on writing.
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    (workflow / "wait").unlink()
    run(instance, workflow, "--unlock")
    run(instance, workflow, "--rerun-incomplete")
    check_results(instance, workflow)


@pytest.mark.parametrize("named_by", ["environment", "setting"])
def test_a_dry_run_needs_no_server(tmp_path: Path, workflow: Path, named_by: str) -> None:
    nowhere = str(tmp_path / "nowhere")
    done = subprocess.run(
        command("--dry-run", *([] if named_by == "environment" else ["--storage-forebay-root", nowhere])),
        cwd=workflow,
        env=os.environ | {"FOREBAY_ROOT": nowhere},
        capture_output=True,
        text=True,
        timeout=seconds(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "simulate" in done.stdout + done.stderr


TWO_INSTANCES = """
storage one:
    provider="forebay",
    root="{one}"

storage two:
    provider="forebay",
    root="{two}"

rule copy:
    input:
        storage.one("forebay://wf/files/a.txt"),
        storage.one("forebay://wf/flow", retrieve=False),
    output:
        storage.two("forebay://wf/files/b.txt"),
    shell:
        "cp {{input[0]}} {{output}}"
"""


def test_storages_of_one_workflow_have_instances_of_their_own(tmp_path: Path) -> None:
    with StagingServer(tmp_path / "one") as one, StagingServer(tmp_path / "two") as two:
        files = {}
        for server in (one, two):
            with forebay.Admin(server.root) as admin:
                admin.create("wf", "16MiB", files="16MiB")
                files[server] = Path(admin.reservation("wf").files_path)
        (files[one] / "a.txt").write_text("of the first")
        with forebay.open("wf/flow", mode="w", instance=one.root) as stream:
            stream.write("T", [1.0])
        workflow = tmp_path / "workflow"
        workflow.mkdir()
        (workflow / "Snakefile").write_text(TWO_INSTANCES.format(one=one.root, two=two.root))
        done = subprocess.run(
            command(),
            cwd=workflow,
            env=os.environ | {"FOREBAY_ROOT": str(tmp_path / "nowhere")},
            capture_output=True,
            text=True,
            timeout=seconds(240),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert (files[two] / "b.txt").read_text() == "of the first"
        assert not (files[one] / "b.txt").exists()


DECLARED = """
storage fb:
    provider="forebay",
    reservation="own",
    capacity="16MiB"{more}

rule all:
    input:
        "sum.txt",

rule simulate:
    output:
        storage.fb("forebay://own/flow", retrieve=False),
    shell:
        "{{config[python]}} {{config[programs]}}/simulate.py {{output}}"

rule analyse:
    input:
        storage.fb("forebay://own/flow", retrieve=False),
    output:
        "sum.txt",
    shell:
        "{{config[python]}} {{config[programs]}}/analyse.py {{input}}@5 > {{output}}"
"""


def declare(folder: Path, more: str = "") -> Path:
    folder.mkdir()
    (folder / "Snakefile").write_text(DECLARED.format(more=more))
    return folder


def reservations() -> set[str]:
    with forebay.Admin() as admin:
        return {info.name for info in admin.reservations()}


def test_a_declared_reservation_is_made_and_goes_with_the_workflow(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    folder = declare(tmp_path / "declared")
    run(instance, folder)
    assert (folder / "sum.txt").read_text() == "5 80.0\n"
    until(lambda: reservations() == {"wf"}, "the workflow's reservation is destroyed", timeout=seconds(60))


def test_a_declared_reservation_may_stay(instance: CommandLineInstance, tmp_path: Path) -> None:
    run(instance, declare(tmp_path / "declared", ',\n    lifetime="persistent"'))
    assert reservations() == {"wf", "own"}
    assert instance.ask("show", "own")["reservation"]["lifetime"] == "persistent"


def test_a_declared_reservation_is_not_made_by_a_dry_run(instance: CommandLineInstance, tmp_path: Path) -> None:
    run(instance, declare(tmp_path / "declared"), "--dry-run")
    assert reservations() == {"wf"}


# crash-matrix: A Snakemake workflow | Snakemake alone is killed while a rule writes into the reservation that the workflow declares | it goes when the orphaned rule has ended, not before
def test_a_declared_reservation_goes_after_the_writer_that_snakemake_left(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    folder = declare(tmp_path / "declared")
    (folder / "wait").touch()
    killed = subprocess.Popen(
        command(),
        cwd=folder,
        env=os.environ | instance.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: committed("own/flow") >= 3, "the simulation comes to its third step", timeout=seconds(120))
    killed.kill()
    killed.wait()
    until(lambda: why_over(instance) != "", "the manager has noticed the end", timeout=seconds(60))
    assert reservations() == {"wf", "own"}
    (folder / "wait").unlink()
    until(lambda: reservations() == {"wf"}, "the workflow's reservation is destroyed", timeout=seconds(60))


def why_over(instance: CommandLineInstance) -> str:
    """The attachments that are gone leave a line in `forebay why`."""
    told = instance.run("why", "own").stdout
    return told if "nobody is attached" in told else ""


def test_a_reservation_that_the_pool_does_not_have_ends_the_workflow(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    folder = declare(tmp_path / "declared")
    (folder / "Snakefile").write_text((folder / "Snakefile").read_text().replace("16MiB", "16TiB"))
    done = subprocess.run(
        command(), cwd=folder, env=os.environ | instance.environment, capture_output=True, text=True,
        timeout=seconds(240), check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "reservation own of the workflow: " in done.stdout + done.stderr
    assert reservations() == {"wf"}
