# SPDX-License-Identifier: Apache-2.0
"""`forebay.follow_files` and `forebay follow RES:DIR --match`: which files are given, when, and how often."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import (
    BusyError,
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
)
from tests.support.follow_command import NOTE, follow, start
from tests.support.load import until
from tests.support.time_limits import seconds


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where positions are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "forebay-follow"


@pytest.fixture
def run(reservation: str) -> Path:
    """The folder that is followed."""
    with forebay.Admin() as admin:
        folder = Path(admin.reservation(reservation).files_path) / "run"
    folder.mkdir()
    return folder


def plotfile(run: Path, number: int, content: str = "state") -> Path:
    """A folder, written as AMReX does, under another name first."""
    folder = run / f"plt{number:05d}.temp"
    folder.mkdir()
    (folder / "Header").write_text(f"{content} {number}\n")
    return folder.rename(run / f"plt{number:05d}")


def names(reservation: str, match: str = "plt?????", consumer: str = "", **options: Any) -> list[str]:
    """All that are given until the end."""
    with forebay.follow_files(f"{reservation}:run", match, consumer, **{"until": "end", **options}) as files:
        return [file.name for file in files]


def test_files_are_given_while_the_program_runs(reservation: str, run: Path) -> None:
    plotfile(run, 0)
    given = []
    with forebay.follow_files(f"{reservation}:run", "plt?????", until="end") as files:
        for file in files:
            assert (Path(file.path) / "Header").read_text() == f"state {file.number}\n"
            assert (file.is_folder, file.comes_again) == (True, False)
            given.append(file.name)
            # The next one appears when this one is in hand.
            plotfile(run, file.number + 1) if file.number < 3 else (run / "end").touch()
        assert files.ended_by == "end"
    assert given == ["plt00000", "plt00001", "plt00002", "plt00003"]


def test_a_consumer_goes_on_where_it_was(reservation: str, run: Path, state: Path) -> None:
    for number in range(4):
        plotfile(run, number)
    with forebay.follow_files(f"{reservation}:run", "plt?????", "plots", until="end") as files:
        for file in files:
            if file.number == 1:
                break
    plotfile(run, 4)
    (run / "end").touch()
    # The one that was left by `break` is given again; another consumer has a position of its own.
    assert names(reservation, consumer="plots") == ["plt00001", "plt00002", "plt00003", "plt00004"]
    assert names(reservation, consumer="plots") == []
    assert names(reservation, consumer="other") == [f"plt{number:05d}" for number in range(5)]
    assert len(list(state.iterdir())) == 2


def test_every_and_multiple_of_choose(reservation: str, run: Path) -> None:
    for number in (3, 10, 20, 25, 30):
        plotfile(run, number)
    (run / "end").touch()
    assert names(reservation, every=2) == ["plt00003", "plt00020", "plt00030"]
    assert names(reservation, multiple_of=10) == ["plt00010", "plt00020", "plt00030"]
    assert names(reservation, "plt*", exclude=["*2?"]) == ["plt00003", "plt00010", "plt00030"]


def test_a_file_comes_when_nobody_writes_it(reservation: str, run: Path) -> None:
    with (run / "a.nc").open("w") as file:
        file.write("half")
        file.flush()
        with forebay.follow_files(f"{reservation}:run", "*.nc", complete="closed", timeout=0.2) as files:
            with pytest.raises(DeadlineExceededError, match=r"within 0\.2 s"):
                next(files)
            assert files.left == ["a.nc"]
            closing = threading.Thread(target=file.close)
            closing.start()
            files.timeout = None
            assert next(files).name == "a.nc"
            closing.join()


@pytest.mark.parametrize("rule", ["rename", "closed"])
def test_a_file_that_is_open_for_writing_is_not_given_at_the_end(reservation: str, run: Path, rule: str) -> None:
    (run / "b.nc").write_text("whole")
    (run / "end").touch()
    with (run / "a.nc").open("w"), forebay.follow_files(f"{reservation}:run", "*.nc", complete=rule, until="end") as it:
        assert [file.name for file in it] == ["b.nc"]
        assert it.left == ["a.nc"]


def test_a_marker_says_that_a_folder_is_whole(reservation: str, run: Path) -> None:
    folder = plotfile(run, 0)
    with forebay.follow_files(f"{reservation}:run", "plt?????", complete="marker=done", timeout=0) as files:
        with pytest.raises(DeadlineExceededError):
            next(files)
        (folder / "done").touch()
        assert next(files).name == "plt00000"


def test_a_name_that_comes_again_is_given_again(reservation: str, run: Path) -> None:
    plotfile(run, 0).rename(run / "old")
    plotfile(run, 0)
    with forebay.follow_files(f"{reservation}:run", "plt?????", "plots", until="end") as files:
        first = next(files)
        (run / "plt00000").rename(run / "older")
        plotfile(run, 0, "other")
        again = next(files)
        assert (first.number, first.comes_again) == (0, False)
        assert (again.number, again.comes_again) == (0, True)
        (run / "end").touch()
        assert list(files) == []


def test_what_the_loop_changes_in_a_folder_makes_no_other_version(reservation: str, run: Path) -> None:
    plotfile(run, 0)
    (run / "end").touch()
    with forebay.follow_files(f"{reservation}:run", "plt?????", "plots", until="end") as files:
        for file in files:
            (Path(file.path) / "frame.png").touch()
    assert names(reservation, consumer="plots") == []


def test_a_name_that_went_before_it_was_taken_is_told(reservation: str, run: Path) -> None:
    for number in range(3):
        plotfile(run, number)
    with forebay.follow_files(f"{reservation}:run", "plt?????", "plots") as files:
        next(files)
    (run / "plt00001" / "Header").unlink()
    (run / "plt00001").rmdir()
    (run / "end").touch()
    with pytest.raises(NotFoundError, match="1 chosen names went before they could be taken: plt00001"):
        names(reservation, consumer="plots")
    assert names(reservation, consumer="plots", accept_gaps=True) == []


def test_a_file_that_is_removed_by_whoever_has_it_is_not_missed(reservation: str, run: Path) -> None:
    """As `rm -r {path}` at the end of a command, while another one runs."""
    folder = plotfile(run, 0)
    (run / "end").touch()
    with forebay.follow_files(f"{reservation}:run", "plt?????", "plots", until="end", ack="manual") as files:
        file = next(files)
        (folder / "Header").unlink()
        folder.rmdir()
        assert list(files) == []
        file.done()
        assert files.missed == []
    assert names(reservation, consumer="plots") == []


def test_names_are_shown_without_what_steers_a_terminal(reservation: str, run: Path) -> None:
    (run / "plt\x1b[31m").write_text("a name of somebody else's")
    (run / "end").touch()
    line = (f"{reservation}:run", "--match", "plt*", "--until", "end", "--exec", "false")
    status, _, errors = follow(*line)
    assert status == 1
    assert "\x1b" not in errors
    assert "plt" in errors


def test_links_are_not_given(reservation: str, run: Path) -> None:
    (run / "plt00000").symlink_to("/etc")
    (run / "end").touch()
    told: list[str] = []
    assert names(reservation, on_notice=told.append) == []
    assert told == ["plt00000 is neither file nor folder, and is not given"]
    with pytest.warns(UserWarning, match="plt00000 is neither file nor folder"):
        assert names(reservation) == []


def test_a_consumer_has_one_holder(reservation: str, run: Path) -> None:
    with forebay.follow_files(f"{reservation}:run", "plt?????", "plots"):
        with pytest.raises(BusyError, match="another process follows these names"):
            forebay.follow_files(f"{reservation}:run", "plt?????", "plots")
        forebay.follow_files(f"{reservation}:run", "plt?????", "other").close()


def test_another_thread_closes_a_waiting_follower(reservation: str, run: Path) -> None:
    files = forebay.follow_files(f"{reservation}:run", "plt?????")
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            next(files)
        except CancelledError as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    files.close()
    thread.join(60)
    assert len(ended) == 1
    files.close()


def test_a_task_that_is_cancelled_loses_no_file(reservation: str, run: Path) -> None:
    async def work() -> list[str]:
        with forebay.follow_files(f"{reservation}:run", "plt?????", "plots", until="end") as files:
            waiting = asyncio.create_task(files.__anext__())
            await asyncio.sleep(0)
            plotfile(run, 0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            (run / "end").touch()
            return [file.name async for file in files]

    assert asyncio.run(work()) == ["plt00000"]


def test_manual_acknowledging_in_any_order(reservation: str, run: Path) -> None:
    for number in range(3):
        plotfile(run, number)
    with forebay.follow_files(f"{reservation}:run", "plt?????", "plots", ack="manual") as files:
        given = [next(files) for _ in range(3)]
        given[2].done()
        given[0].done()
        given[0].done()
    (run / "end").touch()
    assert names(reservation, consumer="plots") == ["plt00001"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"complete": "sometimes"}, "is no rule"),
        ({"every": 2, "multiple_of": 3}, "give one of them"),
        ({"every": 0}, "too small"),
        ({"ack": "never"}, 'ack is "auto" or "manual"'),
        ({"exclude": "*.temp"}, "exclude is a list"),
        ({"until": "a/b"}, "slash"),
    ],
)
def test_what_cannot_be_asked_for(reservation: str, run: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        forebay.follow_files(f"{reservation}:run", "plt?????", **options)


def test_a_position_that_somebody_else_put_there_is_refused(reservation: str, run: Path, state: Path) -> None:
    forebay.follow_files(f"{reservation}:run", "plt?????", "plots").close()
    (log,) = state.iterdir()
    log.unlink()
    log.symlink_to("/etc/passwd")
    with pytest.raises(forebay.PermissionDeniedError, match="not this follower's own log"):
        forebay.follow_files(f"{reservation}:run", "plt?????", "plots")


def test_the_command_runs_for_each_file(reservation: str, run: Path, tmp_path: Path) -> None:
    for number in range(3):
        plotfile(run, number)
    (run / "end").touch()
    notes = tmp_path / "notes"
    line = (f"{reservation}:run", "--match", "plt?????", "--until", "end", "--json", *NOTE)
    status, output, errors = follow(*line, str(notes), "{name} {path} {number} {other}")
    assert (status, errors) == (0, "")
    assert json.loads(output) == {
        "source": f"{reservation}:run",
        "consumer": "follow",
        "succeeded": 3,
        "failed": [],
        "left": [],
        "ended_by": "end",
    }
    assert notes.read_text().splitlines() == [
        f"plt0000{number} {run}/plt0000{number} {number} {{other}}" for number in range(3)
    ]


def test_a_command_that_fails_is_run_again_by_the_same_line(reservation: str, run: Path, tmp_path: Path) -> None:
    for number in range(3):
        plotfile(run, number)
    (run / "end").touch()
    script = (
        "import os, sys; name, folder = sys.argv[1:]; open(folder + '/' + name, 'x'); "
        "sys.exit(3 if name == 'plt00001' and not os.path.exists(folder + '/mended') else 0)"
    )
    line = (f"{reservation}:run", "--match", "plt?????", "--until", "end", "--exec", sys.executable, "-c", script)
    status, _, errors = follow(*line, "{name}", str(tmp_path))
    assert status == 1
    assert "error: plt00001: " in errors
    assert "ended with status 3; the same line takes it again, and goes on" in errors
    assert not (tmp_path / "plt00002").exists()
    (tmp_path / "plt00001").unlink()
    (tmp_path / "mended").touch()
    status, _, errors = follow(*line, "{name}", str(tmp_path))
    assert status == 0, errors
    assert (tmp_path / "plt00002").exists()


def test_a_killed_follow_leaves_no_command_and_loses_no_file(reservation: str, run: Path, tmp_path: Path) -> None:
    for number in range(4):
        plotfile(run, number)
    (run / "end").touch()
    line = (f"{reservation}:run", "--match", "plt?????", "--until", "end", "--jobs", "2")
    hang = "import os, sys, time; open(sys.argv[1] + '/pid.' + str(os.getpid()), 'w').close(); time.sleep(1000)"
    with start(*line, "--exec", sys.executable, "-c", hang, str(tmp_path)) as process:
        until(lambda: len(list(tmp_path.glob("pid.*"))) == 2, "two commands run at once")
        process.send_signal(signal.SIGKILL)
    for mark in tmp_path.glob("pid.*"):
        child = Path("/proc", mark.suffix[1:])
        until(lambda child=child: not child.exists(), "the command ends with it")  # type: ignore[misc]
    notes = tmp_path / "notes"
    status, _, errors = follow(*line, *NOTE, str(notes), "{name}")
    assert status == 0, errors
    assert sorted(notes.read_text().split()) == [f"plt0000{number}" for number in range(4)]


def test_sigterm_ends_the_command_line_and_says_that_it_goes_on(reservation: str, run: Path, tmp_path: Path) -> None:
    plotfile(run, 0)
    notes = tmp_path / "notes"
    with start(f"{reservation}:run", "--match", "plt?????", *NOTE, str(notes), "{name}") as process:
        until(notes.exists, "the first command has run")
        process.terminate()
        _, errors = process.communicate(timeout=seconds(100))
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended by SIGTERM; the same line continues where it was" in errors


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("{r}:run",), "say which names of"),
        (("{r}:run", "--match", "*", "--latest"), "--latest is for steps of a stream"),
        (("{r}/flow", "--match", "*"), "--match is for files"),
        (("{r}/flow", "--until", "end", "--accept-gaps"), "--until, --accept-gaps is for files"),
    ],
)
def test_options_of_the_other_kind_are_refused(reservation: str, arguments: tuple[str, ...], reason: str) -> None:
    status, _, errors = follow(*(word.format(r=reservation) for word in arguments), "--exec", "true")
    assert status == 1
    assert reason in errors
