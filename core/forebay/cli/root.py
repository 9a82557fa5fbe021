# SPDX-License-Identifier: Apache-2.0
"""The root of the command line: finds the commands, runs one, and turns errors into messages and exit statuses.

A command's module is imported only when it is asked for, so that a heavy or broken package costs the others nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import forebay
from forebay.cli.chosen import one_command_line
from forebay.cli.command_groups import group_of, grouped
from forebay.cli.failures import ExitStatus, UsageError, fail_with
from forebay.cli.shared_options import (
    HELP_NAMES,
    RootOption,
    flags_without_values,
    with_plain_help,
    with_shared_options,
)
from forebay.errors import UnsupportedError

__all__ = ["COMMAND_GROUP", "OWN_COMMANDS", "main"]

COMMAND_GROUP = "forebay.commands"

#: Characters of a command's description, where the list is plain.
_HELP_WIDTH = 100

#: Of this package: which module's ``register`` adds which command.
OWN_COMMANDS = {
    "config": "config",
    "consumer": "maintenance",
    "doctor": "doctor",
    "dump": "contents",
    "env": "environment",
    "follow": "follow",
    "ls": "reservations",
    "mount": "mount",
    "path": "path",
    "ping": "ping",
    "share": "shares",
    "show": "reservations",
    "steps": "streams",
    "stream": "maintenance",
    "streams": "streams",
    "tail": "tail",
    "ticket": "ticket",
    "token": "token",
    "unmount": "mount",
    "watch": "watch",
}


class _CommandGroup(typer.core.TyperGroup):
    """Own commands and those of the entry-point group."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of their groups."""
        names = {*OWN_COMMANDS, *(point.name for point in entry_points(group=COMMAND_GROUP))}
        return [name for group in grouped(names).values() for name in group]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with_plain_help(self)
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group, names in grouped(self.list_commands(ctx)).items():
            with formatter.section(group):
                texts = [(name, self.get_command(ctx, name).get_short_help_str(_HELP_WIDTH)) for name in names]
                formatter.write_dl(texts)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            # Typer suggests only commands whose modules were imported: none.
            if isinstance(error, UsageError) and (near := get_close_matches(args[0], self.list_commands(ctx))):
                error.message = f"{error.message.rstrip('.')}. Did you mean {', '.join(map(repr, near))}?"
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return flags_without_values(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if module := OWN_COMMANDS.get(cmd_name):
            commands = typer.Typer(add_completion=False)
            importlib.import_module(f"forebay.cli.{module}").register(commands)
            command: Any = typer.main.get_group(commands).get_command(ctx, cmd_name)
        else:
            points = entry_points(group=COMMAND_GROUP, name=cmd_name)
            if not points:
                return None
            command = _load_command(next(iter(points)))
        command.rich_help_panel = group_of(cmd_name)
        return with_plain_help(with_shared_options(command))


def _load_command(point: EntryPoint) -> Any:
    """The command of an entry point: a Typer application, or a function that becomes one."""
    settings: dict[str, Any] = {}
    try:
        loaded: typer.Typer | Callable[..., Any] = point.load()
    except Exception as error:
        loaded = _unavailable(point, error)
        # Whatever arguments it is given, the reason is what the user must read.
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    if not isinstance(loaded, typer.Typer):
        application = typer.Typer(add_completion=False)
        application.command(point.name, context_settings=settings)(loaded)
        loaded = application
    command = typer.main.get_command(loaded)
    command.name = point.name
    return command


def _unavailable(point: EntryPoint, error: Exception) -> Callable[..., Any]:
    def unavailable() -> None:
        package = point.dist.name if point.dist is not None else point.value
        raise UnsupportedError(
            f"`forebay {point.name}` cannot be loaded from {package}: {type(error).__name__}: {error}; install its "
            "packages"
        )

    unavailable.__doc__ = f"(Not available: {error}.)"
    return unavailable


app = typer.Typer(
    cls=_CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES)},
    pretty_exceptions_enable=False,
)


@app.callback(epilog="Example: forebay up && forebay create run1 --capacity 2GiB && forebay ls")
def root(
    context: typer.Context,
    root_folder: RootOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Forebay stages data in flight: reservations on SSD, streams of steps, and verified movement in and out."""
    if version:
        sys.stdout.write(f"forebay {forebay.__version__}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit status; nothing but a bug under $FOREBAY_TRACEBACK is raised."""
    as_json = _wants_json(arguments)
    try:
        with one_command_line():
            status = app(args=list(arguments), prog_name="forebay", standalone_mode=False)
        sys.stdout.flush()  # Here somebody hears of a reader that has left; at the end of Python nobody would.
    except KeyboardInterrupt:
        return int(ExitStatus.CTRL_C)
    except BrokenPipeError:
        # The reader of our output has left, as in `forebay steps … | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitStatus.ERROR)
    except Exception as error:
        return fail_with(error, as_json=as_json)
    return int(status) if isinstance(status, int) else int(ExitStatus.OK)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Known before the command line is parsed, because that may be what fails."""
    return "--json" in arguments


def main() -> None:
    """Entry point of the program `forebay`."""
    sys.exit(run(sys.argv[1:]))
