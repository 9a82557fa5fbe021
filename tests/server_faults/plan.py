# SPDX-License-Identifier: Apache-2.0
"""What happens to a pool of servers in one run: drawn whole from a seed, before anything runs, so that it replays.

Nodes 1 to 3 have servers, and node 1 the manager. Streams are numbered. Nothing here knows time or processes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["KINDS", "SERVERS", "Action", "plan_of"]

SERVERS = (1, 2, 3)

#: Each kind of action, and how often it is drawn.
KINDS = {
    "kill rank": 3,
    "stop rank": 2,
    "withdraw": 2,
    "kill reader": 3,
    "stop reader": 2,
    "stage out": 2,
    "kill stager": 1,
    "kill server": 3,
    "restart server": 2,
    "stop server": 3,
    "cut node": 3,
    "cut client": 2,
    "kill node": 1,
    "two servers": 2,
    "kill manager": 1,
    "lose power": 3,
    "full disk": 1,
    "read-only disk": 1,
    "copy root": 2,
    "old root": 2,
}


@dataclass(frozen=True)
class Action:
    """One thing that is done. What of it an action does not need is drawn all the same."""

    kind: str
    stream: int = 0
    node: int = 1  #: of a server
    other: int = 2  #: of another server
    member: int = 0  #: which of the reservation's members that are not its home, where only such a one may be hit
    rank: int = 0  #: of a writer group, or the place in a list of readers
    seconds: float = 0.3  #: how long it lasts
    progress: float = 1.0  #: how long the streams may take to go on before the next action
    seed: int = 0  #: of what it draws itself

    def __str__(self) -> str:
        return (
            f"{self.kind} (stream {self.stream}, node {self.node}, other {self.other}, member {self.member}, "
            f"rank {self.rank}, {self.seconds} s)"
        )


def plan_of(seed: int, actions: int, streams: int, kinds: Sequence[str] = tuple(KINDS)) -> list[Action]:
    """The actions of a run, in order. A longer plan of the same seed begins with a shorter one."""
    chance = random.Random(seed)
    plan: list[Action] = []
    copied = False
    while len(plan) < actions:
        kind = chance.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        node, other = chance.sample(SERVERS, 2)
        action = Action(
            kind=kind,
            stream=chance.randrange(streams),
            node=node,
            other=other,
            member=chance.randrange(len(SERVERS) - 1),
            rank=chance.randrange(12),
            seconds=chance.choice([0.05, 0.3, 1.0, 2.0]),
            progress=chance.choice([0.2, 0.5, 1.5]),
            seed=chance.randrange(1 << 32),
        )
        # An old copy is one that was made before.
        if kind == "old root" and not copied:
            continue
        copied = (copied or kind == "copy root") and kind != "old root"
        plan.append(action)
    return plan
