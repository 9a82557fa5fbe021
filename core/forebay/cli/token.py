# SPDX-License-Identifier: Apache-2.0
"""`forebay token`: what a client on another node shows to the server."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

import forebay
from forebay import _core
from forebay.cli.arguments import ReservationArgument
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, print_json
from forebay.cli.streams import check_reservation
from forebay.errors import InvalidArgumentError
from forebay.instance import server_place

__all__ = ["parse_duration", "register"]

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

LifetimeOption = Annotated[
    str, typer.Option("--ttl", metavar="DURATION", help="How long it is valid, for example 90s, 30m, 8h or 7d.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A new file of mode 0600 for the token. Default: print the token."),
]

token_app = typer.Typer(add_completion=False, no_args_is_help=True, help="Tokens for clients on other nodes.")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.add_typer(token_app, name="token", epilog="Example: forebay token create run1 --rights read --ttl 8h")


def parse_duration(text: str) -> int:
    """Seconds of a text such as ``90``, ``90s``, ``30m``, ``8h`` or ``7d``.

    Raises
    ------
    InvalidArgumentError
        It is none of these, or not at least a second.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd]?)", text.strip())
    if match is None:
        raise InvalidArgumentError(f"not a duration: {text!r}; write for example 90s, 30m, 8h or 7d")
    return int(match[1]) * _SECONDS[match[2]]


@token_app.callback()
def token() -> None:
    """Tokens for clients on other nodes."""


@token_app.command("create", epilog="Example: forebay token create run1 --rights read --ttl 8h --output run1.token")
def create_token(
    reservation: ReservationArgument,
    rights: Annotated[
        str, typer.Option(metavar="RIGHTS", help="What the token allows: read, write, or read,write.")
    ] = "read",
    ttl: LifetimeOption = "8h",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token for one reservation, with which you may use it from another node.

    Run this on the server's node. On the other node, set FOREBAY_TOKEN_FILE to the token's file.
    """
    check_reservation(reservation)
    wanted = [right.strip() for right in rights.split(",")]
    if set(wanted) - {"read", "write"}:
        raise InvalidArgumentError(f"rights are read, write, or read,write, not {rights!r}")
    lifetime = parse_duration(ttl)
    with forebay.Admin(chosen()) as admin:
        text = admin.create_token(reservation, rights=wanted, lifetime=lifetime)
    _give_out(text, output, as_json)


@token_app.command("user", epilog="Example: forebay token user --ttl 8h --output ~/pool.token")
def create_user_token(ttl: LifetimeOption = "8h", output: OutputOption = None, as_json: JsonOption = False) -> None:
    """Make a token with which you are known to a pool of servers, for a node without a server and without MUNGE.

    Run this on the node of one of the servers. On the other node, set FOREBAY_SERVER to any server of the pool and
    FOREBAY_TOKEN_FILE to the token's file; then commands and programs work there as everywhere. Whoever has the file is
    you, in the groups that you have now; so it is valid for a day at most, and cannot be revoked.
    """
    _give_out(_core.user_token(server_place(chosen()), parse_duration(ttl)), output, as_json)


def _give_out(text: str, output: Path | None, as_json: bool) -> None:
    """Writes the token to the file, if one is named, or prints it."""
    if output is not None:
        try:
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise InvalidArgumentError(f"{output} exists already; remove it, or name another file") from None
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
    if as_json:
        print_json({"token": text, "file": None if output is None else str(output)})
    elif output is None:
        sys.stdout.write(text + "\n")


@token_app.command("revoke", epilog="Example: forebay token revoke run1.token")
def revoke_token(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file with the token.")],
    as_json: JsonOption = False,
) -> None:
    """Make a token void before its time. Connections with it end; other tokens stay valid. Idempotent.

    Run this on the server's node.
    """
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"the token cannot be read: {error}", str(file)) from None
    with forebay.Admin(chosen()) as admin:
        admin.revoke_token(text)
    if as_json:
        print_json({"revoked": str(file)})
