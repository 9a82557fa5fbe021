# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of a job: whether its processes are gone, whether it is over, and whose it is.

Slurm calls post_run while processes may still write (`scancel` of a job that ignores SIGTERM), so it is asked until the
job has left COMPLETING. Only calls that Slurm makes without its locks may ask.

What decides something comes from `squeue`, which is asked for the fields by number: in the text of `scontrol show job`
a user can have written anything, in the job's name and comment. From that come only texts that the job's user sees, and
the folders and names that are the user's to choose.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from forebay.errors import InvalidArgumentError

__all__ = [
    "JobFacts",
    "comment_on",
    "is_over",
    "is_pending_for_us",
    "is_running",
    "is_unknown",
    "job_facts",
    "job_fields",
    "known_job",
    "node_addresses",
    "release",
    "wait_until_quiet",
]

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 10.0
_KNOWN_SECONDS_MAX = 20.0
_FIELD = re.compile(r"(?:^|\s)(JobId|ArrayJobId|ArrayTaskId|JobName|WorkDir|Reason|EndTime)=(\S*)")
#: Number, state, user and nodes, in which no user can have written; the account is last, because without Slurm's
#: accounting it is any text. A line of another job of the same array, or heterogeneous job, has another number.
_FACTS = "%A|%T|%U|%N|%a"
_BURST_BUFFER = re.compile(r"(?:^|\s)BurstBuffer=")
_AFTER_BURST_BUFFER = re.compile(r"\s(?:BurstBufferState=|Power=)")
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


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What Slurm itself knows of a job."""

    state: str  #: as RUNNING; _UNKNOWN if there is no such job
    uid: int = -1
    nodes: str = ""  #: as Slurm writes them: n[1-4]
    account: str = ""

    @property
    def is_unknown(self) -> bool:
        """Slurm answered that it knows no such job."""
        return self.state == _UNKNOWN


async def wait_until_quiet(squeue: str, token: str, seconds_max: float) -> bool:
    """After the job has run: True when no process of it is left, False when the time is up or Slurm does not say."""
    deadline = time.monotonic() + seconds_max
    while True:
        job = await job_facts(squeue, token)
        if job is not None and job.state not in _ALIVE:
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)


async def is_over(squeue: str, token: str) -> bool:
    """True only if Slurm says that the job has ended, or that it knows no such job."""
    job = await job_facts(squeue, token)
    return job is not None and job.state in _OVER | {_UNKNOWN}


async def is_running(squeue: str, token: str) -> bool:
    """True only if Slurm says so."""
    job = await job_facts(squeue, token)
    return job is not None and job.state in ("RUNNING", "SUSPENDED")


async def is_unknown(squeue: str, token: str) -> bool:
    """True only if Slurm answers that it knows no such job."""
    job = await job_facts(squeue, token)
    return job is not None and job.is_unknown


async def is_pending_for_us(squeue: str, token: str) -> bool:
    """True only if Slurm says that the job is pending because of its burst buffer, and not held by somebody."""
    answer = await _answer(squeue, "--noheader", "--all", "--states=all", "--format=%A|%T|%r", f"--jobs={token}")
    lines = [] if answer is None or answer[0] != 0 else answer[1].splitlines()
    # The reason is last, for the user may have written some of it.
    return any(line.startswith(f"{token}|PENDING|burst_buffer") for line in lines)


async def release(scontrol: str, token: str) -> bool:
    """Lets a job that is held go on; False if Slurm does not."""
    answer = await _answer(scontrol, "release", token)
    return answer is not None and answer[0] == 0


async def known_job(squeue: str, token: str, seconds_max: float = _KNOWN_SECONDS_MAX) -> JobFacts:
    """The job, which Slurm is asked for until it answers.

    Raises
    ------
    InvalidArgumentError
        It does not answer in time, or knows no such job.
    """
    deadline = time.monotonic() + seconds_max
    while (job := await job_facts(squeue, token)) is None:
        if time.monotonic() > deadline:
            raise InvalidArgumentError(
                f"Slurm does not answer `{squeue} -j {token}`, which the manager needs; it takes SLURM_CONF from "
                "`forebay up`"
            )
        await asyncio.sleep(_POLL_SECONDS)
    if job.is_unknown:
        raise InvalidArgumentError(f"Slurm knows no job {token}")
    return job


async def job_facts(squeue: str, token: str) -> JobFacts | None:
    """What Slurm says of the job now; None if it does not answer."""
    answer = await _answer(squeue, "--noheader", "--all", "--states=all", f"--format={_FACTS}", f"--jobs={token}")
    if answer is None:
        return None
    status, text = answer
    if status != 0:
        return JobFacts(_UNKNOWN) if "Invalid job id" in text else None
    for line in text.splitlines():
        number, *rest = line.split("|", 4)
        if number == token and len(rest) == 4 and rest[1].isdecimal():
            state, uid, nodes, account = rest
            return JobFacts(state, int(uid), nodes.strip(), account.strip())
    return None


async def node_addresses(sinfo: str, nodes: Sequence[str]) -> dict[str, str]:
    """The address of each node, as slurm.conf has it (NodeAddr).

    Raises
    ------
    InvalidArgumentError
        Slurm does not answer, does not know one, or the address cannot be found.
    """
    if not nodes:
        raise InvalidArgumentError("Slurm does not say which nodes the job has")
    answer = await _answer(sinfo, "--noheader", "--all", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%o")
    if answer is None or answer[0] != 0:
        raise InvalidArgumentError(f"Slurm does not answer `{sinfo} --Node`, which the manager needs")
    told = dict(line.strip().split("|", 1) for line in answer[1].splitlines() if "|" in line)
    addresses = {}
    for node in nodes:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(told[node], None, type=socket.SOCK_STREAM)
        except (KeyError, OSError):
            raise InvalidArgumentError(f"the address of node {node[:80]} is not known; see NodeAddr") from None
        addresses[node] = str(found[0][4][0])
    return addresses


async def comment_on(scontrol: str, token: str, text: str) -> bool:
    """Writes a comment that `scontrol show job` shows, beside the user's own; False if Slurm does not take it."""
    answer = await _answer(scontrol, "update", f"JobId={token}", f"AdminComment={text}")
    return answer is not None and answer[0] == 0


async def job_fields(scontrol: str, token: str) -> dict[str, str]:
    """What `scontrol show job` says of the job, for texts: its user can have forged all of it. Empty if it does not
    answer. BurstBuffer is its `#DW` lines.
    """
    answer = await _answer(scontrol, "--oneliner", "show", "job", token)
    if answer is None or answer[0] != 0:
        return {}
    for record in re.split(r"\n(?=JobId=)", answer[1]):
        # Directives have their line breaks here, too.
        found = dict(_FIELD.findall(record.partition("\n")[0]))
        if found.get("JobId") == token:
            return found | _burst_buffer(record)
    return {}


def _burst_buffer(record: str) -> dict[str, str]:
    """In one pass, whatever its user has written there."""
    begin = _BURST_BUFFER.search(record)
    if begin is None:
        return {}
    end = _AFTER_BURST_BUFFER.search(record, begin.end())
    return {"BurstBuffer": record[begin.end() : None if end is None else end.start()].rstrip()}


async def _answer(*command: str) -> tuple[int, str] | None:
    """Status and text of one of Slurm's programs; None if it cannot be started, or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
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
