# SPDX-License-Identifier: Apache-2.0
"""`forebay attach`, `forebay extend` and `forebay detach`."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from forebay.cli.arguments import ReservationArgument
from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, print_json
from forebay.cli.streams import check_reservation
from forebay.durations import format_duration, parse_duration
from forebay.manager.client import ManagerClient

__all__ = ["attach", "detach", "extend"]

attach_app = typer.Typer(add_completion=False)
extend_app = typer.Typer(add_completion=False)
detach_app = typer.Typer(add_completion=False)

_Holder = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="HOLDER",
        help="What to call the attachment, where you make several. Default: your user name, or `process PID`.",
    ),
]
_Process = Annotated[
    int | None, typer.Option("--for", metavar="PID", min=1, help="It ends with this process, for example $$.")
]
_Time = Annotated[
    str | None, typer.Option("--ttl", metavar="TIME", help="It ends after this time, for example 90s, 30m, 12h or 14d.")
]


def _holder(name: str | None, pid: int | None) -> str:
    if name is not None:
        return name
    return f"process {pid}" if pid is not None else getpass.getuser()


@attach_app.command(epilog="Example: forebay attach run1 --for $$")
def attach(
    name: ReservationArgument,
    pid: _Process = None,
    ttl: _Time = None,
    holder: _Holder = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a reservation in use: until a process ends, for a time, or until you detach. Idempotent; renews.

    A reservation that is not persistent is destroyed when the last attachment to it ends, as soon as no stage or writer
    uses it and no precious step is unstaged.
    """
    check_reservation(name)
    ttl_seconds = None if ttl is None else parse_duration(ttl)
    with ManagerClient(chosen_or_current()) as manager:
        row = manager.attach(name, _holder(holder, pid), pid=pid, ttl_seconds=ttl_seconds)
    if as_json:
        print_json({"attachment": row.as_dict()})
        return
    if pid is not None:
        until = f"until process {pid} ends"
    elif ttl_seconds is not None:
        until = f"for {format_duration(ttl_seconds)}"
    else:
        until = f"until `forebay detach {name}`"
    console().print(f"{name}: {row.holder} is attached {until}", markup=False, soft_wrap=True)


@extend_app.command(epilog="Example: forebay extend run1 --ttl 2h")
def extend(
    name: ReservationArgument,
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long it lasts from now on.")],
    holder: _Holder = None,
    as_json: JsonOption = False,
) -> None:
    """Let an attachment last longer, or shorter. Called again and again, it tells that its user is alive."""
    check_reservation(name)
    seconds = parse_duration(ttl)
    with ManagerClient(chosen_or_current()) as manager:
        row = manager.extend(name, _holder(holder, None), ttl_seconds=seconds)
    if as_json:
        print_json({"attachment": row.as_dict()})
        return
    console().print(
        f"{name}: {row.holder} is attached for {format_duration(seconds)} from now", markup=False, soft_wrap=True
    )


@detach_app.command(epilog="Example: forebay detach run1")
def detach(
    name: ReservationArgument, pid: _Process = None, holder: _Holder = None, as_json: JsonOption = False
) -> None:
    """End an attachment; idempotent. With the last one goes a reservation that is not persistent."""
    check_reservation(name)
    with ManagerClient(chosen_or_current()) as manager:
        detached = manager.detach(name, _holder(holder, pid))
    if as_json:
        print_json({"detached": detached})
        return
    text = "is detached" if detached else "was not attached"
    console().print(f"{name}: {_holder(holder, pid)} {text}", markup=False, soft_wrap=True)
