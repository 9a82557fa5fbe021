# SPDX-License-Identifier: Apache-2.0
"""The help of every command: an example that the command itself takes, and --json where a script wants an answer."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import typer.main

from forebay.cli.root import OWN_COMMANDS, app
from forebay.cli.shared_options import ROOT_OPTION

#: What answers with the output and the exit status of another program, or goes on until it is ended.
WITHOUT_JSON = {"forebay run", "forebay cluster exec", "forebay agent"}

ROOT: Any = typer.main.get_command(app)


def below(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The command, and those below it."""
    yield name, command
    for child in getattr(command, "commands", {}):
        yield from below(command.commands[child], f"{name} {child}")


COMMANDS = {
    name: command
    for known in ROOT.list_commands(None)
    for name, command in below(ROOT.get_command(None, known), f"forebay {known}")
}


def examples(command: Any) -> list[list[str]]:
    """The words of each example's calls of `forebay`, without what the shell does with them."""
    text = (command.epilog or "").removeprefix("Example: ")
    calls = re.split(r"; |&&|\||\$\(|\)", text)
    words = [shlex.split(call.strip().replace('"', "").replace("$$", "1")) for call in calls if "forebay " in call]
    return [call[call.index("forebay") + 1 :] for call in words]


def test_each_module_adds_the_commands_that_the_root_expects_of_it() -> None:
    """Else one would be missing, silently."""
    for module in set(OWN_COMMANDS.values()):
        commands = typer.Typer()
        importlib.import_module(f"forebay.cli.{module}").register(commands)
        added: Any = typer.main.get_group(commands)
        assert set(added.commands) == {name for name, place in OWN_COMMANDS.items() if place == module}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_has_an_example_of_the_command(name: str) -> None:
    command = COMMANDS[name]
    assert (command.epilog or "").startswith("Example: ")
    assert any(["forebay", *call][: len(name.split())] == name.split() for call in examples(command))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_examples_are_what_the_command_takes(name: str) -> None:
    """Parsed, not run."""
    for call in examples(COMMANDS[name]):
        called = " ".join(["forebay", *call])
        meant = max((known for known in COMMANDS if f"{called} ".startswith(f"{known} ")), key=len)
        # A bad option or a missing argument raises.
        COMMANDS[meant].make_context(meant, call[len(meant.split()) - 1 :])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_what_does_something_answers_in_json(name: str) -> None:
    command = COMMANDS[name]
    only_groups = hasattr(command, "commands") and not command.invoke_without_command
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) == (name not in WITHOUT_JSON and not only_groups)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_argument_and_option_says_what_it_is(name: str) -> None:
    for parameter in COMMANDS[name].params:
        if parameter.name != ROOT_OPTION:
            assert (parameter.help or "").rstrip().endswith((".", ".)")), parameter.name


def test_the_commands_are_described_by_a_sentence() -> None:
    for name, command in COMMANDS.items():
        first = (command.help or "").strip().splitlines()[0]
        assert first[0].isupper(), name
        assert first.endswith("."), name
