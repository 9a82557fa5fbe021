# SPDX-License-Identifier: Apache-2.0
"""`forebay watch`: a stream's watermarks, its consumers' lag and who waits, live; or all streams of a reservation."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.live import Live

import forebay
from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen
from forebay.cli.live import reservation_view, stream_view, wait_text
from forebay.cli.output import console, print_line
from forebay.cli.rates import Rates, StreamRate
from forebay.cli.streams import step_text
from forebay.records import Address, AwaitedStream, StreamInfo, StreamStatus, StreamWait, WaitKind

__all__ = ["register"]

_RECONNECT_SECONDS = 60.0
_OVER = (StreamStatus.ENDED, StreamStatus.FAILED)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("watch", epilog="Example: forebay watch run1; forebay watch run1/flow")(watch)


def watch(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RES|RES/STREAM",
            help="A stream, for example run1/flow; or a reservation: all its streams.",
            autocompletion=stream_names,
        ),
    ],
    interval_seconds: Annotated[
        float, typer.Option("--interval", min=0.05, metavar="SECONDS", help="Time between two updates.")
    ] = 0.5,
    once: Annotated[
        bool, typer.Option("--once", help="Show the state once; the rates of a reservation's streams after --interval.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per line for each change.")] = False,
) -> None:
    """Show streams live: steps, rates, each consumer's lag, and who waits for what since when.

    A stream until it ends, with its watermarks; the streams of a reservation until Ctrl-C, with steps and bytes per
    second.
    """
    reservation, slash, stream = what.removeprefix("forebay://").partition("/")
    if stream or slash:
        _watch_stream(Address.parse(what).path, interval_seconds, once=once, as_json=as_json)
    else:
        _watch_reservation(reservation, interval_seconds, once=once, as_json=as_json)


def _watch_reservation(name: str, interval_seconds: float, *, once: bool, as_json: bool) -> None:
    out = console()
    rates = Rates()
    with forebay.Admin(chosen()) as admin:
        admin.reservation(name, count_files=False)
    with forebay.Admin(chosen(), reconnect_timeout=_RECONNECT_SECONDS) as admin:

        def look() -> _Look:
            return _Look(rates.look(admin.streams(name), time.monotonic()), admin.awaited_streams(name))

        found = look()
        if once:
            time.sleep(interval_seconds)
            found = look()
        if as_json or not out.is_terminal:
            shown: _Look | None = None
            while True:
                _print_rates(name, found, shown, as_json=as_json)
                if once:
                    return
                time.sleep(interval_seconds)
                shown, found = found, look()
        if once:
            out.print(reservation_view(name, found.rates, found.awaited))
            return
        with Live(reservation_view(name, found.rates, found.awaited), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(interval_seconds)
                found = look()
                live.update(reservation_view(name, found.rates, found.awaited), refresh=True)


@dataclass(frozen=True)
class _Look:
    """What there is in a reservation at one time."""

    rates: list[StreamRate]
    awaited: list[AwaitedStream]

    @property
    def infos(self) -> dict[str, StreamInfo]:
        """By the stream's name."""
        return {rate.info.name: rate.info for rate in self.rates}


def _print_rates(name: str, found: _Look, shown: _Look | None, *, as_json: bool) -> None:
    """What has changed since what was `shown`, for pipes and programs."""
    if as_json:
        if shown is None or (found.infos, found.awaited) != (shown.infos, shown.awaited):
            document = {
                "reservation": name,
                "streams": [rate.as_dict() for rate in found.rates],
                "awaited": [stream.as_dict() for stream in found.awaited],
            }
            print_line(json.dumps(document))
    else:
        infos = shown.infos if shown else {}
        for rate in found.rates:
            path = f"{name}/{rate.info.name}"
            before = infos.get(rate.info.name)
            line = _line(path, rate.info)
            if before is None or line != _line(path, before):
                print_line(f"{line}{_rate_text(rate)}")
            for wait in _new_waits(before.waits if before else (), rate.info.waits):
                print_line(f"{path}: {wait_text(wait)}")
        known = {stream.name: stream.waits for stream in (shown.awaited if shown else ())}
        for stream in found.awaited:
            for wait in _new_waits(known.get(stream.name, ()), stream.waits):
                print_line(f"{name}/{stream.name}: {wait_text(wait)}")


def _new_waits(before: Sequence[StreamWait], now: Sequence[StreamWait]) -> list[StreamWait]:
    """Who began to wait since the last look; not for the next step, which every reader does all the time."""
    known = {(wait.who, wait.kind, wait.since_ns) for wait in before}
    return [
        wait for wait in now if wait.kind is not WaitKind.STEP and (wait.who, wait.kind, wait.since_ns) not in known
    ]


def _rate_text(rate: StreamRate) -> str:
    if rate.steps_per_second is None or rate.bytes_per_second is None:
        return ""
    return f" steps/s={rate.steps_per_second:.1f} MiB/s={rate.bytes_per_second / 2**20:.1f}"


def _watch_stream(address: str, interval_seconds: float, *, once: bool, as_json: bool) -> None:
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
            if as_json:
                print_line(json.dumps(info.as_dict()))
            elif shown is None or _line(address, info) != _line(address, shown):
                print_line(_line(address, info))
            for wait in () if as_json else _new_waits(shown.waits if shown else (), info.waits):
                print_line(f"{address}: {wait_text(wait)}")
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
