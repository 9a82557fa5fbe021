# SPDX-License-Identifier: Apache-2.0
"""`forebay up` and `forebay down`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.chosen import named, named_or_own
from forebay.cli.failures import ExitStatus
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.errors import InvalidArgumentError
from forebay.sizes import format_size, parse_size
from forebay.sync_support import sync_weakness
from forebay.workflows.manager.instance.instance_control import InstanceControl

__all__ = ["down", "up"]

up_app = typer.Typer(add_completion=False)
down_app = typer.Typer(add_completion=False)

_NAMES_SHOWN = 5


@up_app.command(epilog="Example: forebay up --root /ssd/forebay --capacity 200GiB")
def up(
    capacity: Annotated[
        str | None,
        typer.Option(
            help="What all reservations may take together, for example 200GiB. Default: 80 % of the free space."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="An address of this node for clients on other nodes: node7:7460, say. Default: no port is open.",
        ),
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER",
            help="Also let data of such clients travel by libfabric: tcp, verbs, cxi or efa. Opens further ports.",
        ),
    ] = None,
    fabric_peers: Annotated[
        str | None,
        typer.Option(
            metavar="trusted",
            help="Goes with --fabric: all users of the network and of its nodes are trusted, for they could end the "
            "server, and do what it can.",
        ),
    ] = None,
    control_encryption: Annotated[
        str | None,
        typer.Option(
            metavar="on|off",
            help="Encrypt messages of such clients? Default: on. Bytes of large steps never are encrypted.",
        ),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Let other users have reservations in it. An instance of root's always does, your own does not.",
        ),
    ] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="Take a --capacity that is more than the disk has.")
    ] = False,
    pool_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Key of a pool of servers, from `forebay servers key`. The next time it is known."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="This server's name in the pool. Default: its node's.")
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The pool's server on the manager's node. This one starts no manager, and asks that one's.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start the instance in the background: the staging server and the manager. Returns when both serve; idempotent.

    With --pool-key and --listen, servers of other nodes may join; with --join this one joins their manager.
    """
    instance = named_or_own()
    state = InstanceControl(instance).up(
        None if capacity is None else parse_size(capacity),
        listen,
        fabric=fabric,
        fabric_peers=fabric_peers,
        control_encryption=control_encryption,
        shared=shared,
        oversubscribe=oversubscribe,
        pool_key=pool_key,
        name=name,
        join=join,
    )
    notes = [note for note in (sync_weakness(instance.root), *state.notes) if note]
    if as_json:
        print_json(
            {
                "root": str(instance.root),
                "notes": notes,
                "server": state.server.as_dict(),
                "server_started": state.server_started,
                "manager_started": state.manager_started,
            }
        )
        return
    out = console()
    started = [name for name, new in (("server", state.server_started), ("manager", state.manager_started)) if new]
    what = f"started {' and '.join(started)}" if started else "runs already"
    out.print(f"{what}: {instance.root}, pool of {format_size(state.server.pool_bytes)}", markup=False, soft_wrap=True)
    others_socket = " FOREBAY_SOCKET=" if "FOREBAY_SOCKET" in os.environ else ""
    if named() is not None or others_socket:
        root_text = shlex.quote(str(instance.root))
        out.print(f"for other commands: export FOREBAY_ROOT={root_text}{others_socket}", markup=False, soft_wrap=True)
    for note in notes:
        error_console().print(f"note: {note}", markup=False, soft_wrap=True)


@down_app.command(epilog="Example: forebay down")
def down(
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also with jobs and attachments, active writers, or precious steps that are not staged out.",
        ),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Destroy nothing: for an upgrade, with jobs and users.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, at a terminal, what is to be destroyed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the instance: destroy reservations that are not persistent, end manager and server. Waits; idempotent.

    While there are jobs or attachments, or one of them has writers or precious steps that are not staged out, nothing
    is destroyed and it stays up. With --keep it stops in any case, and the next `forebay up` finds all as it was.
    """
    if force and keep:
        raise InvalidArgumentError("--force destroys and --keep does not; give one of them")
    instance = named_or_own()
    control = InstanceControl(instance)
    if not (force or keep or yes or as_json) and sys.stdin.isatty():
        _ask_before_destroying(control)
    done = control.down(force=force, keep=keep)
    if as_json:
        print_json({"root": str(instance.root), **done})
        return
    out = console()
    if done["destroyed"]:
        out.print(f"destroyed (not persistent): {', '.join(done['destroyed'])}", markup=False, soft_wrap=True)
    if done["to_destroy"]:
        names = ", ".join(done["to_destroy"])
        out.print(f"the next `forebay up` destroys (not persistent): {names}", markup=False, soft_wrap=True)
    out.print(f"{'ended' if done['was_running'] else 'was not running'}: {instance.root}", markup=False, soft_wrap=True)


def _ask_before_destroying(control: InstanceControl) -> None:
    """Says which reservations go, and asks whether they may."""
    names = control.to_be_destroyed()
    if names is None or not names:
        return
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    shown = ", ".join(names[:_NAMES_SHOWN]) + more
    error_console().print(f"down destroys what is not persistent: {shown}", markup=False, soft_wrap=True)
    error_console().print("`forebay down --keep` stops the instance and keeps them", markup=False, soft_wrap=True)
    if not typer.confirm("destroy them?", err=True):
        raise typer.Exit(ExitStatus.ERROR)
