# SPDX-License-Identifier: Apache-2.0
"""When the processes of a job are gone: Slurm calls post_run while they may still write (`scancel` of a job that
ignores SIGTERM), so it is asked until the job has left COMPLETING.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time

__all__ = ["wait_until_quiet"]

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 10.0
_STATE = re.compile(rb"\bJobState=(\w+)")


async def wait_until_quiet(scontrol: str, token: str, seconds_max: float) -> bool:
    """Returns True when no process of the job is left, False when the time is up or Slurm does not say."""
    deadline = time.monotonic() + seconds_max
    while True:
        state = await _job_state(scontrol, token)
        if state is not None and state != "COMPLETING":
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)


async def _job_state(scontrol: str, token: str) -> str | None:
    """The job's state as Slurm tells it; None if it cannot be asked, GONE if it knows no such job."""
    try:
        process = await asyncio.create_subprocess_exec(
            scontrol,
            "--oneliner",
            "show",
            "job",
            token,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _ANSWER_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return None
    if process.returncode != 0:
        return "GONE" if b"Invalid job id" in output else None
    # One line for each task of an array, or component of a heterogeneous job: all have to be through.
    states = {match.decode() for match in _STATE.findall(output)}
    return "COMPLETING" if "COMPLETING" in states or "RUNNING" in states else ",".join(sorted(states)) or None
