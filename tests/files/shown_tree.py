# SPDX-License-Identifier: Apache-2.0
"""A file system that the driver `nfs` shows to guests, without Slurm, and programs on all nodes that use it as a test
asks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forebay.workflows.files.daemons import end_daemons
from forebay.workflows.files.engines import FilesEngines, NodeMount
from forebay.workflows.files.node_mounts import NFS_OPTIONS
from forebay.workflows.files.settings import FilesSettings
from tests.support.guests import Guest, GuestNetwork
from tests.support.mounted import mounted
from tests.support.time_limits import seconds

__all__ = ["HOME", "USER", "Actor", "Actors", "ShownTree", "shown_tree"]

HOME = "home"
#: Whose programs use the files. Nobody's account is needed for that.
USER = 61000
_PROGRAM = Path(__file__).with_name("file_actor.py")
_RESERVATION = "7d0c9a52-9be5-4c6e-9d6a-0c1c4f1b2a3e"
_PLACE = "/run/tree"
_ANSWER_SECONDS_MAX = seconds(120)


class Actor:
    """A program that does what it is asked, in its node's view of the tree."""

    def __init__(self, name: str, pid: int, connection: socket.socket) -> None:
        self.name = name
        self.pid = pid  #: on its node
        connection.settimeout(_ANSWER_SECONDS_MAX)
        self._connection = connection
        self._lines = connection.makefile("rw", encoding="utf-8")

    def begin(self, operation: str, *arguments: Any) -> None:
        """Asks, and does not wait for the answer."""
        self._lines.write(json.dumps([operation, *arguments]) + "\n")
        self._lines.flush()

    def answer(self) -> Any:
        """To the question before; OSError where it failed so."""
        line = self._lines.readline()
        assert line, f"the program on {self.name} has ended"
        answer = json.loads(line)
        if "error" in answer:
            number = getattr(errno, answer["error"], 0)
            if number:
                raise OSError(number, os.strerror(number))
            raise AssertionError(f"on {self.name}: {answer['error']}")
        return answer["is"]

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Asks, and waits."""
        self.begin(operation, *arguments)
        return self.answer()

    def error(self, operation: str, *arguments: Any) -> str:
        """The name of the error at which it fails; "" if it does not."""
        self.begin(operation, *arguments)
        return self.error_of_answer()

    def error_of_answer(self) -> str:
        """As `error`, of what was begun."""
        try:
            self.answer()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return ""

    def close(self) -> None:
        """The program ends, and with it what it has open."""
        self._lines.close()
        self._connection.close()


class Actors:
    """Starts them. A context manager: all end with it."""

    def __init__(self, address: str) -> None:
        self._listener = socket.create_server((address, 0))
        self._listener.settimeout(seconds(30))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._actors: list[Actor] = []
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._listener.close()

    def end(self) -> None:
        """All of them."""
        for actor in self._actors:
            with contextlib.suppress(OSError):
                actor.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._actors.clear()
        self._processes.clear()

    def here(self, folder: Path, uid: int = USER, name: str = HOME) -> Actor:
        """One on this machine."""
        command = self._command(name, str(folder), uid)
        self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        return self._connected()

    def in_guest(self, guest: Guest, folder: str, uid: int = USER) -> Actor:
        """One in a guest."""
        command = " ".join(self._command(guest.name, folder, uid))
        guest.run(f"setsid {command} </dev/null >>/run/actors.log 2>&1 &")
        return self._connected()

    def _command(self, name: str, folder: str, uid: int) -> list[str]:
        host, port = self._listener.getsockname()
        return ["/usr/bin/python3", str(_PROGRAM), host, str(port), name, folder, str(uid)]

    def _connected(self) -> Actor:
        connection, _ = self._listener.accept()
        connection.settimeout(_ANSWER_SECONDS_MAX)
        first = b""
        while not first.endswith(b"\n"):
            read = connection.recv(1)
            assert read, "a program on a node has ended at once"
            first += read
        name, pid = json.loads(first)
        self._actors.append(Actor(name, pid, connection))
        return self._actors[-1]


@dataclass
class ShownTree:
    """It, and who sees it."""

    tree: Path
    drivers: Path
    engines: FilesEngines
    network: GuestNetwork
    guests: dict[str, Guest]
    actors: Actors
    mounts: dict[str, NodeMount] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where guests have it mounted."""
        return _PLACE

    @property
    def reservation(self) -> str:
        """Its uuid."""
        return _RESERVATION

    @property
    def server_file(self) -> Path:
        """What its server is found by."""
        return self.drivers / _RESERVATION / "ganesha.conf"

    def show(self) -> None:
        """Opens it for all guests, which mount it."""
        self.mounts = self.engines.open(
            _RESERVATION, self.tree, {name: guest.address for name, guest in self.guests.items()}
        )
        for name, guest in self.guests.items():
            mount = self.mounts[name]
            guest.run(f"mkdir -p {_PLACE}")
            guest.run(f"mount -t nfs4 -o {NFS_OPTIONS},port={mount.port},retry=0 {mount.source} {_PLACE}")

    def hide(self) -> None:
        """The guests unmount, and the server ends."""
        for guest in self.guests.values():
            if guest.is_up:
                guest.run(f"! mountpoint -q {_PLACE} || umount {_PLACE}")
        self.engines.close(_RESERVATION)

    def end_actors(self) -> None:
        """Returns when none of them runs any more: they would keep a mount busy."""
        self.actors.end()
        for guest in self.guests.values():
            if guest.is_up:
                # It does not find itself.
                guest.run("while pgrep -f '[f]ile_actor.py' > /dev/null; do sleep 0.1; done")

    def actor(self, node: str, uid: int = USER) -> Actor:
        """A program on a node, or at the home."""
        if node == HOME:
            return self.actors.here(self.tree, uid)
        return self.actors.in_guest(self.guests[node], _PLACE, uid)


@contextlib.contextmanager
def shown_tree(
    folder: Path, mebibytes: int, nodes: Sequence[str] = ("n1", "n2"), lease_seconds: float = 40.0
) -> Iterator[ShownTree]:
    """Below ``folder``, which is neither below /tmp nor /run: guests have those too. May raise GuestError."""
    with contextlib.ExitStack() as stack:
        tree = stack.enter_context(mounted(folder / "files", mebibytes, "xfs"))
        tree.chmod(0o777)
        network = stack.enter_context(GuestNetwork())
        settings = FilesSettings(address=network.host, lease_seconds=lease_seconds)
        engines = FilesEngines(folder / "drivers", settings)
        engines.begin()
        stack.callback(_end_server, folder / "drivers" / _RESERVATION)
        guests = {
            name: stack.enter_context(Guest(name, 10 + place, network, folder / f"guest-{name}"))
            for place, name in enumerate(nodes, start=1)
        }
        actors = stack.enter_context(Actors(network.host))
        shown = ShownTree(tree, folder / "drivers", engines, network, guests, actors)
        shown.show()
        yield shown
        shown.end_actors()
        shown.hide()


def _end_server(folder: Path) -> None:
    for name in ("ganesha.conf", "bus.conf"):
        end_daemons(folder / name, time.monotonic() + seconds(30))
    shutil.rmtree(Path("/run/forebay-files") / folder.name, ignore_errors=True)
