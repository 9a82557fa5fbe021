# SPDX-License-Identifier: Apache-2.0
"""`forebay watch`: a stream's watermarks and its consumers' lag, live."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer
from rich.live import Live

import forebay
from forebay.cli.arguments import StreamArgument
from forebay.cli.chosen import chosen
from forebay.cli.live import stream_view
from forebay.cli.output import console
from forebay.cli.streams import step_text
from forebay.records import Address, StreamInfo, StreamStatus

__all__ = ["register"]

_RECONNECT_SECONDS = 60.0
_OVER = (StreamStatus.ENDED, StreamStatus.FAILED)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("watch", epilog="Example: forebay watch run1/flow")(watch)


def watch(
    stream: StreamArgument,
    interval_seconds: Annotated[
        float, typer.Option("--interval", min=0.05, metavar="SECONDS", help="Time between two updates.")
    ] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="Show the state once instead of until the stream ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per line for each change.")] = False,
) -> None:
    """Show a stream live - committed, durable, staged, each consumer's lag - until it ends or Ctrl-C."""
    address = Address.parse(stream).path
    out = console()
    with forebay.Admin(chosen()) as admin:
        info = admin.stream(address)
    # From here on a server that is restarted is waited for.
    with forebay.Admin(chosen(), reconnect_timeout=_RECONNECT_SECONDS) as admin:
        if once or as_json or not out.is_terminal:
            _print_changes(admin, address, info, interval_seconds, once=once, as_json=as_json)
            return
        with Live(stream_view(info, address), console=out, auto_refresh=False) as live:
            while info.status not in _OVER or _consumers_behind(info):
                time.sleep(interval_seconds)
                info = admin.stream(address)
                live.update(stream_view(info, address), refresh=True)


def _print_changes(
    admin: forebay.Admin, address: str, info: StreamInfo, interval_seconds: float, *, once: bool, as_json: bool
) -> None:
    """One line for each change, for pipes and programs."""
    shown: StreamInfo | None = None
    while True:
        if info != shown:
            sys.stdout.write(json.dumps(info.as_dict()) + "\n" if as_json else _line(address, info) + "\n")
            sys.stdout.flush()
            shown = info
        if once or (info.status in _OVER and not _consumers_behind(info)):
            return
        time.sleep(interval_seconds)
        info = admin.stream(address)


def _consumers_behind(info: StreamInfo) -> bool:
    return any(consumer.connected and consumer.lag_steps for consumer in info.consumers)


def _line(address: str, info: StreamInfo) -> str:
    lags = "".join(f" {consumer.name}:-{consumer.lag_steps}" for consumer in info.consumers)
    why = f" ({info.status_text})" if info.status_text else ""
    return (
        f"{address} {info.status.value} committed={step_text(info.committed)} durable={step_text(info.durable)} "
        f"staged={step_text(info.staged)} kept={info.steps}{lags}{why}"
    )
