# SPDX-License-Identifier: Apache-2.0
"""Attaching to reservations and detaching from them, with a real server, manager and processes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.errors import NotFoundError
from forebay.manager.process_identity import process_identity
from tests.support.instance import CommandLineInstance
from tests.support.load import until

pytestmark = pytest.mark.instance


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    """An instance that is up, of the test's own."""
    with CommandLineInstance(tmp_path / "root") as running:
        monkeypatch.setenv("FOREBAY_ROOT", str(running.root))
        yield running


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that lives until its standard input is closed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
        yield running


def names(instance: CommandLineInstance) -> set[str]:
    return {info["name"] for info in instance.ask("ls")["reservations"]}


def create(instance: CommandLineInstance, name: str = "run1", *options: str) -> None:
    instance.ask("create", name, "--capacity", "16MiB", *options)


def test_a_reservation_goes_with_its_last_attachment(instance: CommandLineInstance) -> None:
    create(instance)
    assert instance.ask("attach", "run1", "--as", "first")["attachment"]["holder"] == "first"
    instance.ask("attach", "run1", "--as", "second")
    assert instance.ask("detach", "run1", "--as", "first")["detached"] is True
    assert instance.ask("detach", "run1", "--as", "first")["detached"] is False
    assert names(instance) == {"run1"}
    (answer,) = instance.ask("why", "run1")["answers"]
    assert answer["state"] == "present, lifetime job"
    assert [held.partition(" ")[0] for held in answer["held_by"]] == ["second"]
    assert answer["ends"] == "it is destroyed when the last of them detaches"
    instance.ask("detach", "run1", "--as", "second")
    assert names(instance) == set()
    refused = instance.run("why", "run1")
    assert refused.returncode != 0
    assert "there is no reservation, job or stage run1" in refused.stderr
    assert instance.ask("doctor")["clean"] is True


def test_a_persistent_reservation_stays(instance: CommandLineInstance) -> None:
    create(instance, "kept", "--persistent")
    instance.ask("attach", "kept")
    instance.ask("detach", "kept")
    (answer,) = instance.ask("why", "kept")["answers"]
    assert (answer["held_by"], answer["ends"]) == ([], "`forebay destroy kept`")
    assert names(instance) == {"kept"}


def test_an_attachment_ends_with_its_process(instance: CommandLineInstance, process: subprocess.Popen[bytes]) -> None:
    create(instance)
    pid = str(process.pid)
    assert f"until process {pid} ends" in instance.run("attach", "run1", "--for", pid).stdout
    assert f"until process {pid} ends" in instance.run("why", "run1").stdout
    process.kill()
    # Nobody has waited for it: what is left of it in the process table is no process.
    until(lambda: names(instance) == set(), "the reservation to go")


# crash-matrix: an attachment's process ends | manager, killed before that and started again after | the reservation goes
def test_a_process_that_ended_while_the_manager_was_away_is_missed(
    instance: CommandLineInstance, process: subprocess.Popen[bytes]
) -> None:
    create(instance)
    instance.ask("attach", "run1", "--for", str(process.pid))
    instance.kill_manager()
    process.kill()
    process.wait()
    instance.up()
    until(lambda: names(instance) == set(), "the reservation to go")
    assert instance.ask("doctor")["clean"] is True


# crash-matrix: the last detach | manager, when it has written that down, at `manager.attachment.ended` | started again, it destroys the reservation
def test_a_reservation_goes_although_the_manager_died_over_the_last_detach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = CommandLineInstance(tmp_path / "root")
    monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FOREBAY_FAIL_POINT", "manager.attachment.ended=kill")
        instance.up()
    with instance:
        create(instance)
        instance.ask("attach", "run1")
        assert instance.run("detach", "run1").returncode != 0, "it did not die"
        instance.up()
        until(lambda: names(instance) == set(), "the reservation to go")
        assert instance.ask("doctor")["clean"] is True


def test_an_attachment_ends_with_its_time_and_can_be_extended(instance: CommandLineInstance) -> None:
    create(instance)
    first = instance.ask("attach", "run1", "--ttl", "90s")["attachment"]
    later = instance.ask("extend", "run1", "--ttl", "12h")["attachment"]
    assert later["id"] == first["id"]
    assert later["expires_ns"] > first["expires_ns"] + 10 * 3600 * 10**9
    assert re.search(r"for another (12 h|11 h 59 min)", instance.run("why", "run1").stdout)
    instance.ask("extend", "run1", "--ttl", "1s")
    until(lambda: names(instance) == set(), "the reservation to go")
    refused = instance.run("extend", "run1", "--ttl", "12h")
    assert refused.returncode != 0
    assert "is not attached to run1" in refused.stderr


