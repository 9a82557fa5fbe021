# SPDX-License-Identifier: Apache-2.0
"""`forebay status`: the pools, a drained server, who waits for space, reservations, a scheduler's jobs with what each
waits for, and attachments.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, print_json, print_table
from forebay.cli.shares import user_name
from forebay.manager.client import ManagerClient
from forebay.manager.records import AttachmentKind, AttachmentRow, JobRow, JobState, ReservationRow
from forebay.sizes import format_size

__all__ = ["status"]

status_app = typer.Typer(add_completion=False)


@status_app.command(epilog="Example: forebay status")
def status(
    all_jobs: Annotated[bool, typer.Option("--all", help="Also jobs of which nothing is left.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the pools, your reservations, your jobs (their state, and why one stands still), and attachments.

    Shown are your attachments and those to your reservations. `forebay why RESERVATION` says until when they last.
    """
    with ManagerClient(chosen_or_current()) as manager:
        attachments = manager.attachments()
        pools, queue, reservations = manager.pools(), manager.queue(), manager.reservations()
        servers = manager.servers()
        jobs = [job for job in manager.jobs() if all_jobs or job.state is not JobState.GONE]
    if as_json:
        print_json(
            {
                "servers": [server.as_dict() for server in servers],
                "pools": [pool.as_dict() for pool in pools],
                "queue": [row.as_dict() for row in queue],
                "reservations": [row.as_dict() for row in reservations],
                "jobs": [job.as_dict() for job in jobs],
                "attachments": [row.as_dict() for row in attachments],
            }
        )
        return
    for pool in pools:
        waiting = f", {format_size(pool.waiting_bytes)} waited for" if pool.waiting_bytes else ""
        size, free = format_size(pool.capacity_bytes), format_size(pool.free_bytes)
        console().print(f"pool {pool.name}: {size}, {free} free{waiting}", markup=False, soft_wrap=True)
    for server in servers:
        if drained := server.drained:
            reason = f": {drained.reason}" if drained.reason else ""
            console().print(
                f"server {server.server} is drained since {_time(drained.since_ns)}{reason}; it makes no new "
                "reservations",
                markup=False,
                soft_wrap=True,
            )
    for row in queue:
        console().print(
            f"waits for space since {_time(row.created_ns)}: {row.name}, {format_size(row.size_bytes)} for "
            f"user {user_name(row.owner_uid)}, {row.ahead} before it",
            markup=False,
            soft_wrap=True,
        )
    print_table(
        ("RESERVATION", "OWNER", "STATE", ">STREAMS", ">FILES", "LIFETIME", "POOL", "SINCE"),
        map(_reservation_row, reservations),
        empty="no reservations",
    )
    print_table(
        ("JOB", ">RUN", "OWNER", "STATE", ">CAPACITY", "RESERVATION", "SINCE", "REASON"),
        map(_job_row, jobs),
        empty="no jobs",
    )
    print_table(
        ("RESERVATION", "HOLDER", "OWNER", "SINCE", "UNTIL"), map(_attachment_row, attachments), empty="no attachments"
    )


def _reservation_row(row: ReservationRow) -> tuple[str, ...]:
    return (
        row.name,
        user_name(row.owner_uid),
        row.state,
        format_size(row.capacity_bytes),
        format_size(row.files_bytes),
        "persistent" if row.persistent else "job",
        row.pool or "default",
        _time(row.created_ns),
    )


def _job_row(job: JobRow) -> tuple[str, ...]:
    return (
        job.token,
        str(job.run),
        user_name(job.owner_uid),
        job.state,
        format_size(job.capacity_bytes),
        job.reservation,
        _time(job.changed_ns),
        job.reason,
    )


def _attachment_row(row: AttachmentRow) -> tuple[str, ...]:
    if row.pid is not None:
        until = f"process {row.pid} ends"
    elif row.expires_ns is not None:
        until = _time(row.expires_ns)
    else:
        until = "the job is over" if row.kind is AttachmentKind.JOB else "it is detached"
    return row.reservation, row.holder, user_name(row.owner_uid), _time(row.created_ns), until


def _time(since_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since_ns / 1e9))
