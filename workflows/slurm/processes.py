# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of a job: whether its processes are gone, whether it is over, and what `%` symbols stand for.

Slurm calls post_run while processes may still write (`scancel` of a job that ignores SIGTERM), so it is asked until the
job has left COMPLETING. Only calls that Slurm makes without its locks may ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator

from forebay.errors import InvalidArgumentError

__all__ = ["expand_symbols", "is_over", "is_running", "is_unknown", "job_fields", "wait_until_quiet"]

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 10.0
_FIELD = re.compile(
    r"(?:^|\s)(JobState|JobId|ArrayJobId|ArrayTaskId|JobName|WorkDir|Account|NodeList|UserId|Reason|EndTime)=(\S*)"
)
_BURST_BUFFER = re.compile(r"(?:^|\s)BurstBuffer=(.*?)\s+(?:BurstBufferState=|Power=|$)", re.DOTALL)
#: What a job's processes may be in. PENDING is in neither: a job that a crash of slurmctld set back may still run.
_ALIVE = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING", "SIGNALING", "RESIZING"})
_OVER = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "STAGE_OUT",
        "TIMEOUT",
    }
)
_UNKNOWN = "UNKNOWN_JOB"


async def wait_until_quiet(scontrol: str, token: str, seconds_max: float) -> bool:
    """After the job has run: True when no process of it is left, False when the time is up or Slurm does not say."""
    deadline = time.monotonic() + seconds_max
    while True:
        states = await _states(scontrol, token)
        if states and not states & _ALIVE:
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)


async def is_over(scontrol: str, token: str) -> bool:
    """True only if Slurm says that the job has ended, or that it knows no such job."""
    states = await _states(scontrol, token)
    return bool(states) and states <= _OVER | {_UNKNOWN}


async def is_running(scontrol: str, token: str) -> bool:
    """True only if Slurm says so."""
    return bool(await _states(scontrol, token) & {"RUNNING", "SUSPENDED"})


async def is_unknown(scontrol: str, token: str) -> bool:
    """True only if Slurm answers that it knows no such job."""
    return await _states(scontrol, token) == {_UNKNOWN}


async def job_fields(scontrol: str, token: str) -> dict[str, str]:
    """What `scontrol show job` says of the job; empty if it does not. BurstBuffer is its `#DW` lines."""
    answer = await _show(scontrol, token)
    if answer is None or answer[0] != 0:
        return {}
    for record in re.split(r"\n(?=JobId=)", answer[1]):
        # Directives have their line breaks here, too.
        found = dict(_FIELD.findall(record.partition("\n")[0]))
        if found.get("JobId") == token:
            lines = _BURST_BUFFER.search(record)
            return found | ({"BurstBuffer": lines[1]} if lines else {})
    return {}


def expand_symbols(text: str, token: str, user: str, fields: dict[str, str]) -> str:
    """`text` with Slurm's symbols replaced as it does in `#DW` lines: %% %A %a %d %j %u %x. `\\\\` leaves all as it is.

    Raises
    ------
    InvalidArgumentError
        Slurm has not told what one stands for, or it is not known.
    """
    if "%" not in text or "\\\\" in text:
        if text.startswith("%"):
            raise InvalidArgumentError(f"{text[:200]}: a backslash leaves %d as it is; write the folder")
        return text
    known = {
        "%": "%",
        "A": fields.get("ArrayJobId", token),
        "a": fields.get("ArrayTaskId", "4294967294"),  # as Slurm writes "no task"
        "d": fields.get("WorkDir"),
        "j": token,
        "u": user,
        "x": fields.get("JobName"),
    }

    def parts() -> Iterator[str]:
        at = 0
        while (found := text.find("%", at)) >= 0:
            yield text[at:found]
            symbol = text[found + 1 : found + 2]
            value = known.get(symbol)
            if value is None:
                reason = "Slurm does not say what it stands for" if symbol in known else "it is not known"
                raise InvalidArgumentError(f"%{symbol} in {text[:200]}: {reason}; write %% for a percent sign")
            yield value
            at = found + 2
        yield text[at:]

    return "".join(parts())


async def _states(scontrol: str, token: str) -> set[str]:
    """The state of the job. Empty if Slurm does not answer."""
    answer = await _show(scontrol, token)
    if answer is None:
        return set()
    status, text = answer
    if status != 0:
        return {_UNKNOWN} if "Invalid job id" in text else set()
    # Slurm shows the other tasks of an array, or components of a heterogeneous job, as well.
    lines = [dict(_FIELD.findall(line)) for line in text.splitlines()]
    return {fields["JobState"] for fields in lines if fields.get("JobId") == token and "JobState" in fields}


async def _show(scontrol: str, token: str) -> tuple[int, str] | None:
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
    return process.returncode or 0, output.decode(errors="replace")
