# SPDX-License-Identifier: Apache-2.0
"""A real Snakemake with the storage plugin: simulate into a stream, analyse its steps, archive chosen ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.errors import NotFoundError
from tests.support.instance import CommandLineInstance

HERE = Path(__file__).parent
ENVIRONMENT = Path("build/snakemake").absolute()
PYTHON = ENVIRONMENT / "bin" / "python"

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="needs Snakemake: ./run test workflows installs it"),
    pytest.mark.timeout(300),
]


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    with CommandLineInstance(tmp_path / "root", capacity="256MiB") as up:
        up.ask("create", "wf", "--capacity", "64MiB", "--persistent")
        monkeypatch.setenv("FOREBAY_ROOT", str(up.root))
        yield up


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """A folder with the Snakefile."""
    folder = tmp_path / "workflow"
    folder.mkdir()
    shutil.copy(HERE / "Snakefile", folder)
    return folder


def command(*arguments: str) -> list[str]:
    config = [f"python={PYTHON}", f"programs={HERE.absolute()}"]
    return [str(PYTHON), "-m", "snakemake", "--cores", "2", *arguments, "--config", *config]


def run(instance: CommandLineInstance, workflow: Path, *arguments: str) -> str:
    """Runs Snakemake, which must succeed."""
    done = subprocess.run(
        command(*arguments),
        cwd=workflow,
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def committed(stream: str) -> int:
    """How many steps the stream has."""
    with forebay.Admin() as admin:
        try:
            return len(admin.steps(stream))
        except NotFoundError:
            return 0


def check_results(instance: CommandLineInstance, workflow: Path) -> None:
    with forebay.Admin() as admin:
        files = Path(admin.reservation("wf").files_path)
        assert [step.number for step in admin.steps("wf/flow")] == list(range(6))
        assert [step.number for step in admin.steps("wf/flow") if step.staged] == [0, 2, 4]
    assert (files / "sums.txt").read_text() == "".join(f"{step} {16.0 * step}\n" for step in range(6))
    assert instance.run("doctor").returncode == 0


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
    deadline = time.monotonic() + 120
    while committed("wf/flow") < 3:
        assert time.monotonic() < deadline, "the simulation does not come to its third step"
        time.sleep(0.1)
    # With its rule, as a node that loses power: an orphaned rule would go on writing.
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    (workflow / "wait").unlink()
    run(instance, workflow, "--unlock")
    run(instance, workflow, "--rerun-incomplete")
    check_results(instance, workflow)


def test_a_dry_run_needs_no_server(tmp_path: Path, workflow: Path) -> None:
    done = subprocess.run(
        command("--dry-run"),
        cwd=workflow,
        env=os.environ | {"FOREBAY_ROOT": str(tmp_path / "nowhere")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "simulate" in done.stdout + done.stderr
