# SPDX-License-Identifier: Apache-2.0
"""Whose stage runs next: turns go round by user, so that nobody waits behind all that another has asked for.

There are places for everybody, which one user may have all of, and a reserve for users who have no stage running. A
process that does not end although it was killed takes no place, but a part of what its user may have. Belongs to the
event loop's thread.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict

__all__ = ["StageTurns"]


class StageTurns:
    """Stages that wait, in the order of each user, and how many of each run."""

    def __init__(self, places: int, reserve: int) -> None:
        self._places = places
        self._reserve = reserve
        self._waiting: dict[int, OrderedDict[int, None]] = {}
        self._running: dict[int, int] = {}  # user of each
        self._count_of: Counter[int] = Counter()  # running, and not ending, of each user
        self._served: dict[int, int] = {}  # when a user who waits had the last turn
        self._turn = itertools.count(1)

    def add(self, uid: int, stage_id: int) -> None:
        """The stage waits, behind the others of its user; idempotent."""
        if stage_id not in self._running:
            self._waiting.setdefault(uid, OrderedDict())[stage_id] = None

    def remove(self, uid: int, stage_id: int) -> None:
        """It does not wait any more."""
        waiting = self._waiting.get(uid, OrderedDict())
        waiting.pop(stage_id, None)
        if not waiting:
            self._waiting.pop(uid, None)

    def waiting(self, uid: int) -> int:
        """How many of this user's wait."""
        return len(self._waiting.get(uid, ()))

    def begin(self) -> int | None:
        """The stage whose turn it is; it takes its place. None: there is none, or no place."""
        for uid in sorted(self._waiting, key=lambda uid: (self._count_of[uid], self._served.get(uid, 0))):
            if self._may_begin(uid):
                stage_id = next(iter(self._waiting[uid]))
                self._served[uid] = next(self._turn)
                self.remove(uid, stage_id)
                self._running[stage_id] = uid
                self._count_of[uid] += 1
                return stage_id
        return None

    def has(self, stage_id: int) -> bool:
        """The stage has a place."""
        return stage_id in self._running

    def end(self, stage_id: int) -> None:
        """It gives its place back; idempotent."""
        uid = self._running.pop(stage_id, None)
        if uid is not None:
            self._forget_one(uid)

    def hold(self, uid: int) -> None:
        """A process of this user does not end: from now on it counts."""
        self._count_of[uid] += 1

    def release(self, uid: int) -> None:
        """It has ended after all."""
        self._forget_one(uid)

    def _may_begin(self, uid: int) -> bool:
        count = len(self._running)
        if not self._count_of[uid]:
            return count < self._places + self._reserve
        return count < self._places and self._count_of[uid] < self._places

    def _forget_one(self, uid: int) -> None:
        self._count_of[uid] -= 1
        if not self._count_of[uid]:
            del self._count_of[uid]
