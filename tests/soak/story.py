# SPDX-License-Identifier: Apache-2.0
"""Small histories told by hand, for the tests of the rules that judge them."""

from __future__ import annotations

from typing import Any

from tests.soak.history import judge
from tests.soak.timeline import Line

ADDRESS = "r/flow"


class Story:
    """A history of one stream, told line by line; time goes on by one with each, and by what `rest` adds."""

    def __init__(self, **keeping: Any) -> None:
        self.lines: list[Line] = []
        self.processes = 0
        self.rested_ns = 0
        self.tell("director", "stream", stream=ADDRESS, keeping=keeping, durable=False)

    @property
    def now_ns(self) -> int:
        return len(self.lines) + self.rested_ns

    def rest(self, seconds: int) -> None:
        self.rested_ns += seconds * 1_000_000_000

    def tell(self, who: str, event: str, **fields: Any) -> None:
        self.lines.append({"who": who, "event": event, "told_ns": self.now_ns, **fields})

    def start(self, role: str, **options: Any) -> str:
        self.processes += 1
        name = f"{role}{self.processes}"
        self.tell("director", "started", name=name, role=role, stream=ADDRESS, **options)
        self.tell(name, "opening")
        return name

    def group(
        self, *steps: int, incarnation: int = 1, epoch: int = 1, ending: int | None = None, **options: Any
    ) -> str:
        """A group of one rank that commits these steps, and may die while it ends another."""
        rank = self.start("writer", ranks=1, **{"mode": "a", **options})
        self.tell(rank, "opened", incarnation=incarnation, epoch=epoch, next=options.pop("next", steps[0]))
        for step in steps:
            self.tell(rank, "ending", step=step)
            self.tell(rank, "committed", step=step, incarnation=incarnation, epoch=epoch)
        if ending is not None:
            self.tell(rank, "ending", step=ending)
        return rank

    def reader(self, *steps: tuple[int, int] | Line, **options: Any) -> str:
        """A follower that is given these steps: (epoch, number), or with more fields."""
        reader = self.start("follower", **{"start": "oldest", **options})
        self.tell(reader, "opened")
        for step in steps:
            told = step if isinstance(step, dict) else {"epoch": step[0], "step": step[1]}
            self.tell(reader, "step", **{"incarnation": told["epoch"], "rewound": False, "skipped": 0, **told})
            if options.get("ack"):
                self.tell(reader, "acknowledged", step=told["step"])
        return reader

    def sampled(self, epoch: int, committed: int, durable: int) -> None:
        self.tell(
            "director",
            "sampled",
            stream=ADDRESS,
            since_ns=self.now_ns,
            epoch=epoch,
            committed=committed,
            durable=durable,
        )

    def kept(self, *steps: tuple[int, int]) -> None:
        """(epoch, number) each."""
        listed = [[number, epoch, epoch] for epoch, number in steps]
        self.tell("director", "kept", stream=ADDRESS, since_ns=self.now_ns, steps=listed)

    def staged(self, *entries: tuple[int, int, str], state: str = "succeeded", every: int = 1) -> None:
        since = self.now_ns
        self.tell("director", "staging", stream=ADDRESS)
        told = [[number, epoch, wrong] for epoch, number, wrong in entries]
        self.tell(
            "director",
            "staged",
            stream=ADDRESS,
            destination="out",
            since_ns=since,
            state=state,
            every=every,
            entries=told,
        )

    def rules(self) -> set[str]:
        """Those that it breaks."""
        return {breach.rule for breach in judge(self.lines)[1]}


def adios2_reader(story: Story) -> str:
    """One that has opened the stream."""
    reader = story.start("adios2", start="oldest")
    story.tell(reader, "opened")
    return reader
