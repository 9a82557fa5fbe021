# SPDX-License-Identifier: Apache-2.0
"""`forebay ping`: how a client reaches its server, and how fast."""

from __future__ import annotations

from typing import Annotated

import typer

import forebay
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, print_fields, print_json
from forebay.sizes import format_size

__all__ = ["register"]

_NANOSECONDS_PER_MICROSECOND = 1000


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("ping", epilog="Example: forebay ping node7:7460")(ping)


def ping(
    server: Annotated[
        str | None,
        typer.Argument(metavar="SERVER", help="HOST:PORT. Default: FOREBAY_SERVER, else the server of this node."),
    ] = None,
    size: Annotated[str, typer.Option(metavar="SIZE", help="How much the server sends to measure the rate.")] = "64MiB",
    as_json: JsonOption = False,
) -> None:
    """Show how this client reaches a server: the path of bytes, its latency and its rate.

    From another node this needs a token (FOREBAY_TOKEN_FILE), of any reservation and any rights. On the server's own
    node there is no rate: clients read and write the files of steps themselves.
    """
    instance = chosen() if server is None else f"forebay://{server}"
    with forebay.Admin(instance) as admin:
        info = admin.ping(size=size)
    if as_json:
        print_json(info.as_dict())
        return
    path = info.transport + (f", provider {info.provider}" if info.provider else "")
    print_fields(
        [
            ("path", path),
            ("latency", f"{info.latency_ns / _NANOSECONDS_PER_MICROSECOND:.0f} µs, at least "
             f"{info.latency_least_ns / _NANOSECONDS_PER_MICROSECOND:.0f} µs"),
            ("rate", "-" if info.bytes_per_second is None else f"{format_size(info.bytes_per_second)}/s"),
        ]
    )  # fmt: skip
