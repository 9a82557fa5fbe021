# SPDX-License-Identifier: Apache-2.0
"""The manager's connection to the staging server: one at a time, opened again after the server was down."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from forebay.admin import Admin
from forebay.errors import DisconnectedError, NotFoundError
from forebay.fail_point import fail_point

__all__ = ["ServerLink"]


class ServerLink:
    """Hands out the connection. Usable from several threads; they take turns."""

    def __init__(self, connect: Callable[[], Admin]) -> None:
        self._connect = connect
        self._lock = threading.Lock()  # Guards what follows.
        self._admin: Admin | None = None

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        """The connection; DisconnectedError if the server cannot be reached."""
        with self._lock:
            if self._admin is None:
                self._admin = self._connected()
            try:
                fail_point("manager.call.before")
                yield self._admin
                fail_point("manager.call.after")
            except DisconnectedError:
                self._close()
                raise

    def incarnation(self) -> tuple[int, int] | None:
        """Pid and start time of the server; None if it cannot be reached. Changes when the server was restarted."""
        try:
            with self.admin() as admin:
                info = admin.server()
        except DisconnectedError:
            return None
        return info.pid, info.started_ns

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._close()

    def _connected(self) -> Admin:
        try:
            return self._connect()
        except NotFoundError as error:
            # No server was ever started here: for the manager the same as one that is away.
            raise DisconnectedError(error.what, error.where) from None

    def _close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
