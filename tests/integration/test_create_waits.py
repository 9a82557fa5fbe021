# SPDX-License-Identifier: Apache-2.0
"""`forebay create --wait`, pools and quotas, with a real server and manager."""

from __future__ import annotations

import getpass
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.manager_database import configuration_line
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[CommandLineInstance]:
    """A pool of 96 MiB, of which 32 MiB are the pool `fast`."""
    configuration = tmp_path / "forebay.toml"
    running = CommandLineInstance(tmp_path / "root", capacity="96MiB")
    configuration.write_text(f'{running.database}[pools.fast]\ncapacity = "32MiB"\nuser_quota = "16MiB"\n')
    running.environment["FOREBAY_CONFIG"] = str(configuration)
    with running:
        yield running


def test_pool_and_account_are_known_without_the_managers_database(instance: CommandLineInstance) -> None:
    configuration = Path(instance.environment["FOREBAY_CONFIG"])
    account = f'[accounts.climate]\nusers = ["{getpass.getuser()}"]\n'
    configuration.write_text(configuration.read_text() + account)
    instance.ask("down", "--keep")
    instance.up()
    instance.ask("create", "kept", "--capacity", "16MiB", "--pool", "fast", "--account", "climate", "--persistent")
    instance.ask("down", "--keep")
    before = instance.files.manager_database
    if instance.database:
        configuration.write_text(configuration.read_text().replace(instance.database, configuration_line()))
    for suffix in ("", "-wal", "-shm"):
        before.with_name(before.name + suffix).unlink(missing_ok=True)
    instance.up()
    (kept,) = instance.ask("ls")["reservations"]
    assert (kept["pool"], kept["account"]) == ("fast", "climate")
    refused = instance.run("create", "more", "--capacity", "8MiB", "--pool", "fast")
    assert "quota" in refused.stderr


def names(instance: CommandLineInstance) -> set[str]:
    return {info["name"] for info in instance.ask("ls")["reservations"]}


def waiting(instance: CommandLineInstance) -> list[str]:
    with instance.manager() as manager:
        return [row.name for row in manager.queue()]


# crash-matrix: `create --wait` | manager, killed while two wait | both keep their places, and get space in their order
def test_whoever_waits_gets_space_in_the_order_in_which_they_came(instance: CommandLineInstance) -> None:
    instance.ask("create", "held", "--capacity", "48MiB")
    instance.ask("attach", "held", "--ttl", "12h")
    first = instance.start("create", "first", "--capacity", "48MiB", "--wait")
    until(lambda: waiting(instance) == ["first"], "the first to wait")
    second = instance.start("create", "second", "--capacity", "16MiB", "--wait")
    until(lambda: waiting(instance) == ["first", "second"], "the second to wait")
    try:
        # It would fit, but they came before.
        refused = instance.run("create", "late", "--capacity", "8MiB")
        assert refused.returncode != 0
        assert "2 came before" in refused.stderr
        (answer,) = instance.ask("why", "second")["answers"]
        assert (answer["state"], answer["waits_for"]) == ("waiting to be made", "16 MiB of space; 1 came before")
        status = instance.ask("status")
        assert [row["name"] for row in status["queue"]] == ["first", "second"]
        assert {pool["name"]: pool["waiting_bytes"] for pool in status["pools"]} == {"default": 64 << 20, "fast": 0}
        instance.kill_manager()
        instance.up()
        assert waiting(instance) == ["first", "second"]
        instance.ask("destroy", "held", "--force")
        assert first.wait(60) == 0
        assert second.wait(60) == 0
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert names(instance) == {"first", "second"}
    assert waiting(instance) == []
    assert instance.ask("doctor")["clean"] is True


def test_what_a_reservation_grows_by_counts_in_pool_and_quota(instance: CommandLineInstance) -> None:
    """And jumps no queue. What it has already does not count twice."""
    instance.ask("create", "mine", "--capacity", "8MiB", "--files", "4MiB", "--pool", "fast")
    assert instance.ask("change", "mine", "--files", "8MiB")["reservation"]["files_bytes"] == 8 << 20
    refused = instance.run("change", "mine", "--files", "9MiB")
    assert refused.returncode != 0
    assert "the quota of" in refused.stderr
    assert "--wait" not in refused.stderr
    instance.ask("create", "held", "--capacity", "48MiB")
    with instance.start("create", "next", "--capacity", "32MiB", "--wait") as next_one:
        try:
            until(lambda: waiting(instance) == ["next"], "somebody to wait")
            refused = instance.run("change", "held", "--files", "1MiB")
            assert "1 came before" in refused.stderr
            assert instance.ask("change", "held", "--files", "0")["reservation"]["files_bytes"] == 0
        finally:
            next_one.kill()
            next_one.communicate()


def test_the_estimate_and_the_end_of_patience_are_told(instance: CommandLineInstance) -> None:
    instance.ask("create", "held", "--capacity", "48MiB")
    done = instance.run("create", "more", "--capacity", "32MiB", "--wait", "--timeout", "1s")
    assert done.returncode != 0
    assert "waits for space, 0 before it; nobody knows until when" in done.stderr
    assert "there was no room for it in the given time" in done.stderr
    assert waiting(instance) == []
    instance.ask("attach", "held", "--ttl", "12h")
    done = instance.run("create", "more", "--capacity", "32MiB", "--wait", "--timeout", "1s")
    assert "at the latest in 11 h 59 min" in done.stderr


def test_who_gives_up_waiting_leaves_the_queue(instance: CommandLineInstance) -> None:
    instance.ask("create", "held", "--capacity", "48MiB")
    process = instance.start("create", "more", "--capacity", "32MiB", "--wait")
    until(lambda: waiting(instance) == ["more"], "it to wait")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=seconds(60))
    until(lambda: waiting(instance) == [], "its place to be free")
    instance.ask("create", "late", "--capacity", "16MiB")


def test_what_never_fits_does_not_wait(instance: CommandLineInstance) -> None:
    for arguments, told in (
        (("--capacity", "80MiB"), "the whole pool default has 64 MiB"),
        (("--capacity", "24MiB", "--pool", "fast"), "the quota of user"),
        (("--capacity", "8MiB", "--pool", "slow"), "there is no pool slow"),
        (("--capacity", "8MiB", "--account", "weather"), "there is no account weather"),
    ):
        refused = instance.run("create", "run1", *arguments, "--wait")
        assert refused.returncode != 0
        assert told in refused.stderr
    assert waiting(instance) == []
    instance.ask("create", "run1", "--capacity", "16MiB", "--pool", "fast")
    refused = instance.run("create", "run2", "--capacity", "8MiB", "--pool", "fast")
    assert "of which 16 MiB are held" in refused.stderr
    # What a pool has lost it gets back.
    instance.ask("destroy", "run1")
    instance.ask("create", "run2", "--capacity", "8MiB", "--pool", "fast")
    instance.kill_manager()
    instance.up()
    assert {pool["name"]: pool["free_bytes"] for pool in instance.ask("status")["pools"]}["fast"] == 16 << 20