def test_what_is_precious_keeps_a_reservation_until_it_is_staged_out(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    create(instance)
    with forebay.open("run1/flow", "w", retention="precious:1") as stream, stream.step() as step:
        step["T"] = np.zeros(10)
    instance.ask("attach", "run1")
    instance.ask("detach", "run1")
    (answer,) = instance.ask("why", "run1")["answers"]
    assert "precious" in answer["waits_for"]
    assert names(instance) == {"run1"}
    instance.ask("stage-out", "run1/flow", str(tmp_path / "out"))
    until(lambda: names(instance) == set(), "the reservation to go")


def test_attaching_again_keeps_what_was_left(instance: CommandLineInstance) -> None:
    create(instance)
    with forebay.open("run1/flow", "w", retention="precious:1") as stream, stream.step() as step:
        step["T"] = np.zeros(10)
    instance.ask("attach", "run1")
    instance.ask("detach", "run1")
    instance.ask("attach", "run1", "--as", "second")
    (answer,) = instance.ask("why", "run1")["answers"]
    assert answer["waits_for"] == "nothing"


def test_what_is_in_use_is_destroyed_by_force_only(instance: CommandLineInstance) -> None:
    create(instance)
    instance.ask("attach", "run1", "--as", "simulation")
    refused = instance.run("destroy", "run1")
    assert refused.returncode != 0
    assert "in use by simulation" in refused.stderr
    instance.ask("destroy", "run1", "--force")
    assert names(instance) == set()
    with instance.manager() as manager:
        assert manager.attachments() == []


def test_a_process_that_is_not_there_or_another_one_is_refused(instance: CommandLineInstance) -> None:
    create(instance)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with instance.manager() as manager:
        with pytest.raises(NotFoundError, match=f"no process {gone.pid}"):
            manager.attach("run1", "a", pid=gone.pid)
        with pytest.raises(NotFoundError, match="no reservation nothing"):
            manager.attach("nothing", "a", pid=os.getpid())
        manager.attach("run1", "a", pid=os.getpid())
        assert manager.attachments()[0].process == process_identity(os.getpid())
    refused = instance.run("attach", "run1", "--ttl", "5")
    assert refused.returncode != 0
    assert "is no duration" in refused.stderr


def test_down_refuses_while_somebody_is_attached(
    instance: CommandLineInstance, process: subprocess.Popen[bytes]
) -> None:
    create(instance)
    create(instance, "kept", "--persistent")
    instance.ask("attach", "kept", "--for", str(process.pid), "--as", "renderer")
    refused = instance.run("down")
    assert refused.returncode != 0
    assert "in use by 1 attachment (renderer to kept)" in refused.stderr
    assert "forebay down --keep" in refused.stderr
    assert names(instance) == {"run1", "kept"}
    (row,) = instance.ask("status")["attachments"]
    assert (row["reservation"], row["holder"], row["pid"]) == ("kept", "renderer", process.pid)
    assert "renderer" in instance.run("status").stdout
    process.kill()
    process.wait()
    # Whoever has ended keeps nobody waiting, whether or not the manager has looked since.
    assert instance.ask("down")["destroyed"] == ["run1"]


@pytest.mark.parametrize("both_run", [True, False])
def test_down_keep_deletes_nothing(instance: CommandLineInstance, both_run: bool) -> None:
    create(instance)
    instance.ask("attach", "run1", "--as", "simulation")
    if not both_run:
        instance.kill_manager()
        instance.kill_server()
        assert instance.run("down").returncode != 0
    told = instance.ask("down", "--keep")
    assert (told["destroyed"], told["to_destroy"]) == ([], [])
    instance.up()
    assert names(instance) == {"run1"}
    assert [row["holder"] for row in instance.ask("status")["attachments"]] == ["simulation"]
    assert "--force destroys and --keep does not" in instance.run("down", "--keep", "--force").stderr
    assert instance.ask("down", "--force")["destroyed"] == ["run1"]


def test_status_shows_reservations_with_their_attachments(instance: CommandLineInstance) -> None:
    instance.ask("create", "shown", "--capacity", "16MiB", "--files", "1MiB", "--persistent")
    instance.ask("attach", "shown", "--as", "viewer")
    told = instance.ask("status")
    (row,) = [row for row in told["reservations"] if row["name"] == "shown"]
    assert (row["state"], row["capacity_bytes"], row["files_bytes"]) == ("present", 16 << 20, 1 << 20)
    assert [row["holder"] for row in told["attachments"] if row["reservation"] == "shown"] == ["viewer"]
    text = instance.run("status").stdout
    assert "shown" in text
    assert "persistent" in text
    instance.ask("detach", "shown", "--as", "viewer")
    instance.ask("destroy", "shown")
