# SPDX-License-Identifier: Apache-2.0
"""Stages that follow files, through the manager: asked for on the command line, ended, cancelled, and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.instance import CommandLineInstance
from tests.support.load import until


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineInstance]:
    with CommandLineInstance(tmp_path_factory.mktemp("follow") / "root") as running:
        yield running


@pytest.fixture
def files(instance: CommandLineInstance) -> Iterator[Path]:
    """The files of a reservation that goes with its last holder."""
    created = instance.ask("create", "run1", "--capacity", "0", "--files", "16MiB")
    yield Path(created["reservation"]["files_path"])
    instance.run("destroy", "run1", "--force")


def checkpoint(files: Path, number: int) -> None:
    run = files / "run"
    folder = run / f"chk{number:05d}.temp"
    folder.mkdir(parents=True)
    (folder / "Header").write_text(f"{number}\n")
    folder.rename(run / f"chk{number:05d}")


def begin(instance: CommandLineInstance, out: Path, *options: str) -> int:
    asked = ("stage-out", "run1:run", str(out), "--match", "chk?????", "--complete", "rename", "--follow", *options)
    number: int = instance.ask(*asked, "--no-wait")["stage"]["id"]
    return number


def row(instance: CommandLineInstance, number: int) -> dict[str, Any]:
    stage: dict[str, Any] = instance.ask("stages", "show", str(number))["stage"]
    return stage


def ended(instance: CommandLineInstance, number: int) -> dict[str, Any]:
    until(lambda: row(instance, number)["finished_ns"], "the stage is over")
    return row(instance, number)


def staged(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("chk*"))


def test_one_in_ten_through_deaths_of_stager_and_manager(
    instance: CommandLineInstance, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    number = begin(instance, out, "--every", "10", "--until", "finished")
    for step in range(21):
        checkpoint(files, 10 * step)
        if step == 10:
            until(lambda: "chk00100" in staged(out), "the second one is taken")
            instance.kill_stagers()
        if step == 15:
            instance.kill_manager()
        if step == 18:
            instance.up()
    (files / "run" / "finished").touch()
    stage = ended(instance, number)
    assert stage["state"] == "succeeded", stage["failure"]
    assert staged(out) == ["chk00000", "chk00100", "chk00200"]
    assert (out / "chk00200" / "Header").read_text() == "200\n"
    assert stage["result"]["ended_by"] == "finished"
    paths = {receipt["path"] for receipt in instance.ask("receipt", str(number))["files"]}
    assert paths == {f"{name}/Header" for name in staged(out)}
    assert instance.run("stages").stdout.count("run1:run/chk????? →") >= 1


def test_cancelling_takes_what_is_complete_first(instance: CommandLineInstance, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    number = begin(instance, out)
    checkpoint(files, 0)
    until(lambda: staged(out) == ["chk00000"], "the first one is taken")
    checkpoint(files, 10)
    assert "takes what is complete" in instance.run("stages", "cancel", str(number)).stdout
    stage = ended(instance, number)
    assert (stage["state"], stage["result"]["ended_by"]) == ("succeeded", "asked to end")
    assert staged(out) == ["chk00000", "chk00010"]


def test_an_end_that_was_asked_for_outlives_the_manager(
    instance: CommandLineInstance, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    number = begin(instance, out)
    checkpoint(files, 0)
    until(lambda: staged(out) == ["chk00000"], "the first one is taken")
    (stager,) = instance.stagers()
    os.kill(stager, signal.SIGSTOP)
    instance.ask("stages", "cancel", str(number))
    checkpoint(files, 10)
    instance.kill_manager()
    os.kill(stager, signal.SIGKILL)
    instance.up()
    stage = ended(instance, number)
    assert stage["state"] == "succeeded", stage["failure"]
    assert staged(out) == ["chk00000", "chk00010"]


def test_cancelling_twice_ends_it_at_once(instance: CommandLineInstance, files: Path, tmp_path: Path) -> None:
    number = begin(instance, tmp_path / "out", "--wait-closed", "1h")
    checkpoint(files, 0)
    until(lambda: bool(staged(tmp_path / "out")), "the first one is taken")
    with (files / "run" / "chk00010").open("w") as writer:
        writer.write("never closed")
        writer.flush()
        instance.ask("stages", "cancel", str(number))
        assert not row(instance, number)["finished_ns"]
        instance.ask("stages", "cancel", str(number))
        assert ended(instance, number)["state"] == "cancelled"
    assert staged(tmp_path / "out") == ["chk00000"]


def test_it_ends_with_the_last_holder_of_the_reservation(
    instance: CommandLineInstance, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    instance.ask("attach", "run1", "--as", "simulation", "--ttl", "1h")
    number = begin(instance, out)
    checkpoint(files, 0)
    until(lambda: bool(staged(out)), "the first one is taken")
    checkpoint(files, 10)
    instance.ask("detach", "run1", "--as", "simulation")
    stage = ended(instance, number)
    assert stage["state"] == "succeeded", stage["failure"]
    assert staged(out) == ["chk00000", "chk00010"]
    until(lambda: "run1" not in instance.run("ls").stdout, "the reservation goes")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--complete", "closed"), "--complete goes with --match"),
        (("--match", "chk*", "--until", "x"), "--until goes with --follow"),
        (("--match", "chk*", "--steps", "1"), "--steps does not go with --match"),
        (("--match", "chk*", "--as-root"), "--as-root does not go with --match"),
        (("--match", "chk*", "--wait-closed", "2d"), "at most 1d"),
        (("--follow",), "--follow is for steps"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    instance: CommandLineInstance, options: tuple[str, ...], reason: str
) -> None:
    done = instance.run("stage-out", "run1:run", "/x", *options)
    assert done.returncode != 0
    assert reason in done.stderr
