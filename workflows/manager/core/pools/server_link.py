# SPDX-License-Identifier: Apache-2.0
"""The manager's connections to the staging server: one for each request that is under way, so that a slow one keeps
nobody else waiting. They are opened again after the server was down.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from forebay.admin import Admin
from forebay.errors import DisconnectedError, NotFoundError
from forebay.fail_point import fail_point

__all__ = ["ServerLink"]

_IDLE_MAX = 4


class ServerLink:
    """Hands out connections. Usable from several threads."""

    def __init__(self, connect: Callable[[], Admin]) -> None:
        self._connect = connect
        self._lock = threading.Lock()  # Guards what follows.
        self._idle: list[Admin] = []

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        """A connection that nobody else uses meanwhile; DisconnectedError if the server cannot be reached."""
        with self._lock:
            admin = self._idle.pop() if self._idle else None
        admin = admin or self._connected()
        try:
            fail_point("manager.call.before")
            yield admin
            fail_point("manager.call.after")
        except DisconnectedError:
            admin.close()
            self.close()  # The others lead to the same server.
            raise
        except BaseException:
            self._give_back(admin)
            raise
        self._give_back(admin)

    def incarnation(self) -> tuple[int, int] | None:
        """Pid and start time of the server; None if it cannot be reached. Changes when the server was restarted."""
        try:
            with self.admin() as admin:
                info = admin.server()
        except DisconnectedError:
            return None
        return info.pid, info.started_ns

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for admin in idle:
            admin.close()

    def _give_back(self, admin: Admin) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_MAX:
                self._idle.append(admin)
                return
        admin.close()

    def _connected(self) -> Admin:
        try:
            return self._connect()
        except NotFoundError as error:
            # No server was ever started here: for the manager the same as one that is away.
            raise DisconnectedError(error.what, error.where) from None
