# SPDX-License-Identifier: Apache-2.0
"""The root of the command line: commands of other packages, errors, exit statuses, plain output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
import typer

from forebay.cli import root
from forebay.cli.failures import ExitStatus
from forebay.cli.live import stream_view
from forebay.cli.output import console, format_time, print_table
from forebay.errors import NoSpaceError, RefusedError
from forebay.records import ConsumerInfo, Retention, StreamInfo, StreamStatus, StreamWait, WaitKind

application = typer.Typer()


@application.command()
def greet(name: str, loud: bool = False) -> None:
    """Greet somebody."""
    typer.echo(name.upper() if loud else name)


def complain(kind: str = "space") -> None:
    """Fail in one of several ways."""
    if kind == "space":
        raise NoSpaceError("the reservation is full; stage out or drop steps", "reservation run1")
    if kind == "refused":
        raise RefusedError("it has writers")
    if kind == "system":
        raise FileNotFoundError(2, "No such file or directory", "/nowhere")
    if kind == "bug":
        raise ZeroDivisionError("division by zero")
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands as other packages would register them, one of which cannot be imported."""
    points = EntryPoints(
        EntryPoint(name, value, root.COMMAND_GROUP)
        for name, value in (
            ("greet", f"{__name__}:application"),
            ("complain", f"{__name__}:complain"),
            ("broken", "forebay.no_such_module:app"),
        )
    )
    monkeypatch.setattr(root, "entry_points", lambda **wanted: points.select(**wanted))


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = root.run(arguments)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def test_commands_of_other_packages_run(run: Run) -> None:
    assert run("greet", "world", "--loud") == (0, "WORLD\n", "")


def test_a_broken_package_does_not_break_the_others(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert "greet" in out
    assert "Not available" in out
    for arguments in ([], ["run1/flow", "--out", "pictures"]):
        status, _, err = run("broken", *arguments)
        assert status == ExitStatus.ERROR
        assert "cannot be loaded" in err


def test_without_arguments_the_help_is_printed(run: Run) -> None:
    status, out, _ = run()
    assert status == 0
    assert "doctor" in out


def test_the_version_is_told(run: Run) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("forebay ")


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        ("space", ExitStatus.ERROR, "error: the reservation is full; stage out or drop steps (reservation run1)\n"),
        ("refused", ExitStatus.ERROR, "error: it has writers\n"),
        ("system", ExitStatus.ERROR, "error: No such file or directory (/nowhere)\n"),
    ],
)
def test_errors_are_one_line(run: Run, kind: str, status: int, words: str) -> None:
    assert run("complain", "--kind", kind) == (status, "", words)


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [("space", 1, "no_space"), ("refused", 1, "refused"), ("system", 1, "io_error"), ("bug", 70, "internal")],
)
def test_errors_in_json_go_to_standard_output(
    run: Run, kind: str, status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before the command, because `complain` has no option of that name.
    monkeypatch.setattr(root, "_wants_json", lambda _: True)
    actual, out, err = run("complain", "--kind", kind)
    assert (actual, err) == (status, "")
    assert json.loads(out)["error"]["code"] == code


def test_a_bug_has_no_traceback_unless_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    status, _, err = run("complain", "--kind", "bug")
    assert status == ExitStatus.INTERNAL
    assert "ZeroDivisionError" in err
    assert "Traceback" not in err
    monkeypatch.setenv("FOREBAY_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        root.run(["complain", "--kind", "bug"])


def test_ctrl_c_has_its_exit_status(run: Run) -> None:
    assert run("complain", "--kind", "ctrl-c")[0] == ExitStatus.CTRL_C


def test_mistakes_name_the_help(run: Run) -> None:
    status, out, err = run("greet", "--nonsense")
    assert (status, out) == (ExitStatus.USAGE, "")
    assert "--nonsense" in err
    assert "see `forebay greet --help`" in err


def test_a_table_off_the_terminal_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(("NAME", ">SIZE"), [(long, "1"), ("[bold]y", "22")], empty="none")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["NAME", "SIZE"], [long, "1"], ["[bold]y", "22"]]


def test_times_have_milliseconds() -> None:
    assert format_time(1_700_000_000_123_456_789).endswith(".123")


def test_the_live_view_shows_watermarks_and_lag(capsys: pytest.CaptureFixture[str]) -> None:
    consumers = (ConsumerInfo("render", 38, 4, True, 77), ConsumerInfo("archive", 42, 1, False, 0))
    fields: dict[str, Any] = {
        "name": "flow",
        "uuid": "u",
        "epoch": 1,
        "incarnation": 1,
        "ranks": 2,
        "run": "",
        "original_name": "",
    }
    info = StreamInfo(
        **fields,
        status=StreamStatus.INTERRUPTED,
        status_text="rank 1 was lost",
        oldest=None,
        committed=42,
        durable=40,
        staged=30,
        steps=13,
        size_bytes=2048,
        committed_bytes=4096,
        step_open=False,
        retention=Retention(),
        consumers=consumers,
        waits=(StreamWait(WaitKind.SPACE, "rank 0, process 7", 7, "4 MiB of space", time.time_ns() - 5_000_000_000),),
        epochs=(),
    )
    console().print(stream_view(info, "run1/flow"))
    printed = capsys.readouterr().out
    for words in (
        "run1/flow",
        "interrupted: rank 1 was lost",
        "42",
        "40",
        "30",
        "13 steps",
        "2 KiB",
        "4 steps",
        "away",
        "WHO WAITS",
        "rank 0, process 7",
        "4 MiB of space",
        " s ",
    ):
        assert words in printed


@pytest.mark.parametrize(("typed", "meant"), [("streamed", "'streams'"), ("shows", "'show'"), ("greets", "'greet'")])
def test_a_mistyped_command_is_answered_with_similar_ones(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert root.run([typed]) == ExitStatus.USAGE
    error = capsys.readouterr().err
    assert "Did you mean" in error
    assert meant in error
