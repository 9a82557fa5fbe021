# SPDX-License-Identifier: Apache-2.0
"""kill -9 of stager, manager, server and writer at random moments, while a stream is written and staged out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import forebay
from tests.fault.promises import Ledger
from tests.support.instance import CommandLineInstance
from tests.support.load import LoadProcess, follow, until, write
from tests.support.staged_output import (
    check_destination,
    read_bp5,
    receipt_entries,
    recorded_entries,
    stray_names,
)

pytestmark = pytest.mark.instance

ADDRESS = "r/flow"
EVERY = 5
VICTIMS = ["stager", "stager", "manager", "manager", "server", "writer", "manager and stager", "everybody"]


class LiveStage:
    """An instance whose manager stages every fifth step of a stream out while it is written and followed."""

    def __init__(self, instance: CommandLineInstance, destination: Path, processes: ExitStack) -> None:
        self.instance = instance
        self.destination = destination
        self.ledger = Ledger(ADDRESS)
        self._processes = processes
        self.writer = self.start_writer()
        self.follower = processes.enter_context(follow(instance.environment, ADDRESS, start="oldest", hold=2))
        self.stage = self.submit()

    def start_writer(self, **options: object) -> LoadProcess:
        """A group of one rank that goes on after the last step."""
        shape = {"retention": f"last:20,precious:{EVERY}", "elements": 20_000, "pause_us": 5000, "grace_ms": 600_000}
        started = write(self.instance.environment, ADDRESS, mode="a", **{"steps": 0, **shape, **options})
        writer = self._processes.enter_context(started)
        writer.wait_for("opened")
        return writer

    def submit(self) -> int:
        """Lets the manager stage out until the stream ends."""
        arguments = ("stage-out", ADDRESS, str(self.destination), "--every", str(EVERY), "--follow", "--no-wait")
        number: int = self.instance.ask(*arguments)["stage"]["id"]
        return number

    def state(self) -> str:
        """Of the stage."""
        with self.instance.manager() as manager:
            state: str = manager.stage(self.stage).state
            return state

    def staged(self) -> set[int]:
        """Steps that the receipt has."""
        return set(recorded_entries(self.destination))

    def kill(self, victim: str) -> None:
        """One accident; afterwards everybody is at work again."""
        if victim in ("writer", "everybody"):
            self.writer.kill()
            self.ledger.note_ended([self.writer])
        if victim in ("stager", "manager and stager", "everybody"):
            self.instance.kill_stagers()
        if victim in ("manager", "manager and stager", "everybody"):
            self.instance.kill_manager()
        if victim in ("server", "everybody"):
            self.instance.kill_server()
        self.instance.up()
        if not self.writer.running():
            self.writer = self.start_writer()

    def go_on(self) -> None:
        """Returns when writer, follower and stage have got further."""
        seen = {"committed": (self.writer, self.writer.count()), "step": (self.follower, self.follower.count())}
        reached = max(self.staged(), default=-1)

        def has_got_further() -> bool:
            if self.state() == "failed":
                # So many deaths without progress are given up; the user runs it again. Until then the writer may wait
                # for the space of steps that are not staged out.
                self.stage = self.submit()
            return max(self.staged(), default=-1) > reached and all(
                process.has_told(event, after) for event, (process, after) in seen.items()
            )

        until(has_got_further, "writer, follower and stage get further")
        self.ledger.note(self.writer, self.follower)


@pytest.fixture
def live_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveStage]:
    with CommandLineInstance(tmp_path / "root") as instance, ExitStack() as processes:
        monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
        instance.ask("create", "r", "--capacity", "128MiB", "--persistent")
        yield LiveStage(instance, tmp_path / "out", processes)


@pytest.mark.timeout(600)
# crash-matrix: stages | stager, manager, server and writer, at random moments, one or together, while a live stream is staged out | every chosen step at the destination, verified, with a receipt
def test_every_chosen_step_is_staged_whoever_is_killed(
    live_stage: LiveStage, chance: random.Random, rounds: Callable[[int], int]
) -> None:
    for _ in range(rounds(8)):
        live_stage.go_on()
        victim = chance.choice(VICTIMS)
        print(f"{victim} ({live_stage.ledger.newest()} steps, {len(live_stage.staged())} staged)")
        live_stage.kill(victim)
    live_stage.go_on()
    live_stage.writer.kill()
    live_stage.ledger.note_ended([live_stage.writer])
    last = live_stage.start_writer(steps=1)
    last.succeed()
    live_stage.ledger.note_ended([last])
    until(lambda: live_stage.state() in ("succeeded", "failed"), "the stage is over")
    if live_stage.state() == "failed":
        live_stage.stage = live_stage.submit()
        until(lambda: live_stage.state() in ("succeeded", "failed"), "the stage is over")
    assert live_stage.state() == "succeeded"
    live_stage.follower.succeed()
    assert not live_stage.follower.named("violation")

    newest = live_stage.ledger.newest()
    assert live_stage.staged() == set(range(0, newest + 1, EVERY))
    check_destination(live_stage.destination)
    assert stray_names(live_stage.destination) == set()
    for number, entry in receipt_entries(live_stage.destination).items():
        assert read_bp5(live_stage.destination / entry["output"], "step") == number
    with forebay.Admin() as admin:
        kept = admin.steps(ADDRESS)
        assert [step.number for step in kept] == list(range(newest - 19, newest + 1))
        assert not any(step.precious for step in kept)
    assert live_stage.instance.ask("doctor", "--read-data")["clean"] is True
