# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is, of stages or of requests: turns go round by user, so that nobody waits behind all that another has
asked for.

There are places for everybody, which one user may have all of unless fewer are said, and a reserve for users who have
none. What has given its place back and still goes on, such as a process that does not end although it was killed,
counts against its user alone. Belongs to the event loop's thread.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable

__all__ = ["UserTurns"]


class UserTurns:
    """What waits, in the order of each user, and how much of each runs."""

    def __init__(self, places: int, reserve: int, *, of_one_max: int | None = None) -> None:
        self._places = places
        self._reserve = reserve
        self._of_one_max = places if of_one_max is None else of_one_max
        self._waiting: dict[int, OrderedDict[int, None]] = {}
        self._running: dict[int, int] = {}  # user of each
        self._count_of: Counter[int] = Counter()  # running, and not ending, of each user
        self._served: dict[int, int] = {}  # when a user who waits had the last turn
        self._turn = itertools.count(1)

    def add(self, uid: int, work: int) -> None:
        """The work waits, behind the others of its user; idempotent."""
        if work not in self._running:
            self._waiting.setdefault(uid, OrderedDict())[work] = None

    def remove(self, uid: int, work: int) -> None:
        """It does not wait any more."""
        waiting = self._waiting.get(uid, OrderedDict())
        waiting.pop(work, None)
        if not waiting:
            self._waiting.pop(uid, None)

    def waiting(self, uid: int) -> int:
        """How many of this user's wait."""
        return len(self._waiting.get(uid, ()))

    def begin(self, may_begin: Callable[[int], bool] = lambda work: True) -> int | None:
        """The work whose turn it is; it takes its place. None: there is none, or no place. What `may_begin` refuses
        lets others of its user go first.
        """
        for uid in sorted(self._waiting, key=lambda uid: (self._count_of[uid], self._served.get(uid, 0))):
            if self._may_begin(uid):
                work = next(filter(may_begin, self._waiting[uid]), None)
                if work is None:
                    continue
                self._served[uid] = next(self._turn)
                self.remove(uid, work)
                self._running[work] = uid
                self._count_of[uid] += 1
                return work
        return None

    def has(self, work: int) -> bool:
        """The work has a place."""
        return work in self._running

    def end(self, work: int) -> None:
        """It gives its place back; idempotent."""
        uid = self._running.pop(work, None)
        if uid is not None:
            self._forget_one(uid)

    def hold(self, uid: int) -> None:
        """Something of this user goes on without a place: from now on it counts."""
        self._count_of[uid] += 1

    def release(self, uid: int) -> None:
        """It has ended after all."""
        self._forget_one(uid)

    def _may_begin(self, uid: int) -> bool:
        count = len(self._running)
        if not self._count_of[uid]:
            return count < self._places + self._reserve
        return count < self._places and self._count_of[uid] < self._of_one_max

    def _forget_one(self, uid: int) -> None:
        self._count_of[uid] -= 1
        if not self._count_of[uid]:
            del self._count_of[uid]
