# SPDX-License-Identifier: Apache-2.0
"""`forebay create`, `forebay change` and `forebay destroy`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import forebay
from forebay.cli.arguments import ReservationArgument
from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, print_json
from forebay.cli.shares import access_text, apply_share, parse_share
from forebay.cli.streams import check_reservation
from forebay.durations import parse_duration
from forebay.errors import InvalidArgumentError
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.manager.jobs import StepsJob, job_to_json
from forebay.records import Lifetime, ReservationInfo
from forebay.sizes import format_size, parse_size
from forebay.workflows.directives.stage_rules import stages_of_rules
from forebay.workflows.manager.commands.space_waiting import create_when_there_is_room

__all__ = ["change", "create", "destroy"]

create_app = typer.Typer(add_completion=False)
change_app = typer.Typer(add_completion=False)
destroy_app = typer.Typer(add_completion=False)

_OVER = ("failed", "cancelled")


@create_app.command(epilog="Example: forebay create run1 --capacity 2GiB --files 1GiB --persistent")
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A letter, then up to 63 letters, digits, '_', '.' or '-'.")
    ],
    capacity: Annotated[
        str, typer.Option(help="How much its streams may hold, for example 2GiB; 0 with --files: files only.")
    ],
    files: Annotated[str, typer.Option(help="How much its files/ may hold, beside that, for example 1GiB.")] = "0",
    persistent: Annotated[
        bool, typer.Option("--persistent", help="Keep it until it is destroyed, also after `forebay down`.")
    ] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHARE", help="As `forebay share` after it: group:NAME=read, user:NAME=write; may be given again."
        ),
    ] = None,
    pool: Annotated[str, typer.Option(help="The pool that it is taken from. Default: the default pool.")] = "",
    account: Annotated[str, typer.Option(help="The account whose quota it counts in, beside yours.")] = "",
    on: Annotated[
        str, typer.Option(metavar="SERVERS", help="In a pool of servers: on these alone, for example ssd1,ssd2.")
    ] = "",
    servers: Annotated[
        int,
        typer.Option(
            min=0,
            max=1024,
            metavar="N",
            help="In a pool of servers: on how many of them. 0: on all that --on names, else as its pool says.",
        ),
    ] = 0,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="If there is no room now, wait for it: first come, first served. Ctrl-C gives up."),
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --wait: give up after this time, for example 12h.")
    ] = None,
    stage_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="Have chosen steps copied out while they are written, for example 'stream=flow every=10 "
            "destination=/project/steps format=bp5'; may be given again.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a reservation; idempotent.

    If there is one of that name that differs, says in what, and how to change it.
    """
    rules = stages_of_rules(name, stage_out or ())
    if timeout is not None and not wait:
        raise InvalidArgumentError("--timeout says how long --wait lasts; give both")
    shares = [parse_share(text) for text in share or ()]
    asked: dict[str, Any] = {
        "capacity": parse_size(capacity),
        "files": parse_size(files),
        "persistent": persistent,
        "pool": pool,
        "account": account,
        "on": [server.strip() for server in on.split(",") if server.strip()],
        "servers": servers,
    }
    if wait:
        info = create_when_there_is_room(
            chosen_or_current(), name, asked, None if timeout is None else parse_duration(timeout)
        )
    else:
        with ManagerClient(chosen_or_current()) as manager:
            info = manager.create(name, **asked)
    if shares:
        with forebay.Admin(chosen_or_current()) as admin:
            for request in shares:
                info = apply_share(admin, name, request)
    stages = [] if not rules else _begin_stages(chosen_or_current(), rules)
    if as_json:
        print_json({"reservation": info.as_dict()} | ({"stages": stages} if rules else {}))
        return
    _say_what_is_there(info, f"; {access_text(info)}" if shares else "")
    for stage, rule in zip(stages, rules, strict=True):
        line = f"stage {stage}: {rule.stream} goes to {rule.destination}; `forebay stages show {stage}`"
        console().print(line, markup=False, soft_wrap=True)


def _begin_stages(instance: Instance, rules: list[StepsJob]) -> list[int]:
    """Has the manager begin them, except those that it has begun before; their numbers."""
    numbers = []
    with ManagerClient(instance) as manager:
        begun = manager.stages()
        for rule in rules:
            wanted = job_to_json(rule)
            same = [
                stage.id
                for stage in begun
                if stage.state not in _OVER and {**stage.job, "variables": ()} == {**wanted, "variables": ()}
            ]
            numbers.append(same[0] if same else manager.submit(rule).id)
    return numbers


def _say_what_is_there(info: ReservationInfo, access: str = "") -> None:
    persistent = info.lifetime is Lifetime.PERSISTENT
    until = "until it is destroyed" if persistent else "until it is destroyed or the instance goes down"
    size = format_size(info.capacity_bytes)
    if info.files_bytes:
        size += f" for streams, {format_size(info.files_bytes)} for files"
    console().print(f"{info.name}: {size}, kept {until}{access}", markup=False, soft_wrap=True)


@change_app.command(epilog="Example: forebay change run1 --persistent --files 2GiB")
def change(
    name: ReservationArgument,
    persistent: Annotated[
        bool | None,
        typer.Option(
            "--persistent/--not-persistent",
            help="Keep it until it is destroyed; or only until the instance goes down or its last attachment ends.",
        ),
    ] = None,
    files: Annotated[
        str | None, typer.Option(metavar="SIZE", help="How much its files/ may hold from now on, for example 2GiB.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change how long a reservation is kept, and what it has for files; idempotent.

    What it has for streams, its pool and its account cannot be changed.
    """
    check_reservation(name)
    if persistent is None and files is None:
        raise InvalidArgumentError("say what to change: --persistent, --not-persistent or --files SIZE")
    with ManagerClient(chosen_or_current()) as manager:
        info = manager.change(name, persistent=persistent, files=None if files is None else parse_size(files))
    if as_json:
        print_json({"reservation": info.as_dict()})
        return
    _say_what_is_there(info)


@destroy_app.command(epilog="Example: forebay destroy run1")
def destroy(
    name: ReservationArgument,
    force: Annotated[
        bool,
        typer.Option("--force", help="Destroy it despite active writers or precious steps that are not staged out."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Destroy a reservation with all its streams and files; idempotent."""
    check_reservation(name)
    with ManagerClient(chosen_or_current()) as manager:
        answer = manager.destroy(name, force=force)
    if as_json:
        print_json(answer.as_dict())
    elif answer.existed:
        console().print(f"{name}: destroyed", markup=False, soft_wrap=True)
    else:
        near = f"; did you mean {' or '.join(answer.near)}?" if answer.near else ""
        console().print(f"{name}: there was no such reservation{near}", markup=False, soft_wrap=True)
