# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/how-to/follow-checkpoints.md: checkpoints leave while the simulation runs, whatever is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.snakemake import command, needs_snakemake
from tests.support.time_limits import seconds

pytestmark = [needs_snakemake, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "follow-checkpoints.md"

#: Goes on after its last checkpoint. After the 12th it waits while "wait" is there, and fails if it finds "fail".
SIMULATE = f"""#!{sys.executable}
import pathlib, sys, time
run = pathlib.Path(sys.argv[1])
run.mkdir(exist_ok=True)
for number in range(len(list(run.glob("chk?????"))), 25):
    while number == 12 and pathlib.Path("wait").exists():
        time.sleep(0.02)
    if number == 12 and pathlib.Path("fail").exists():
        sys.exit(3)
    (run / "next.temp").write_text(f"state {{number}}")
    (run / "next.temp").rename(run / f"chk{{number:05d}}")
(run / "finished").touch()
"""


@pytest.fixture
def run(instance: CommandLineInstance) -> Path:
    """The folder below the reservation's files that the page names."""
    instance.ask("create", "run1", "--capacity", "0", "--files", "16MiB", "--persistent")
    with forebay.Admin() as admin:
        return Path(admin.reservation("run1").files_path) / "run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the page's rules as its Snakefile, and a program `simulate`."""
    (rules,) = re.findall(r"```python\n(rule all:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    made = tmp_path / "page"
    made.mkdir()
    (made / "Snakefile").write_text(rules)
    (made / "simulate").write_text(SIMULATE)
    (made / "simulate").chmod(0o755)
    return made


def start(instance: CommandLineInstance, folder: Path, run: Path, *arguments: str) -> subprocess.Popen[str]:
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        [*command(*arguments), f"run={run}"],
        cwd=folder,
        env=os.environ | instance.environment | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(instance: CommandLineInstance, folder: Path, run: Path, *arguments: str) -> str:
    with start(instance, folder, run, *arguments) as running:
        told, _ = running.communicate(timeout=seconds(200))
    assert running.returncode == 0, told
    return told


def copies(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "checkpoints").glob("chk*"))}


ALL = {f"chk{number:05d}": f"state {number}" for number in (0, 10, 20)}


@pytest.mark.parametrize("cores", [1, 2])
def test_the_page_s_rules_take_one_checkpoint_in_ten(
    instance: CommandLineInstance, folder: Path, run: Path, cores: int
) -> None:
    if cores == 2:
        (folder / "wait").touch()
    with start(instance, folder, run, "--cores", str(cores)) as running:
        if cores == 2:
            # While the simulation runs.
            until(lambda: list(copies(folder)) == ["chk00000", "chk00010"], "two have left", timeout=seconds(120))
            (folder / "wait").unlink()
        told, _ = running.communicate(timeout=seconds(200))
    assert running.returncode == 0, told
    assert copies(folder) == ALL
    assert "3 of 25 names staged out" in told


# crash-matrix: A Snakemake workflow | Snakemake and its jobs are killed while a rule stages out what a simulation writes (`stage-out --follow`) | the stage goes on. Run again, the rule waits for it: what has left stays, and nothing is copied twice
def test_checkpoints_that_have_left_stay_when_the_workflow_is_killed_and_run_again(
    instance: CommandLineInstance, folder: Path, run: Path
) -> None:
    (folder / "wait").touch()
    with start(instance, folder, run) as running:
        until(lambda: list(copies(folder)) == ["chk00000", "chk00010"], "two have left", timeout=seconds(120))
        os.killpg(running.pid, signal.SIGKILL)
    inodes = {path.name: path.stat().st_ino for path in (folder / "checkpoints").glob("chk*")}
    (folder / "wait").unlink()
    finish(instance, folder, run, "--unlock")
    told = finish(instance, folder, run, "--rerun-incomplete")
    assert copies(folder) == ALL
    assert {name: (folder / "checkpoints" / name).stat().st_ino for name in inodes} == inodes
    assert "3 of 25 names staged out" in told


def test_a_simulation_that_fails_costs_no_copy(instance: CommandLineInstance, folder: Path, run: Path) -> None:
    (folder / "fail").touch()
    with start(instance, folder, run) as running:
        until(lambda: list(copies(folder)) == ["chk00000", "chk00010"], "two have left", timeout=seconds(120))
        assert running.stdout is not None
        for line in running.stdout:
            if "Error in rule simulate" in line:
                break
        # As Ctrl-C does: Snakemake and its jobs get it.
        os.killpg(running.pid, signal.SIGINT)
        running.communicate(timeout=seconds(200))
    assert running.returncode != 0
    assert len(copies(folder)) == 2
    (folder / "fail").unlink()
    finish(instance, folder, run, "--rerun-incomplete")
    assert copies(folder) == ALL
