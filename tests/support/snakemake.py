# SPDX-License-Identifier: Apache-2.0
"""Runs the real Snakemake, in the environment that scripts/snakemake-environment makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import forebay
from forebay.errors import NotFoundError
from tests.support.instance import CommandLineInstance
from tests.support.time_limits import seconds

__all__ = [
    "PROGRAMS",
    "PYTHON",
    "check_results",
    "command",
    "committed",
    "needs_snakemake",
    "observed",
    "run",
    "run_whatever_comes",
]

PROGRAMS = Path(__file__).parent.parent / "workflows"
PYTHON = Path(os.environ.get("FOREBAY_SNAKEMAKE") or "build/snakemake").absolute() / "bin" / "python"

needs_snakemake = pytest.mark.skipif(not PYTHON.exists(), reason="needs Snakemake: ./run test workflows installs it")

_SECONDS_MAX = seconds(240)


def command(*arguments: str, program: tuple[str, ...] = ("-m", "snakemake")) -> list[str]:
    """The command line of Snakemake; the Snakefile's rules find the programs of the tests by its configuration."""
    config = [f"python={PYTHON}", f"programs={PROGRAMS.absolute()}"]
    return [str(PYTHON), *program, "--cores", "2", *arguments, "--config", *config]


def run_whatever_comes(
    instance: CommandLineInstance, folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs Snakemake in a folder."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )


def run(instance: CommandLineInstance, folder: Path, *arguments: str) -> str:
    """Runs Snakemake, which must succeed; what it said."""
    done = run_whatever_comes(instance, folder, *arguments)
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


def observed(instance: CommandLineInstance, folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    """Runs Snakemake as observed_snakemake.py says."""
    return subprocess.run(
        command(program=(str(PROGRAMS.absolute() / "observed_snakemake.py"), *program)),
        cwd=folder,
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
