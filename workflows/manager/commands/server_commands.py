# SPDX-License-Identifier: Apache-2.0
"""`forebay servers`: the pool's servers, its key, and how servers leave it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from forebay import _core
from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, print_json, print_table
from forebay.errors import InvalidArgumentError
from forebay.manager.client import ManagerClient
from forebay.manager.records import ServerStatus
from forebay.sizes import format_size

__all__ = ["servers_app"]

servers_app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="The servers of the pool, its key, and how servers leave it.",
    epilog="Example: forebay servers; forebay servers key pool.key; forebay servers forget ssd3 --lost",
)

NameArgument = Annotated[str, typer.Argument(metavar="SERVER", help="Its name, as `forebay servers` shows it.")]


@servers_app.callback()
def servers(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the servers: what each has and is free, and whether it is drained or away."""
    if context.invoked_subcommand is not None:
        return
    with ManagerClient(chosen_or_current()) as manager:
        answer = manager.servers()
    if as_json:
        print_json({"servers": [server.as_dict() for server in answer]})
        return
    print_table(
        ("SERVER", "ADDRESS", "STATE", ">CAPACITY", ">FREE", ">RESERVATIONS", "SINCE"),
        map(_row, answer),
        empty="no servers",
    )


def _row(server: ServerStatus) -> tuple[str, ...]:
    state, since_ns = "up", None
    if server.away_since_ns is not None:
        state, since_ns = "away", server.away_since_ns
    elif server.retired:
        state = "retired"
    elif server.drained:
        state, since_ns = "drained", server.drained.since_ns
    is_known = server.away_since_ns is None
    return (
        server.server,
        server.address,
        state,
        format_size(server.capacity_bytes) if is_known else "",
        format_size(server.free_bytes) if is_known else "",
        str(server.reservations) if is_known else "",
        "" if since_ns is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since_ns / 1e9)),
    )


@servers_app.command("key", epilog="Example: forebay servers key /etc/forebay/pool.key")
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, of mode 0600.")],
    as_json: JsonOption = False,
) -> None:
    """Make a key for a pool of servers. All its servers get the same file; whoever has it may do everything there."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidArgumentError(f"the file cannot be made: {error.strerror}; name a new one", str(file)) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(_core.new_pool_key())
        opened.flush()
        os.fsync(opened.fileno())
    if as_json:
        print_json({"file": str(file)})
        return
    console().print(f"{file}: copy it to all servers of the pool, by a safe way", markup=False, soft_wrap=True)


@servers_app.command("retire", epilog="Example: forebay servers retire ssd3")
def retire(name: NameArgument, as_json: JsonOption = False) -> None:
    """Let a server take nothing new. It leaves the pool with its last reservation; data is not moved off it."""
    with ManagerClient(chosen_or_current()) as manager:
        answer = manager.retire(name)
    if as_json:
        print_json(answer.as_dict())
        return
    if answer.left:
        text = f"{name} is not in the pool any more"
    else:
        text = f"{name} leaves the pool when these reservations are gone: {', '.join(answer.reservations)}"
    console().print(text, markup=False, soft_wrap=True)


@servers_app.command("forget", epilog="Example: forebay servers forget ssd3 --lost")
def forget(
    name: NameArgument,
    lost: Annotated[
        bool, typer.Option("--lost", help="It will not come back: its reservations are gone with it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Give up a server that will not come back, with its reservations."""
    if not lost:
        raise InvalidArgumentError(
            f"what lies on {name} is given up with it: say --lost, or `forebay servers retire {name}` if it answers"
        )
    with ManagerClient(chosen_or_current()) as manager:
        answer = manager.forget_server(name)
    if as_json:
        print_json(answer.as_dict())
        return
    gone = f"; gone with it: {', '.join(answer.lost)}" if answer.lost else ""
    if answer.damaged:
        gone += f"; these have lost what lay on it: {', '.join(answer.damaged)}"
    console().print(f"{name} is not in the pool any more{gone}", markup=False, soft_wrap=True)
