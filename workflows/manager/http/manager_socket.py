# SPDX-License-Identifier: Apache-2.0
"""The manager's listening socket: ROOT/manager.sock, or beside the server's where the root's file system has none. The
file ROOT/manager-endpoint names it. Its name is removed only by the manager that made it.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from forebay.instance import Instance
from forebay.manager.unix_path import short_path
from forebay.workflows.staging.publication import write_whole

__all__ = ["QUEUE_LENGTH", "ManagerSocket"]

#: The root's file system knows no sockets, or has no room for one.
_NOT_THERE = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSPC, errno.EDQUOT)
#: Of those that have connected and are not accepted yet.
QUEUE_LENGTH = 128


class ManagerSocket:
    """The socket of an instance whose lock the caller holds: no living manager uses it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.path = instance.root / "manager.sock"
        try:
            self.listener = self._listen()
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            server_socket = Path(instance.endpoint.read_text(encoding="utf-8").strip())
            self.path = server_socket.with_name(f"{server_socket.stem}.manager.sock")
            self.listener = self._listen()
        write_whole(instance.manager_endpoint, f"{self.path}\n", mode=0o644)

    @property
    def has_its_name(self) -> bool:
        """False if somebody has removed the name, or given it to something else."""
        try:
            return os.path.samestat(self.path.lstat(), self._status)
        except FileNotFoundError:
            return False

    def make_again(self) -> socket.socket:
        """Another socket of that name; the one before goes on to serve who is connected. Returns it."""
        self.listener = self._listen()
        return self.listener

    def close(self) -> None:
        """Removes the name, if it is still this socket's."""
        if self.has_its_name:
            self.path.unlink(missing_ok=True)
        self.listener.close()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # It gets its name when all may connect: nobody finds one that refuses them, or none.
        hidden = self.path.with_name(f".{self.path.name}")
        try:
            if os.path.lexists(self.path) and not self.path.is_socket():
                raise OSError(errno.EADDRINUSE, "something that is no socket has this name", str(self.path))
            hidden.unlink(missing_ok=True)
            with short_path(hidden) as path:
                listener.bind(path)
            # Whoever connects is known by the kernel; what they may do is decided for each request.
            hidden.chmod(0o666)
            listener.listen(QUEUE_LENGTH)
            self._status = hidden.lstat()
            hidden.rename(self.path)
        except BaseException:
            listener.close()
            raise
        return listener
