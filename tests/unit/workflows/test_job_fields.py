# SPDX-License-Identifier: Apache-2.0
"""What `scontrol show job` says of a job, whose user can have written all of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from forebay.workflows.slurm.processes import job_fields


def told(folder: Path, record: str) -> dict[str, str]:
    """The fields of job 17, where Slurm answers with this."""
    answer = folder / "answer"
    answer.write_text(record)
    scontrol = folder / "scontrol"
    scontrol.write_text(f"#!/bin/sh\ncat {answer}\n")
    scontrol.chmod(0o755)
    return asyncio.run(job_fields(str(scontrol), "17"))


@pytest.mark.parametrize("after", [" BurstBufferState=pending Power=\n", "  Power=\n", "\n", ""])
def test_directives_are_found_with_their_line_breaks(tmp_path: Path, after: str) -> None:
    record = f"JobId=17 JobName=x BurstBuffer=#DW jobdw capacity=1GiB\n#DW stage_in source=/a{after}"
    found = told(tmp_path, record)
    assert found["BurstBuffer"] == "#DW jobdw capacity=1GiB\n#DW stage_in source=/a"
    assert found["JobName"] == "x"


def test_a_job_without_directives_has_none(tmp_path: Path) -> None:
    assert "BurstBuffer" not in told(tmp_path, "JobId=17 JobName=x Power=\n")


def test_a_comment_of_blanks_is_read_in_one_pass(tmp_path: Path) -> None:
    began = time.monotonic()
    assert told(tmp_path, f"JobId=17 Comment= BurstBuffer={' ' * 30_000}x Power=\n")["BurstBuffer"].endswith(" x")
    assert time.monotonic() - began < 5
