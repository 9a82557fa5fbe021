# SPDX-License-Identifier: Apache-2.0
"""The command line against a real instance: every command, its JSON, its errors and exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.cli import root
from forebay.cli.failures import ExitStatus
from tests.support.instance import CommandLineInstance
from tests.support.time_limits import seconds

COMMANDS = (
    "change", "consumer remove", "consumer reset", "consumer seek", "create", "destroy", "doctor", "down", "dump",
    "env", "ls", "mount", "path", "publish", "reconstruct", "render", "show", "stage-in", "stage-out", "stages",
    "steps", "stream precious", "stream remove", "stream retention", "streams", "tail", "up", "view", "watch",
)  # fmt: skip


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineInstance]:
    """One instance with a reservation `run1` and in it an ended stream `flow` of five steps."""
    with (
        CommandLineInstance(tmp_path_factory.mktemp("cli") / "root") as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("FOREBAY_ROOT", str(running.root))
        running.ask("create", "run1", "--capacity", "64MiB", "--persistent")
        with forebay.open("run1/flow", "w") as stream:
            for number in range(5):
                with stream.step() as step:
                    step["T"] = np.full(1000, number, "f8")
        yield running


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert "Example: " in printed
    assert "--json" in printed
    assert "--root" in printed
    assert "<bool>" not in printed


def test_help_without_a_command_lists_all(instance: CommandLineInstance) -> None:
    done = instance.run()
    assert done.returncode == 0
    assert all(command.split()[0] in done.stdout for command in COMMANDS)
    assert "<bool>" not in done.stdout


def test_ls_and_show_tell_of_the_reservation(instance: CommandLineInstance) -> None:
    (listed,) = instance.ask("ls")["reservations"]
    assert listed["name"] == "run1"
    assert listed["capacity_bytes"] >= 64 << 20
    assert listed["lifetime"] == "persistent"
    shown = instance.ask("show", "run1")
    assert shown["reservation"]["id"] == listed["id"]
    assert [stream["name"] for stream in shown["streams"]] == ["flow"]


def test_steps_have_time_watermark_and_size(instance: CommandLineInstance) -> None:
    told = instance.ask("steps", "run1/flow")
    assert [step["number"] for step in told["steps"]] == [0, 1, 2, 3, 4]
    assert all(step["size_bytes"] >= 8000 and step["time_ns"] > 0 for step in told["steps"])
    (only,) = instance.ask("steps", "run1/flow@3")["steps"]
    assert only["number"] == 3
    text = instance.run("steps", "run1/flow").stdout.splitlines()
    assert text[0].split() == ["STEP", "TIME", "WATERMARK", "SIZE", "EPOCH", "PINS", "PRECIOUS"]
    assert len(text) == 6


def test_watch_ends_with_the_stream(instance: CommandLineInstance) -> None:
    done = instance.run("watch", "run1/flow", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1])["committed"] == 4
    assert "committed=4" in instance.run("watch", "run1/flow", "--once").stdout


def test_env_prints_export_lines_that_a_shell_takes(instance: CommandLineInstance) -> None:
    done = instance.run("env", "run1/flow")
    assert done.returncode == 0
    assert all(line.startswith("export ") for line in done.stdout.splitlines())
    shell = subprocess.run(
        ["bash", "-c", f'{done.stdout}\necho "$FOREBAY_STREAM $FOREBAY_ROOT"'],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert shell.stdout.split() == ["run1/flow", str(instance.root)]


def test_text_off_the_terminal_has_no_blanks_at_the_ends_of_lines(instance: CommandLineInstance) -> None:
    for arguments in (["ls"], ["show", "run1"], ["steps", "run1/flow"], ["streams", "run1"], ["stages"]):
        lines = instance.run(*arguments).stdout.splitlines()
        assert lines
        assert lines == [line.rstrip() for line in lines]


def test_a_pool_without_room_for_a_reservation_is_refused(tmp_path: Path) -> None:
    tiny = CommandLineInstance(tmp_path / "root", capacity="1MiB")
    done = tiny.run("up", "--capacity", "1MiB")
    assert done.returncode == ExitStatus.ERROR
    assert "smallest reservation, which takes 8 MiB" in done.stderr
    assert tiny.ask("down")["was_running"] is False


def test_doctor_is_content_with_a_sound_instance(instance: CommandLineInstance) -> None:
    assert instance.ask("doctor")["clean"] is True
    assert instance.ask("doctor", "--read-data")["clean"] is True


def test_files_have_a_capacity_of_their_own(instance: CommandLineInstance) -> None:
    made = instance.ask("create", "both", "--capacity", "32MiB", "--files", "16MiB")["reservation"]
    assert (made["capacity_bytes"], made["files_bytes"]) == (32 << 20, 16 << 20)
    (Path(made["files_path"]) / "data").write_bytes(bytes(1 << 20))
    shown = instance.run("show", "both").stdout
    assert "1 MiB of 16 MiB" in shown
    assert "0 B of 16 MiB" not in shown
    assert "1 MiB of 16 MiB" in instance.run("ls").stdout
    instance.ask("create", "only", "--capacity", "0", "--files", "8MiB")
    instance.run("destroy", "only")
    instance.run("destroy", "both")


def test_create_and_destroy_are_idempotent(instance: CommandLineInstance) -> None:
    first = instance.ask("create", "again", "--capacity", "32MiB")["reservation"]
    second = instance.ask("create", "again", "--capacity", "32MiB")["reservation"]
    assert first["id"] == second["id"]
    assert instance.ask("destroy", "again") == {"destroyed": "again", "existed": True, "near": []}
    assert instance.ask("destroy", "again")["existed"] is False
    assert "again" not in {info["name"] for info in instance.ask("ls")["reservations"]}


def test_destroying_a_name_that_is_not_there_says_so(instance: CommandLineInstance) -> None:
    done = instance.run("destroy", "run11")
    assert (done.returncode, done.stdout) == (0, "run11: there was no such reservation; did you mean run1?\n")
    assert instance.ask("destroy", "RUN1") == {"destroyed": "RUN1", "existed": False, "near": ["run1"]}
    assert [info["name"] for info in instance.ask("ls")["reservations"]] == ["run1"]


def test_the_root_may_stand_after_the_command(instance: CommandLineInstance, tmp_path: Path) -> None:
    elsewhere = CommandLineInstance(tmp_path / "elsewhere")
    root = str(instance.root)
    assert elsewhere.ask("ls", "--root", root)["reservations"][0]["name"] == "run1"
    assert elsewhere.ask("stages", "--root", root) == {"stages": []}
    assert elsewhere.ask("--root", str(tmp_path / "wrong"), "ls", "--root", root)["reservations"]
    assert elsewhere.run("stages", "show", "1", "--root", root).stderr.startswith("error: there is no stage 1")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("forebay sho", ["show"]),
        ("forebay streams r", ["run1"]),
        ("forebay tail r", ["run1/"]),
        ("forebay tail run1/f", ["run1/flow"]),
        ("forebay show forebay://run1/", ["forebay://run1/flow"]),
        ("forebay stream re", ["remove", "retention"]),
        ("forebay share r", ["run1"]),
        ("forebay destroy r", ["run1"]),
        ("forebay stage-out run1/f", ["run1/flow"]),
        ("forebay tail nowhere/", []),
    ],
)
def test_the_shell_completes_commands_and_names(instance: CommandLineInstance, line: str, offered: list[str]) -> None:
    words = {"_FOREBAY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        instance.command(),
        env=os.environ | instance.environment | words,
        capture_output=True,
        text=True,
        timeout=seconds(120),
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


def test_up_and_doctor_say_that_memory_does_not_survive_power_loss() -> None:
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        CommandLineInstance(Path(folder) / "root", capacity="16MiB") as running,
    ):
        assert "not a reboot or power loss" in running.up()["notes"][0]
        told = running.ask("doctor")
        assert told["clean"] is True
        assert any("not a reboot or power loss" in finding["what"] for finding in told["findings"])
        assert "note: the root is on tmpfs" in running.run("up").stderr


def test_up_tells_that_the_instance_runs_already(instance: CommandLineInstance) -> None:
    told = instance.up()
    assert not told["server_started"]
    assert not told["manager_started"]
    assert instance.run("up", "--capacity", "3GiB").returncode == ExitStatus.ERROR


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["frobnicate"], ExitStatus.USAGE, "No such command"),
        (["ls", "--nonsense"], ExitStatus.USAGE, "--nonsense"),
        (["create"], ExitStatus.USAGE, "see `forebay create --help`"),
        (["create", "run2"], ExitStatus.USAGE, "--capacity"),
        (["create", "run2", "--capacity", "2G"], ExitStatus.ERROR, "2GiB"),
        (["create", "run2", "--capacity", "-1"], ExitStatus.ERROR, "not a size"),
        (["create", "run2", "--capacity", "90TiB"], ExitStatus.ERROR, "90 TiB are asked for, and the whole pool"),
        (["create", "run2", "--capacity", "1MiB"], ExitStatus.ERROR, "1 MiB were requested"),
        (["create", "run1", "--capacity", "32MiB"], ExitStatus.ERROR, "exists"),
        (["create", "7up", "--capacity", "1MiB"], ExitStatus.ERROR, "begin with a letter"),
        (["create", "run2", "--capacity", "1MiB", "--type", "cache"], ExitStatus.USAGE, "--type"),
        (["show", "nowhere"], ExitStatus.ERROR, "nowhere"),
        (["show", "run1/flow@99"], ExitStatus.ERROR, "no such step"),
        (["show", "run1/nothing"], ExitStatus.ERROR, "nothing"),
        (["tail", "run1/nothing"], ExitStatus.ERROR, "nothing"),
        (["tail", "run1/flow@3"], ExitStatus.ERROR, "forebay show run1/flow@3"),
        (["tail", "run1/flow", "--variables", ","], ExitStatus.ERROR, "names none"),
        (["stream", "remove", "run1/flow@3"], ExitStatus.ERROR, "names a step"),
        (["stream", "remove", "nowhere/flow"], ExitStatus.ERROR, "nowhere"),
        (["stream", "retention", "run1/flow", "last:0"], ExitStatus.ERROR, "last"),
        (["stream", "retention", "run1/nothing", "all"], ExitStatus.ERROR, "nothing"),
        (["stream", "precious", "run1/flow", "99"], ExitStatus.ERROR, "step 99 is not kept"),
        (["stream", "precious", "run1/flow", ","], ExitStatus.ERROR, "no steps are named"),
        (["consumer", "seek", "run1/flow", "nobody", "3"], ExitStatus.ERROR, "no consumer 'nobody'"),
        (["consumer", "reset", "run1/nothing", "nobody"], ExitStatus.ERROR, "nothing"),
        (["streams", "nowhere"], ExitStatus.ERROR, "nowhere"),
        (["streams", "run1/flow"], ExitStatus.ERROR, "forebay steps"),
        (["streams", "7up"], ExitStatus.ERROR, "begin with a letter"),
        (["destroy", "a/b"], ExitStatus.ERROR, "is not a reservation"),
        (["destroy", ""], ExitStatus.ERROR, "is not a reservation"),
        (["destroy", "7up"], ExitStatus.ERROR, "begin with a letter"),
        (["steps", "run1/nothing"], ExitStatus.ERROR, "nothing"),
        (["steps", "run1"], ExitStatus.ERROR, "RESERVATION/STREAM"),
        (["steps", "run1/flow@99"], ExitStatus.ERROR, "no such step"),
        (["watch", "run1/nothing"], ExitStatus.ERROR, "nothing"),
        (["env", "::"], ExitStatus.ERROR, "::"),
        (["stage-out", "run1/flow", "/tmp/x", "--every", "0"], ExitStatus.USAGE, "--every"),
        (["stage-out", "run1/flow", "/tmp/x", "--steps", "1:0"], ExitStatus.ERROR, "no steps"),
        (["stage-out", "run1/flow", "/tmp/x", "--steps", "a"], ExitStatus.ERROR, "not a step number"),
        (["stage-out", "run1/flow", "/tmp/x", "--format", "netcdf"], ExitStatus.ERROR, "bp5, hdf5"),
        (["stage-out", "run1/flow", "/tmp/x", "--consumer", "c"], ExitStatus.ERROR, "--follow"),
        (["stage-out", "run1/flow", "/tmp/x", "--variables", ","], ExitStatus.ERROR, "names none"),
        (["stage-out", "run1/flow", "/tmp/x", "--mark-partial"], ExitStatus.ERROR, "--variables"),
        (["stage-out", "run1:data", "/tmp/x", "--every", "10"], ExitStatus.ERROR, "--every"),
        (["stage-out", "run1:data", "/tmp/x", "--format", "hdf5"], ExitStatus.ERROR, "--format"),
        (["stage-out", "run1:data", "/tmp/x", "--replace"], ExitStatus.ERROR, "--replace"),
        (["render", "run1/flow", "--out", "/tmp/x", "--size", "big"], ExitStatus.ERROR, "WIDTHxHEIGHT"),
        (["render", "run1/flow", "--out", "/tmp/x", "--size", "33x33"], ExitStatus.ERROR, "even width"),
        (["stage-out", "run1/nothing", "/tmp/x"], ExitStatus.ERROR, "nothing"),
        (["stage-in", "/nowhere", "run1:x"], ExitStatus.ERROR, "no such file"),
        (["stage-in", "/etc/hostname", "run1/flow"], ExitStatus.ERROR, "RES:PATH"),
        (["stage-in", "/etc/hostname", "run1:../x"], ExitStatus.ERROR, "out of them"),
        (["stages", "show", "9999"], ExitStatus.ERROR, "no stage 9999"),
        (["stages", "cancel", "9999"], ExitStatus.ERROR, "no stage 9999"),
    ],
)  # fmt: skip
def test_mistakes_are_told_without_a_traceback(
    instance: CommandLineInstance,
    arguments: list[str],
    status: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Within this process, because starting Python a hundred times is slow.
    assert root.run(arguments) == status
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert words in printed.err
    assert printed.out == ""
    assert root.run([*arguments, "--json"]) == status
    printed = capsys.readouterr()
    told = json.loads(printed.out)["error"]
    assert words in f"{told['what']} ({told['where']})"
    assert printed.err == ""


def test_commands_say_when_nothing_runs(instance: CommandLineInstance, tmp_path: Path) -> None:
    nowhere = CommandLineInstance(tmp_path / "nothing")
    for arguments in (["ls"], ["doctor"], ["stages"], ["create", "x", "--capacity", "1MiB"], ["steps", "a/b"]):
        done = nowhere.run(*arguments)
        assert done.returncode == ExitStatus.ERROR
        assert "forebay up" in done.stderr
    assert nowhere.ask("down")["was_running"] is False
    assert not nowhere.root.exists()


def test_a_reader_that_leaves_ends_the_command_quietly(instance: CommandLineInstance) -> None:
    command = " ".join(f"'{word}'" for word in instance.command("steps", "run1/flow"))
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -n 0"],
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
