# SPDX-License-Identifier: Apache-2.0
"""Reservations that are full, under each policy; and file systems that are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.fault.instance import Instance
from tests.support.load import LoadProcess
from tests.support.mounted import fill, mounted

Instances = Callable[..., Instance]

BIG_STEP: dict[str, Any] = {"variables": 1, "elements": 1_000_000}  # 8 MB


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 160 MiB."""
    with mounted(tmp_path / "disk", 160, request.param) as place:
        yield place


def free_bytes(place: Path) -> int:
    """What is free on the file system."""
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


# crash-matrix: creating a reservation | the disk, full | nothing of it; a smaller one fits
def test_a_reservation_that_the_disk_cannot_hold_is_undone(small_disk: Path) -> None:
    """Nothing of it is left, and a smaller one fits."""
    with Instance(small_disk / "root") as instance, instance.admin() as admin:
        before = free_bytes(small_disk)
        with pytest.raises(forebay.NoSpaceError) as error:
            admin.create("large", "512MiB")
        assert "reservation large" in str(error.value)
        assert "free some space, or create a smaller reservation" in str(error.value)
        assert os.listdir(instance.root / "reservations") == []
        assert free_bytes(small_disk) >= before - (1 << 20)
        assert admin.reservations() == []
        admin.create("small", "64MiB")
        instance.write("small/flow", steps=2).succeed()
        assert instance.problems() == []


# crash-matrix: writing | the disk, full | steps go on in what was granted
def test_a_full_disk_stops_no_stream_that_has_its_space(small_disk: Path) -> None:
    """What was granted is there: steps go round in their reservation although the disk has no byte left."""
    with Instance(small_disk / "root") as instance:
        instance.create("r", "64MiB")
        (writer,) = instance.group("r/flow", 1, retention="last:3", steps=0, **BIG_STEP)
        writer.wait_for("committed", lambda event: event["step"] >= 5)
        ballast = fill(small_disk)
        writer.wait_for("committed", lambda event: event["step"] >= 100)
        writer.kill()
        instance.restart()
        instance.check("r/flow")
        ballast.unlink()
        assert instance.problems() == []


# crash-matrix: writing | the disk, full, when a journal grows | an error; what was told stays, and room lets it go on
def test_a_journal_that_finds_no_room_says_so_and_goes_on_later(small_disk: Path) -> None:
    """Cursors and small steps grow the journal until the disk is full; what was told stays, and room lets it go on."""
    with Instance(small_disk / "root") as instance:
        instance.create("r", "64MiB")
        writer = instance.write("r/flow", commands=True, variables=1, elements=1)
        writer.wait_for("opened")
        ballast = fill(small_disk)
        told = -1
        for _ in range(20_000):
            event = writer.ask("step", ("committed", "error"))
            if event["event"] == "error":
                break
            told = event["step"]
        assert event.get("code") == "no_space", f"the journal never ran out of room: {event}"
        ballast.unlink()
        writer.ask("abort", "aborted")
        assert writer.ask("step", "committed")["step"] == told + 1
        writer.ask("close", "closed")
        assert sorted(instance.check("r/flow")) == list(range(told + 2))
        assert instance.problems() == []


def test_policy_error_says_who_holds_the_space(instance: Instance) -> None:
    """Before memory or disk is taken; the steps up to there stay."""
    writer = instance.write("r/flow", when_full="error", steps=20, **BIG_STEP)
    error = writer.fail("no_space")
    assert "WhenFull=error" in error["what"]
    assert "flow" in error["what"]
    assert "retention all" in error["what"]
    kept = instance.check("r/flow")
    assert sorted(kept) == list(range(len(kept)))
    assert len(kept) >= 6
    assert instance.problems() == []


def test_a_wait_that_nothing_can_end_is_an_error_at_once(instance: Instance) -> None:
    """A stream that keeps everything, alone in its reservation, never gets more."""
    writer = instance.write("r/flow", when_full="block", block_timeout_ms=600_000, steps=20, **BIG_STEP)
    assert "nothing that could free space is under way" in writer.fail("no_space")["what"]
    # A step that is larger than the whole reservation cannot wait for anything either.
    writer = instance.write("r/large", block_timeout_ms=600_000, variables=10, elements=1_000_000, retention="last:1")
    writer.fail("no_space")
    assert instance.problems() == []


