# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of a job is taken from where its user cannot have written it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay.errors import InvalidArgumentError
from forebay.workflows.slurm.processes import is_over, job_facts, known_job


def squeue(folder: Path, text: str, status: int = 0) -> str:
    """A squeue that prints this."""
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return str(program)


def test_a_job_is_told_from_the_others_of_its_array(tmp_path: Path) -> None:
    program = squeue(tmp_path, "18|COMPLETED|1001||poor\n17|RUNNING|1001|n[1-2]|rich|er\n19|PENDING|1001||")
    job = asyncio.run(job_facts(program, "17"))
    assert job is not None
    assert (job.state, job.uid, job.nodes, job.account) == ("RUNNING", 1001, "n[1-2]", "rich|er")
    assert not asyncio.run(is_over(program, "17"))
    assert asyncio.run(is_over(program, "18"))
    assert asyncio.run(job_facts(program, "20")) is None


def test_a_slurm_that_does_not_answer_is_no_answer(tmp_path: Path) -> None:
    away = squeue(tmp_path, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1)
    for program in (away, str(tmp_path / "none")):
        assert asyncio.run(job_facts(program, "17")) is None
        assert not asyncio.run(is_over(program, "17"))
        with pytest.raises(InvalidArgumentError, match=r"Slurm does not answer `.* -j 17`, which the manager needs"):
            asyncio.run(known_job(program, "17", 0.0))


def test_a_job_that_slurm_does_not_know_is_over(tmp_path: Path) -> None:
    program = squeue(tmp_path, "slurm_load_jobs error: Invalid job id specified", 1)
    assert asyncio.run(is_over(program, "17"))
    with pytest.raises(InvalidArgumentError, match="Slurm knows no job 17"):
        asyncio.run(known_job(program, "17", 60.0))
