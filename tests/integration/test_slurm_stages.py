# SPDX-License-Identifier: Apache-2.0
"""Stages of Slurm's jobs that cannot be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.slurm_calls import Start, outside

pytestmark = pytest.mark.instance

JOB = "#DW jobdw capacity=16MiB access_mode=striped type=scratch"


def test_a_stage_whose_interpreter_its_user_cannot_read_says_what_and_who(
    start_slurm: Start, everybodys_python: Path | None
) -> None:
    """It said that the manager failed to run the stage."""
    if everybodys_python is None:
        pytest.skip("only the manager of root runs stages of other users")
    slurm, _ = start_slurm()
    pfs = outside(slurm)
    (pfs / "input").write_text("content")
    script = slurm.script(JOB, f"#DW stage_in type=file source={pfs}/input destination=$DW_JOB_STRIPED/input")
    slurm.set_up("17", script, "forebay:16MiB")
    folder = everybodys_python.parents[1]
    mode = folder.stat().st_mode
    folder.chmod(0o700)
    try:
        failed = slurm.call("data_in", "--token", "17", "--job", script)
    finally:
        folder.chmod(mode)
    assert failed.returncode == 1
    assert f"user {slurm.uid} may not execute {everybodys_python}" in failed.stdout
    assert f"`namei -l {everybodys_python}` shows what is closed" in failed.stdout
    # Once it can be read the same call succeeds.
    slurm.ask("data_in", "--token", "17", "--job", script)
