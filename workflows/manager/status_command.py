# SPDX-License-Identifier: Apache-2.0
"""`forebay status`: the pool, and the jobs of a scheduler with what each waits for."""

from __future__ import annotations

import time
from typing import Annotated

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
    """Show the pool and your jobs: their state, reservation, and why one stands still."""
    with ManagerClient(chosen_or_current()) as manager:
        jobs = [job for job in manager.jobs() if all_jobs or job["state"] != "gone"]
    with forebay.Admin(chosen()) as admin:
        server = admin.server()
    if as_json:
        pool = {"bytes": server.pool_bytes, "reserved_bytes": server.reserved_bytes}
        print_json({"pool": pool, "jobs": jobs})
        return
    free_bytes = max(0, server.pool_bytes - server.reserved_bytes)
    console().print(f"pool: {format_size(server.pool_bytes)}, {format_size(free_bytes)} free")
    if not jobs:
        console().print("no jobs")
        return
    table = Table("job", "run", "user", "state", "capacity", "reservation", "since", "reason")
    for job in jobs:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job["changed_ns"] / 1e9))
        table.add_row(
            job["token"],
            str(job["run"]),
            str(job["owner_uid"]),
            job["state"],
            format_size(job["capacity_bytes"]),
            job["reservation"],
            since,
            job["reason"],
        )
    console().print(table)
