# SPDX-License-Identifier: Apache-2.0
"""A stream under load: its writer group, an unnamed follower that holds views, and a named consumer."""

from __future__ import annotations

import random

from tests.fault.instance import Instance
from tests.fault.promises import Ledger
from tests.support.load import LoadProcess

__all__ = ["Scene"]

CONSUMER = "render"


class Scene:
    """One stream with everybody who works on it. Whoever was killed is started again by ``mend``."""

    def __init__(
        self, instance: Instance, address: str, *, ranks: int, retention: str, keeps_last: int | None, elements: int
    ) -> None:
        self.instance = instance
        self.address = address
        self.ledger = Ledger(address)
        self.keeps_last = keeps_last
        self._ranks = ranks
        self._options = {
            "retention": retention,
            "elements": elements,
            "varying": True,
            "steps": 0,
            "pause_us": 2000,
            "grace_ms": 600_000,
        }
        self._groups = 0
        self._acknowledged = -1  # newest step that the consumer knows to have acknowledged
        self.writers: list[LoadProcess] = []
        self._start_writers()
        self.follower = self._start_follower()
        self.consumer = self._start_consumer()

    def _start_writers(self, append_after: int | None = None) -> None:
        self._groups += 1
        self.writers = self.instance.group(
            self.address, self._ranks, f"g{self._groups}", mode="a", append_after=append_after, **self._options
        )
        if append_after is not None:
            self.ledger.withdraw(self.writers[0].named("opened")[0]["epoch"], append_after)
            self._acknowledged = min(self._acknowledged, append_after)

    def _start_follower(self) -> LoadProcess:
        follower = self.instance.follow(self.address, start="oldest", hold=3)
        follower.wait_for("opened")
        return follower

    def _start_consumer(self) -> LoadProcess:
        consumer = self.instance.follow(self.address, consumer=CONSUMER, ack=True, hold=1)
        consumer.wait_for("opened")
        return consumer

    def processes(self) -> list[LoadProcess]:
        """Everybody who is at work."""
        return [*self.writers, self.follower, self.consumer]

    def go_on(self) -> None:
        """Returns when each process has got a step further."""
        for process in self.processes():
            event = "committed" if process in self.writers else "step"
            process.wait_for(event, after=process.count())
        self.ledger.note(*self.processes())

    def end_writers(self, chance: random.Random) -> None:
        """Kills one rank at random; the others must say that the group is broken."""
        lost = chance.choice(self.writers)
        lost.kill()
        for writer in self.writers:
            if writer is not lost:
                error = writer.fail("group_broken")
                assert f"rank {self.writers.index(lost)} " in error["what"], f"the lost rank is not named: {error}"
        self.ledger.note_ended(self.writers)

    def restart_writers(self, chance: random.Random) -> None:
        """A new group goes on after the last committed step, or after an earlier one."""
        newest = self.ledger.newest()
        after = chance.randint(max(0, newest - 10), newest) if newest >= 0 and chance.random() < 0.4 else None
        self._start_writers(after)
        opened = self.writers[0].named("opened")[0]
        if after is None:
            # A step that was sent may have committed although its writers were not told.
            assert opened["next"] in (newest + 1, newest + 2), f"goes on at {opened['next']} after step {newest}"
        else:
            assert opened["next"] == after + 1

    def replace_follower(self) -> None:
        """Kills the unnamed follower, with its pins, and starts another."""
        self.follower.kill()
        self.ledger.note(self.follower)
        self.follower = self._start_follower()

    def replace_consumer(self) -> None:
        """Kills the named consumer and starts it again: it must go on where it was."""
        self.consumer.kill()
        self.ledger.note(self.consumer)
        acknowledged = [event["step"] for event in self.consumer.named("acknowledged")]
        rewound = any(event["rewound"] for event in self.consumer.named("step"))
        if acknowledged:
            self._acknowledged = acknowledged[-1]
        self.consumer = self._start_consumer()
        first = self.consumer.wait_for("step")
        if not rewound:
            # The last acknowledgement may have been taken although it was not answered.
            due = (self._acknowledged + 1, self._acknowledged + 2)
            assert first["step"] in due, f"after acknowledging {self._acknowledged} the consumer got {first['step']}"

    def rest(self) -> dict[int, int]:
        """Ends everybody and checks what is left."""
        for process in self.processes():
            process.kill()
        self.ledger.note_ended(self.writers)
        self.ledger.note(self.follower, self.consumer)
        for reader in (self.follower, self.consumer):
            assert not reader.named("violation"), f"{reader}"
        return self.ledger.check(self.instance, keeps_last=self.keeps_last)
