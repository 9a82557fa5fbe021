# SPDX-License-Identifier: Apache-2.0
"""Connections to the manager, shared out between users. Belongs to the event loop's thread."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ConnectionShares", "SharedConnection"]

_CONNECTIONS_MAX = 512
_OF_ONE_MAX = 384


class SharedConnection(Protocol):
    """One of them."""

    @property
    def is_idle(self) -> bool:
        """No request is being answered."""

    def cut(self) -> None:
        """Ends it at once."""


class ConnectionShares:
    """Who has how many. One user may have most of them; when there are no more, who has most gives one up for a user
    who has fewer.
    """

    def __init__(self, connections_max: int = _CONNECTIONS_MAX, of_one_max: int = _OF_ONE_MAX) -> None:
        self._connections_max = connections_max
        self._of_one_max = of_one_max
        self._of_user: dict[int, dict[SharedConnection, None]] = {}  # the oldest first
        self._count = 0

    def enter(self, uid: int, connection: SharedConnection) -> bool:
        """A user has connected; False: it is one too many."""
        own = len(self._of_user.get(uid, ()))
        if own >= self._of_one_max:
            return False
        if self._count >= self._connections_max:
            other = max(self._of_user, key=lambda user: len(self._of_user[user]))
            if len(self._of_user[other]) <= own + 1:
                return False
            victims = self._of_user[other]
            victim = next((one for one in victims if one.is_idle), next(iter(victims)))
            self.leave(other, victim)
            victim.cut()
        self._of_user.setdefault(uid, {})[connection] = None
        self._count += 1
        return True

    def leave(self, uid: int, connection: SharedConnection) -> None:
        """It is gone; idempotent."""
        own = self._of_user.get(uid, {})
        if connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._of_user[uid]
