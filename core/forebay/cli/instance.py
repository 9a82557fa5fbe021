# SPDX-License-Identifier: Apache-2.0
"""Where the parts of an instance lie: its root, what the daemons leave there, and the server's binary."""

from __future__ import annotations

import importlib.resources
import os
from dataclasses import dataclass
from pathlib import Path

import forebay
from forebay.errors import UnsupportedError

__all__ = ["Instance", "server_binary"]


@dataclass(frozen=True, slots=True)
class Instance:
    """The files of one instance below its root."""

    root: Path

    @classmethod
    def current(cls) -> Instance:
        """The instance that ``$FOREBAY_ROOT`` or the default names."""
        # Absolute, because the daemons work elsewhere; links stay as they are.
        return cls(Path(os.path.abspath(forebay.instance_root())))

    @classmethod
    def enter(cls, root: str | Path | None = None) -> Instance:
        """From here on this process, and those that it starts, are for the instance below ``root``; None or empty: that
        of :meth:`current`. ``$FOREBAY_SOCKET`` may name another one's server.
        """
        instance = cls(Path(os.path.abspath(root))) if root else cls.current()
        os.environ["FOREBAY_ROOT"] = str(instance.root)
        if "FOREBAY_SOCKET" in os.environ:
            os.environ["FOREBAY_SOCKET"] = ""  # The same as none; `forebay env` and `forebay up` pass it on.
        return instance

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
    def switch_lock(self) -> Path:
        """Held by `forebay up` and `forebay down` while they work."""
        return self.root / "switch.lock"


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
