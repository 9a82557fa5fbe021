# SPDX-License-Identifier: Apache-2.0
"""`forebay status`: the pool, the jobs of a scheduler with what each waits for, and who is attached to what."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.table import Table

import forebay
from forebay.cli.chosen import chosen, chosen_or_current
from forebay.cli.output import JsonOption, console, print_json
from forebay.manager.client import ManagerClient
from forebay.sizes import format_size

__all__ = ["status"]

status_app = typer.Typer(add_completion=False)


@status_app.command(epilog="Example: forebay status")
def status(
    all_jobs: Annotated[bool, typer.Option("--all", help="Also jobs of which nothing is left.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the pool, your jobs (their state, reservation, and why one stands still), and attachments.

    Shown are your attachments and those to your reservations. `forebay why RESERVATION` says until when they last.
    """
    with ManagerClient(chosen_or_current()) as manager:
        attachments = manager.attachments()
        jobs = [job for job in manager.jobs() if all_jobs or job["state"] != "gone"]
    with forebay.Admin(chosen()) as admin:
        server = admin.server()
    if as_json:
        pool = {"bytes": server.pool_bytes, "reserved_bytes": server.reserved_bytes}
        print_json({"pool": pool, "jobs": jobs, "attachments": attachments})
        return
    free_bytes = max(0, server.pool_bytes - server.reserved_bytes)
    console().print(f"pool: {format_size(server.pool_bytes)}, {format_size(free_bytes)} free")
    console().print(_jobs_table(jobs) if jobs else "no jobs")
    console().print(_attachments_table(attachments) if attachments else "no attachments")


def _jobs_table(jobs: list[dict[str, Any]]) -> Table:
    table = Table("job", "run", "user", "state", "capacity", "reservation", "since", "reason")
    for job in jobs:
        table.add_row(
            job["token"],
            str(job["run"]),
            str(job["owner_uid"]),
            job["state"],
            format_size(job["capacity_bytes"]),
            job["reservation"],
            _time(job["changed_ns"]),
            job["reason"],
        )
    return table


def _attachments_table(attachments: list[dict[str, Any]]) -> Table:
    table = Table("reservation", "holder", "user", "since", "until")
    for row in attachments:
        if row["pid"] is not None:
            until = f"process {row['pid']} ends"
        elif row["expires_ns"] is not None:
            until = _time(row["expires_ns"])
        else:
            until = "the job is over" if row["kind"] == "job" else "it is detached"
        table.add_row(row["reservation"], row["holder"], str(row["owner_uid"]), _time(row["created_ns"]), until)
    return table


def _time(since_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since_ns / 1e9))
