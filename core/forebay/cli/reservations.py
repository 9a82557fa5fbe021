# SPDX-License-Identifier: Apache-2.0
"""`forebay ls` and `forebay show`: which reservations exist, and what is in one."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Annotated, Any

import typer

import forebay
from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen, chosen_or_current
from forebay.cli.output import JsonOption, error_console, format_time, print_fields, print_json, print_table
from forebay.cli.shares import access_text, group_name, user_name
from forebay.cli.streams import STREAM_COLUMNS, check_reservation, stream_row
from forebay.errors import DisconnectedError, InvalidArgumentError
from forebay.manager.client import ManagerClient
from forebay.manager.records import ServerStatus
from forebay.records import Address, ReservationInfo
from forebay.sizes import format_size

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("ls", epilog="Example: forebay ls --json | jq '.reservations[].name'")(list_reservations)
    app.command("show", epilog="Example: forebay show run1; forebay show run1/flow@17")(show)


def list_reservations(
    long: Annotated[bool, typer.Option("--long", "-l", help="Also who may use each one.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the reservations and what is left of the pool.

    In a pool of servers: what all of them have for you, and what is left on this node's.
    """
    with forebay.Admin(chosen()) as admin:
        reservations = admin.reservations()
        reservations += _of_other_servers({info.name for info in reservations})
        server = admin.server()
    if as_json:
        print_json({"reservations": [info.as_dict() for info in reservations], "server": server.as_dict()})
        return
    print_table(
        ("NAME", ">CAPACITY", ">USED", ">FILES", ">STREAMS", "LIFETIME", "ACCESS" if long else "OWNER"),
        (
            (
                info.name,
                format_size(info.capacity_bytes),
                format_size(info.used_bytes),
                f"{_counted(info.files_used_bytes)} of {format_size(info.files_bytes)}",
                str(info.streams),
                info.lifetime.value,
                access_text(info) if long else user_name(info.owner_uid),
            )
            for info in reservations
        ),
        empty="There is no reservation yet; make one with `forebay create NAME --capacity 2GiB`.",
    )
    free = f"{format_size(server.pool_bytes - server.reserved_bytes)} of {format_size(server.pool_bytes)} not reserved"
    if _is_in_pool():
        print_fields([("this server", f"{free}; `forebay servers` lists all")])
    else:
        print_fields([("pool", free)])


def _is_in_pool() -> bool:
    """Whether other servers may have reservations, too."""
    return bool(os.environ.get("FOREBAY_SERVER")) or os.path.exists(chosen_or_current().pool_directory)


def _of_other_servers(known: Collection[str]) -> list[ReservationInfo]:
    """What other servers of a pool have for the caller; a note names those that are away."""
    if not _is_in_pool():
        return []
    try:
        with ManagerClient(chosen_or_current()) as manager:
            there, away = manager.usable_reservations()
    except DisconnectedError as error:
        error_console().print(f"note: other servers are left out: {error.what}", markup=False, soft_wrap=True)
        return []
    if away:
        error_console().print(f"note: what lies on {', '.join(away)} is left out: away", markup=False, soft_wrap=True)
    return [info for info in there if info.name not in known]


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RES|RES/STREAM[@STEP]",
            help="A reservation, or a step of a stream, for example run1/flow@17; without @STEP the newest.",
            autocompletion=stream_names,
        ),
    ],
    members: Annotated[
        bool, typer.Option("--members", help="Of a reservation: which servers have it, and whether they are there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a reservation and its streams; or a stream, and what a step of it has.

    Of a step: variables with type, shape, blocks, minimum and maximum, and attributes. Reads no data.
    """
    if "/" in name:
        if members:
            raise InvalidArgumentError("--members is for a reservation, for example run1; a stream lies where it does")
        from forebay.cli.contents import show_step  # which takes NumPy

        show_step(Address.parse(name), as_json=as_json)
    else:
        _show_reservation(name, with_members=members, as_json=as_json)


def _show_reservation(name: str, *, with_members: bool, as_json: bool) -> None:
    check_reservation(name)
    with forebay.Admin(chosen()) as admin:
        info = admin.reservation(name)
        streams = [] if info.trouble else admin.streams(name)
    members = _members(info) if with_members else None
    if as_json:
        told = {"reservation": info.as_dict(), "streams": [stream.as_dict() for stream in streams]}
        print_json(told | ({} if members is None else {"members": members}))
        return
    print_fields(_reservation_fields(info))
    if members is not None:
        print_table(
            ("SERVER", ">SEGMENTS", ">CAPACITY", "STATE"),
            (
                (row["server"], str(row["segments"]), format_size(row["capacity_bytes"]), row["state"])
                for row in members
            ),
            empty="",
        )
    print_table(STREAM_COLUMNS, map(stream_row, streams), empty="" if info.trouble else "It has no streams.")


def _members(info: ReservationInfo) -> list[dict[str, Any]]:
    """What each of its servers has of it, the home first. A server is lost that the pool has no longer."""
    servers: dict[str, ServerStatus] | None = None
    names: dict[str, str] = {}  # also of those that were given up
    try:
        with ManagerClient(chosen_or_current()) as manager:
            servers = {server.uuid: server for server in manager.servers()}
            if not servers.keys() >= {member.server for member in info.members}:
                rows_there = [row for row in manager.reservations() if row.id == info.id]
                names = {member.root_uuid: member.server for row in rows_there for member in row.members}
    except DisconnectedError as error:
        error_console().print(f"note: servers have no names here: {error.what}", markup=False, soft_wrap=True)
    rows = []
    for member in info.members:
        known = None if servers is None else servers.get(member.server)
        state = "unknown" if servers is None else "lost"
        if known is not None:
            state = "present" if known.away_since_ns is None else "away"
        name = names.get(member.server, member.server) if known is None else known.server
        rows.append(
            {
                "server": name,
                "uuid": member.server,
                "segments": member.segments,
                "capacity_bytes": member.capacity_bytes,
                "state": state,
            }
        )
    return rows


def _reservation_fields(info: ReservationInfo) -> list[tuple[str, str]]:
    return [
        ("name", info.name),
        ("id", info.id),
        *([("TROUBLE", info.trouble)] if info.trouble else []),
        ("streams", _use(info.used_bytes, info.capacity_bytes)),
        ("files", _use(info.files_used_bytes, info.files_bytes)),
        ("lifetime", info.lifetime.value),
        ("owner", f"{user_name(info.owner_uid)}:{group_name(info.owner_gid)}"),
        ("access", access_text(info)),
        ("created", format_time(info.created_ns)),
        ("files in", info.files_path),
        *(("files left", line) for line in info.files_left),
    ]


def _use(used_bytes: int | None, granted_bytes: int) -> str:
    share = "" if used_bytes is None or not granted_bytes else f" ({100 * used_bytes / granted_bytes:.0f} %)"
    return f"{_counted(used_bytes)} of {format_size(granted_bytes)}{share}"


def _counted(used_bytes: int | None) -> str:
    """A size that may not be known: the server's log says why."""
    return "?" if used_bytes is None else format_size(used_bytes)
