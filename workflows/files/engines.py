# SPDX-License-Identifier: Apache-2.0
"""The manager's side of the drivers: each operation is a process with a deadline, which may be killed and repeated."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from forebay.errors import DeadlineExceededError, ForebayError, InvalidArgumentError, StorageError, error_of_code
from forebay.manager.process_identity import process_identity
from forebay.workflows.files.daemons import program_path
from forebay.workflows.files.driver_state import STATE_NAME, begin_incarnation, exports_made_file
from forebay.workflows.files.nfs import PROGRAMS
from forebay.workflows.files.settings import FilesSettings

__all__ = ["CALL_OPERATIONS", "FilesEngines", "NodeMount"]

_log = logging.getLogger(__name__)

#: What a process takes beside its operation.
_PROCESS_SECONDS = 5.0
_DRIVER = "nfs"
_DAEMONS = 2
#: Where the address of a home is set.
_SETTING = "[files] address, or `forebay agent --address`"
#: Of how many operations each call consists.
CALL_OPERATIONS = {"open": 4, "fence": 1, "release": 1, "stop": 1, "close": 2, "forget": 2}


@dataclass(frozen=True, slots=True)
class NodeMount:
    """What a node mounts."""

    source: str
    port: int


class FilesEngines:
    """Those of one instance. Usable from several threads; operations on one reservation wait for one another.

    Parameters
    ----------
    folder : Path
        ``ROOT/drivers``.
    """

    def __init__(self, folder: Path, settings: FilesSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._incarnation: int | None = None

    def check(self) -> None:
        """UnsupportedError, naming the package, if a program is missing that shows files."""
        for program, package in PROGRAMS:
            program_path(program, package)

    def begin(self) -> None:
        """From now on, operations of managers before this one do nothing."""
        self._incarnation = begin_incarnation(self._folder)

    @property
    def incarnation(self) -> int:
        """That of this manager."""
        if self._incarnation is None:
            self.begin()
        assert self._incarnation is not None
        return self._incarnation

    @property
    def operation_seconds_max(self) -> float:
        """After which an operation has been killed."""
        return self._settings.operation_seconds_max + _PROCESS_SECONDS

    @property
    def address(self) -> str:
        """Of this node, as others see it; raises InvalidArgumentError where the configuration names none."""
        return _address_of(self._settings.home_address)

    def open(self, reservation: str, tree: Path, nodes: Mapping[str, str]) -> dict[str, NodeMount]:
        """Shows the tree to these nodes, by their addresses; idempotent. What each of them mounts.

        Raises
        ------
        ForebayError
            What a driver raises; StorageError where it does not say why; DeadlineExceededError.
        """
        self._run(
            "prepare",
            reservation,
            TREE=str(tree),
            ADDRESS=self.address,
            PORTS=self._settings.ports,
            LEASE_SECONDS=str(self._settings.lease_seconds),
        )
        self._start(reservation)
        admitted = self._run("admit", reservation, NODES=json.dumps(dict(nodes)))
        return {node: NodeMount(mount["source"], mount["port"]) for node, mount in admitted["mounts"].items()}

    def fence(self, reservation: str, nodes: Sequence[str]) -> None:
        """Takes these nodes' ways in; when it returns nothing that they have sent can land. Idempotent. Other nodes
        wait meanwhile, about a second, and for what they open anew until all of them are back.
        """
        if nodes and self.has(reservation):
            self._run("fence", reservation, NODES=json.dumps(list(nodes)))

    def release(self, reservation: str, nodes: Sequence[str]) -> None:
        """Closes the ways in of nodes that have unmounted; idempotent. It is no fence."""
        if nodes and self.has(reservation):
            self._run("release", reservation, NODES=json.dumps(list(nodes)))

    def stop(self, reservation: str) -> None:
        """Takes all nodes' ways in, as `fence` does; idempotent."""
        if self.has(reservation):
            self._run("stop", reservation)

    def close(self, reservation: str) -> None:
        """Ends the engine, for all nodes; idempotent."""
        if not self.has(reservation):
            return
        self._run("stop", reservation)
        self._run("destroy", reservation)

    def forget(self, reservation: str) -> None:
        """As `close`, of a reservation that goes for good."""
        self.close(reservation)
        exports_made_file(self._folder / reservation).unlink(missing_ok=True)

    def forget_all_but(self, reservations: Collection[str]) -> None:
        """Of others that are closed nothing is kept."""
        for path in self._folder.glob(exports_made_file(Path("*")).name):
            if path.stem not in reservations and not self.has(path.stem):
                path.unlink(missing_ok=True)

    def has(self, reservation: str) -> bool:
        """The driver has something of it."""
        return (self._folder / reservation).is_dir()

    def reservations(self) -> list[str]:
        """All of which a driver has something."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(self._folder) if entry.is_dir(follow_symlinks=False))
        return []

    def start_ended(self) -> None:
        """Starts engines again whose daemons have ended; their nodes wait and go on."""
        for reservation in self.ended():
            _log.warning("the NFS server of %s has ended, and is started again", reservation)
            try:
                self._start(reservation)
            except ForebayError as error:
                _log.warning("files of %s: %s", reservation, error)

    def ended(self) -> list[str]:
        """Reservations that nodes need, and whose daemons do not run."""
        return [reservation for reservation in self.reservations() if self._has_ended(reservation)]

    def _has_ended(self, reservation: str) -> bool:
        """Nodes need it, by what its state says, which is replaced as a whole; and it does not run."""
        try:
            state = json.loads((self._folder / reservation / STATE_NAME).read_text(encoding="utf-8"))
            identities = state["daemons"].values()
            alive = [process_identity(int(identity.split("/")[1])) == identity for identity in identities]
            wanted = any(not export["fenced"] for export in state["exports"].values())
            return wanted and (len(alive) < _DAEMONS or not all(alive))
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return False

    def _start(self, reservation: str) -> None:
        self._run("start", reservation)
        self._run("ready", reservation)

    def _run(self, operation: str, reservation: str, **values: str) -> dict[str, Any]:
        seconds = self._settings.operation_seconds_max
        values |= {
            "DRIVER": _DRIVER,
            "FOLDER": str(self._folder / reservation),
            "RESERVATION": reservation,
            "INCARNATION": str(self.incarnation),
            "SECONDS": str(seconds),
        }
        environment = os.environ | {f"FOREBAY_FILES_{name}": value for name, value in values.items()}
        command = [sys.executable, "-P", "-m", "forebay.workflows.files", operation]
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.operation_seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DeadlineExceededError(f"{operation} of files is not done in time", reservation) from None
        try:
            answer = json.loads(done.stdout)
            failure = answer.get("error")
        except (ValueError, AttributeError):
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise StorageError(f"{operation} of files has failed: {last[:200]}", reservation) from None
        if failure is not None:
            raise error_of_code(failure["code"], failure["what"], failure["where"])
        assert isinstance(answer, dict)
        return answer


def _address_of(host: str) -> str:
    """The address that engines listen at.

    Raises
    ------
    InvalidArgumentError
        The name leads nowhere, or, as many systems have their own name, to the node itself; or it is no address of one
        node.
    """
    try:
        address, is_name = ip_address(host), False
    except ValueError:
        address, is_name = _found(host), True
    if address.is_unspecified:
        raise InvalidArgumentError(f"{_SETTING}: nodes cannot mount from {host}; name an address of this server")
    if is_name and address.is_loopback:
        raise InvalidArgumentError(f"{_SETTING}: {host} is {address} here, where no other node comes; write it out")
    return str(address)


def _found(host: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise InvalidArgumentError(f"{_SETTING}: {host} cannot be found: {error.strerror}") from None
