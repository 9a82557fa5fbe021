# SPDX-License-Identifier: Apache-2.0
"""`forebay share`: who else may use a reservation; and how the other commands say it."""

from __future__ import annotations

import grp
import os
import pwd
import re
from typing import Annotated

import typer

import forebay
from forebay.cli.arguments import ReservationArgument
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, print_json, print_line
from forebay.cli.streams import check_reservation
from forebay.errors import InvalidArgumentError
from forebay.records import ReservationInfo, Rights, Share, ShareKind

__all__ = ["access_text", "apply_share", "group_name", "parse_share", "register", "user_name"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("share", epilog="Example: forebay share run1 --group climate --rights read")(share)


def share(
    name: ReservationArgument,
    rights: Annotated[
        Rights | None, typer.Option(help="read: its streams and files; write: change them, too; none: take both away.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="A group, by name or number.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="A user, by name or number.")] = None,
    adopt: Annotated[
        str | None,
        typer.Option(
            "--adopt", metavar="PATH", help="Share what the owner has moved into files/, too: it and all below it."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a user or a group into a reservation, or out; for its owner and root. Idempotent.

    A user's own share counts alone; without one, the most that any of their groups has. Programs that use a right which
    is taken away end with an error. Shares reach files that were made in the reservation, not what was moved into it:
    the command names that, and --adopt PATH lets what is the owner's there count as made in it.
    """
    check_reservation(name)
    if adopt is not None and (rights, group, user) != (None, None, None):
        raise InvalidArgumentError("--adopt goes alone: it gives what the shares say; run two commands")
    if adopt is None and (user is None) == (group is None):
        raise InvalidArgumentError("say whom: --user USER or --group GROUP, one of them")
    if adopt is None and rights is None:
        raise InvalidArgumentError("say what they may do: --rights read, write or none")
    with forebay.Admin(chosen()) as admin:
        if adopt is not None:
            info = admin.adopt_files(name, _below_files(admin, name, adopt))
        else:
            kind, who = (ShareKind.USER, user) if user is not None else (ShareKind.GROUP, group)
            assert who is not None
            assert rights is not None
            info = apply_share(admin, name, Share(kind, _number_of(kind, who), rights))
    if as_json:
        print_json({"reservation": info.as_dict()})
        return
    for line in (access_text(info), *info.files_left):
        print_line(f"{name}: {line}")


def _below_files(admin: forebay.Admin, name: str, path: str) -> str:
    """The path below files/ that ``PATH``, ``RES:PATH`` or a path on this machine means."""
    path = path.removeprefix(f"{name}:")
    if not os.path.isabs(path):
        return os.path.normpath(path)
    files = admin.reservation(name, count_files=False).files_path
    below = os.path.relpath(path, files)
    if below.split(os.sep)[0] == os.pardir:
        raise InvalidArgumentError(f"{path} does not lie in the reservation's files, which are {files}", name)
    return below


def apply_share(admin: forebay.Admin, name: str, request: Share) -> ReservationInfo:
    """Has the server share the reservation."""
    if request.kind is ShareKind.USER:
        return admin.share(name, request.rights, user=request.id)
    return admin.share(name, request.rights, group=request.id)


def parse_share(text: str) -> Share:
    """The share that ``user:NAME=RIGHTS`` or ``group:NAME=RIGHTS`` means."""
    whom, _, rights = text.rpartition("=")
    kind, _, who = whom.partition(":")
    known = kind in (ShareKind.USER, ShareKind.GROUP) and rights in list(Rights)
    if not known or not who:
        raise InvalidArgumentError(
            f"--share {text!r}: expected group:NAME=read or user:NAME=read, with read, write or none"
        )
    return Share(ShareKind(kind), _number_of(ShareKind(kind), who), Rights(rights))


def access_text(info: ReservationInfo) -> str:
    """Who may do what, in a line."""
    parts = [f"owner {user_name(info.owner_uid)}"]
    named = {(share.kind, share.id) for share in info.shares}
    if (ShareKind.GROUP, info.owner_gid) not in named:
        parts.append(f"group {group_name(info.owner_gid)} write")
    for share in info.shares:
        name = user_name(share.id) if share.kind is ShareKind.USER else group_name(share.id)
        parts.append(f"{share.kind.value} {name} {share.rights.value}")
    return ", ".join(parts)


def user_name(uid: int) -> str:
    """The user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """The group's name, or the number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


_NUMBER_MAX = 2**32 - 2  # The last one means nobody.


def _number_of(kind: ShareKind, who: str) -> int:
    try:
        return pwd.getpwnam(who).pw_uid if kind is ShareKind.USER else grp.getgrnam(who).gr_gid
    except KeyError:
        pass
    if re.fullmatch("[0-9]{1,10}", who) is None or int(who) > _NUMBER_MAX:
        raise InvalidArgumentError(f"there is no {kind.value} {who[:80]!r} on this machine; give its name or number")
    return int(who)
