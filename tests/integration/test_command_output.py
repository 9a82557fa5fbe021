# SPDX-License-Identifier: Apache-2.0
"""How commands look: at a pipe, in groups, with names of users; and which instance they find."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli.command_groups import group_of
from forebay.cli.elements import element_text
from forebay.cli.root import OWN_COMMANDS
from tests.support.instance import CommandLineInstance

pytestmark = pytest.mark.instance

BOXES = "╭│┃━─"
DIES = """
import os, forebay
stream = forebay.open("run1/flow", "w")
step = stream.step()
step["T"] = 1
os._exit(0)
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineInstance]:
    with CommandLineInstance(tmp_path_factory.mktemp("output") / "root") as running:
        running.ask("create", "run1", "--capacity", "16MiB")
        subprocess.run([sys.executable, "-c", DIES], env=os.environ | running.environment, check=True)
        yield running


def test_commands_are_listed_in_groups_and_without_boxes_on_a_pipe(tmp_path: Path) -> None:
    told = CommandLineInstance(tmp_path).run("--help").stdout
    assert not set(BOXES) & set(told)
    headings = [line for line in told.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings[:4] == ["Options:", "The instance:", "Reservations:", "Streams and steps:"]
    listed = [line.split()[0] for line in told.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
    assert set(OWN_COMMANDS) <= set(listed)
    assert len(listed) == len(set(listed))
    assert group_of("somebody-elses") == "More"
    assert not set(BOXES) & set(CommandLineInstance(tmp_path).run("create", "--help").stdout)


def test_a_reader_that_leaves_early_is_no_failure_of_ours(tmp_path: Path) -> None:
    instance = CommandLineInstance(tmp_path)
    with subprocess.Popen(
        instance.command("--help"),
        env=os.environ | instance.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


@pytest.mark.parametrize("option", [(), ("--json",)], ids=["text", "json"])
def test_output_that_cannot_be_written_is_told_in_a_line(
    instance: CommandLineInstance, option: tuple[str, ...]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            instance.command("ls", *option),
            env=os.environ | instance.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_tables_are_plain_on_a_pipe_and_name_users(instance: CommandLineInstance) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    for command in (["status"], ["ls"], ["streams", "run1"]):
        assert not set(BOXES) & set(instance.run(*command).stdout)
    row = next(line for line in instance.run("status").stdout.splitlines() if line.startswith("run1"))
    assert row.split()[1] == me


def test_the_status_of_a_stream_is_a_word(instance: CommandLineInstance) -> None:
    head, row = instance.run("streams", "run1").stdout.splitlines()
    assert row.split()[:3] == ["flow", "interrupted", "1"], head
    assert "its process was killed" in instance.run("why", "run1/flow").stdout


def test_zero_has_no_sign() -> None:
    assert [element_text(value) for value in (-0.0, 0.0, -1e-30, -1, "-0")] == ["0", "0", "-1e-30", "-1", "-0"]


def test_a_capacity_beyond_the_disk_is_refused(tmp_path: Path) -> None:
    instance = CommandLineInstance(tmp_path / "root")
    refused = instance.run("up", "--capacity", "200TiB")
    assert refused.returncode == 1
    assert "the capacity is 200 TiB, and the disk below the root has " in refused.stderr
    assert "--oversubscribe" in refused.stderr
    assert not instance.files.endpoint.exists()
    try:
        told = instance.ask("up", "--capacity", "200TiB", "--oversubscribe")
        assert any("reservations may fail although the pool has room" in note for note in told["notes"])
    finally:
        instance.ask("down")


@pytest.mark.skipif(os.geteuid() != 0, reason="root finds its own instance; another user is needed")
def test_a_user_without_an_instance_finds_the_centres(instance: CommandLineInstance, tmp_path: Path) -> None:
    """As root's default and a user's own are elsewhere, this needs no user but another default."""
    configuration = tmp_path / "forebay.toml"
    configuration.write_text(f'root = "{instance.root}"\n')
    script = "import os, sys; os.geteuid = lambda: 1; from forebay.cli.root import run; sys.exit(run(sys.argv[1:]))"
    environment = os.environ | {"FOREBAY_CONFIG": str(configuration), "FOREBAY_ROOT": "", "FOREBAY_SOCKET": ""}

    def ask(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False)

    for command in (["status"], ["why", "run1"], ["ls"]):
        done = ask(*command)
        assert done.returncode == 0, done.stderr
        assert "run1" in done.stdout
    # What is to be started or ended is never the centre's by accident.
    assert "was not running" in ask("down").stdout
    assert ask("ls", FOREBAY_ROOT=str(tmp_path / "none")).returncode == 1
