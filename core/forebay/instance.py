# SPDX-License-Identifier: Apache-2.0
"""Which instance is meant, where its parts lie below its root, and the server's binary."""

from __future__ import annotations

import importlib.resources
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from forebay import _core
from forebay.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError

__all__ = [
    "Instance",
    "InstanceLike",
    "instance_of",
    "instance_path",
    "instance_root",
    "server_binary",
    "server_place",
    "server_socket",
]


def instance_root() -> str:
    """The instance's root: ``$FOREBAY_ROOT``, else ``/var/lib/forebay`` for root, else under ``$XDG_STATE_HOME``."""
    return _core.instance_root()


def server_socket() -> str:
    """Path of the server's socket: ``$FOREBAY_SOCKET``, else what the instance's root says.

    Raises
    ------
    NotFoundError
        No server was ever started there: run ``forebay up``.
    """
    return _core.server_socket()


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance, by its root; its files below that."""

    root: Path

    @classmethod
    def current(cls) -> Instance:
        """The instance that ``$FOREBAY_ROOT`` or the default names."""
        return cls.below(_core.instance_root())

    @classmethod
    def below(cls, root: str | os.PathLike[str]) -> Instance:
        """The instance below this folder."""
        # Absolute, because the daemons work elsewhere; links stay as they are.
        return cls(Path(os.path.abspath(root)))

    @property
    def endpoint(self) -> Path:
        """Text file with the path of the server's socket."""
        return self.root / "endpoint"

    @property
    def server_lock(self) -> Path:
        """Locked by a running server."""
        return self.root / "lock"

    @property
    def server_identity(self) -> Path:
        """Pid and start time of the server that `forebay up` started."""
        return self.root / "forebayd.pid"

    @property
    def server_log(self) -> Path:
        return self.root / "log" / "forebayd.log"

    @property
    def manager_endpoint(self) -> Path:
        """Text file with the path of the manager's socket."""
        return self.root / "manager-endpoint"

    @property
    def manager_lock(self) -> Path:
        """Locked by a running manager."""
        return self.root / "manager.lock"

    @property
    def manager_identity(self) -> Path:
        """Pid and start time of the manager that `forebay up` started."""
        return self.root / "manager.pid"

    @property
    def manager_log(self) -> Path:
        return self.root / "log" / "manager.log"

    @property
    def manager_database(self) -> Path:
        return self.root / "manager.sqlite"

    @property
    def pool_membership(self) -> Path:
        """Which pool of servers the instance's server belongs to; there is none without this file."""
        return self.root / "pool.json"

    @property
    def pool_directory(self) -> Path:
        """Where the pool's reservations lie, as its manager last said."""
        return self.root / "pool-directory"

    @property
    def switch_lock(self) -> Path:
        """Held by `forebay up` and `forebay down` while they work."""
        return self.root / "switch.lock"


_SCHEME = "forebay://"

#: An instance, the path of its root, the path of its server's socket, or ``forebay://HOST:PORT`` on another node.
InstanceLike: TypeAlias = Instance | str | os.PathLike[str]


def instance_path(instance: InstanceLike | None) -> str | None:
    """The absolute path of root or socket, or the server's address, by which another process finds the instance.

    None: the one that its environment names.
    """
    if instance is None:
        return None
    try:
        path = os.fspath(instance.root if isinstance(instance, Instance) else instance)
    except TypeError:
        raise ArgumentTypeError(
            f"an instance is named by its root or its server's socket, a path, not by {instance!r}"
        ) from None
    if not path:
        raise InvalidArgumentError("an instance is named by its root or its server's socket, not by an empty text")
    if path.startswith(_SCHEME):
        return path
    return os.path.abspath(path)


def instance_of(server: str, instance: InstanceLike | None) -> InstanceLike | None:
    """The instance of an address that names this server, ``"HOST:PORT"``; ``instance`` where it names none."""
    return _SCHEME + server if server else instance


def server_place(instance: InstanceLike | None) -> _core.ServerPlace:
    """Where clients of the instance find its server; None: the instance that the environment names.

    Raises
    ------
    NotFoundError
        No server was ever started below that root: run ``forebay up``.
    """
    path = instance_path(instance)
    if path is None:
        return _core.ServerPlace.find()
    if path.startswith(_SCHEME):
        return _core.ServerPlace.at_server(path.removeprefix(_SCHEME).rstrip("/"))
    if isinstance(instance, Instance) or os.path.isdir(path):
        return _core.ServerPlace.of_root(path)
    return _core.ServerPlace.at_socket(path)


def server_binary() -> Path:
    """The staging server's program: ``$FOREBAY_SERVER_BINARY``, else the one inside the installed package.

    Raises
    ------
    UnsupportedError
        There is none, or it may not be executed.
    """
    named = os.environ.get("FOREBAY_SERVER_BINARY")
    if named:
        binary, origin = Path(named), "$FOREBAY_SERVER_BINARY names it"
    else:
        binary, origin = (
            Path(str(importlib.resources.files("forebay"))) / "bin" / "forebayd",
            "the package should have it",
        )
    if not binary.is_file() or not os.access(binary, os.X_OK):
        raise UnsupportedError(
            f"there is no staging server at {binary} ({origin}); install forebay again, or build it with ./run build"
        )
    return binary