def next_step(consumer: LoadProcess) -> int:
    """The number of the next step; that the stream is live is told before, between or after, whatever came first."""
    while (event := consumer.ask("next", ("notice", "step")))["event"] == "notice":
        assert event["status"] == "live"
    return int(event["step"])


def test_policy_block_waits_for_a_consumer_and_no_longer_than_told(instance: Instance) -> None:
    """The one who was asked to be waited for frees the space by going on; else the deadline ends the wait."""
    consumer = instance.follow("r/flow", consumer="render", commands=True)
    writer = instance.write("r/flow", retention="consumers:render", steps=20, readers=1, **BIG_STEP)
    consumer.wait_for("opened")
    writer.wait_for("opened")
    for step in range(20):
        assert next_step(consumer) == step
        consumer.ask("ack", "acknowledged")
    writer.succeed()
    (writer,) = instance.group(
        "r/flow", 1, mode="a", retention="consumers:render", steps=20, block_timeout_ms=300, **BIG_STEP
    )
    error = writer.fail("no_space")
    assert "the deadline for waiting passed" in error["what"]
    assert "render" in error["what"]
    consumer.kill()
    assert instance.problems() == []


def test_policy_drop_oldest_keeps_as_much_as_fits(instance: Instance) -> None:
    """Written far beyond the capacity: the newest steps are there, as many as the reservation holds."""
    (writer,) = instance.group("r/flow", 1, when_full="drop-oldest", steps=60, **BIG_STEP)
    writer.succeed()
    kept = sorted(instance.check("r/flow"))
    assert kept == list(range(60 - len(kept), 60))
    assert len(kept) >= 6
    assert instance.problems() == []
    instance.check_disk_use("r")


def test_drop_oldest_spares_what_a_consumer_needs(instance: Instance) -> None:
    """Steps that a named consumer has not passed are not dropped: the writer is told instead."""
    consumer = instance.follow("r/flow", consumer="render", commands=True)
    writer = instance.write("r/flow", when_full="drop-oldest", steps=20, readers=1, block_timeout_ms=300, **BIG_STEP)
    consumer.wait_for("opened")
    error = writer.fail("no_space")
    assert "render" in error["what"]
    assert min(instance.check("r/flow")) == 0
    consumer.kill()
    assert instance.problems() == []


def contenders(instance: Instance, reservation: str, elements: int, **options: Any) -> list[LoadProcess]:
    """Two writers at once of which one step is kept; they never stop unless the options say so."""
    options = {"steps": 0, "retention": "last:1", "block_timeout_ms": 600_000, "variables": 4, **options}
    return [instance.write(f"{reservation}/s{number}", elements=elements, **options) for number in range(2)]


def test_two_writers_that_can_never_both_go_on_are_told_at_once(instance: Instance) -> None:
    """Each keeps a step in the space that the other would need; neither waits for what will not come."""
    writers = contenders(instance, "r", 900_000, commands=True)
    for writer in writers:
        writer.ask("step", "committed")
    for writer in writers:
        writer.command("step")
        writer.end_commands()
    for writer in writers:
        assert writer.wait_for("error")["code"] == "no_space"
    assert instance.problems() == []


def test_two_writers_that_need_the_same_space_take_turns(instance: Instance) -> None:
    """There is room for one step more than both keep."""
    instance.create("wide", "112MiB")
    writers = contenders(instance, "wide", 1_000_000)
    for writer in writers:
        writer.wait_for("committed", lambda event: event["step"] >= 10)
    for writer in writers:
        writer.kill()
    assert instance.problems() == []


def test_the_little_that_an_idle_writer_holds_is_not_waited_for(instance: Instance) -> None:
    """It may give it back any time, but that would not be enough."""
    writer = instance.write("r/flow", commands=True, block_timeout_ms=600_000, **BIG_STEP)
    for _ in range(5):
        writer.ask("step", "committed")
    idle = instance.write("r/idle", commands=True, variables=1, elements=1_150_000)
    idle.ask("step", "committed")
    told = writer.ask("step", ("committed", "error"))
    while told["event"] == "committed":
        told = writer.ask("step", ("committed", "error"))
    assert told["code"] == "no_space"
    assert instance.problems() == []
