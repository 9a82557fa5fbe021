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
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from forebay.errors import (
    DeadlineExceededError,
    ForebayError,
    InvalidArgumentError,
    StorageError,
    UnsupportedError,
    error_of_code,
)
from forebay.manager.process_identity import process_identity
from forebay.workflows.files.commands.driver import (
    SITE_FOLDER,
    home_lacks_mount,
    home_mount_is_there,
    site_state,
    ways_in,
)
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.daemon_cgroup import cgroup_problem
from forebay.workflows.files.daemons import bound_logs, program_path
from forebay.workflows.files.driver_state import begin_incarnation, exports_made_file
from forebay.workflows.files.nfs import PROGRAMS
from forebay.workflows.files.settings import FilesSettings
from forebay.workflows.files.state_file import STATE_NAME

__all__ = ["FilesEngines", "NodeMount"]

_log = logging.getLogger(__name__)

#: What a process takes beside its operation.
_PROCESS_SECONDS = 5.0
_DAEMONS = 2
#: Between two starts of a site's engine that fails.
_SITE_PAUSE_SECONDS = 30.0
#: Where the address of a home is set.
_SETTING = "[files] address, or `forebay agent --address`"
#: Which of a site's commands an operation may run one after another, where they are not just its own.
_COMMANDS_OF = {
    "mount": ("unmount", "mount"),
    "admit": ("fence", "admit"),
    "stop": ("release", "fence"),
    "destroy": ("unmount", "stop", "destroy"),
}
#: Of which operations each call may consist, whatever driver it is.
_OPERATIONS_OF = {
    "open": ("prepare", "start", "ready", "admit"),
    "make_tree": ("prepare", "start", "ready", "mount"),
    "fence": ("fence",),
    "release": ("release",),
    "stop": ("stop",),
    "close": ("stop", "destroy"),
    "forget": ("stop", "destroy"),
}


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
        self._not_before: dict[str, float] = {}  #: when a site's engine that could not be started is tried again

    def check(self, driver: str = "nfs") -> None:
        """What a driver needs is here.

        Raises
        ------
        UnsupportedError
            A program is missing.
        StorageError
            Another user may change a site's command.
        """
        if driver == "commands":
            for error in self.commands.problems().values():
                raise error
            return
        for program, package in PROGRAMS:
            program_path(program, package)

    @property
    def commands(self) -> SiteCommands:
        """The site's; UnsupportedError if the configuration has none."""
        if self._settings.commands is None:
            raise UnsupportedError('files_driver = "commands" needs a table [files.commands]')
        return self._settings.commands

    def site_problems(self) -> dict[str, ForebayError]:
        """What is wrong with a site's commands, by operation."""
        return {} if self._settings.commands is None else self._settings.commands.problems()

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
    def places(self) -> int:
        """How many reservations one server can show by NFS: each has a port."""
        return len(self._settings.port_range)

    @property
    def site_commands(self) -> SiteCommands | None:
        """Those of the site; None: it has no engine of its own."""
        return self._settings.commands

    def call_seconds_max(self, call: str, count: int) -> float:
        """After which all operations of a call have been killed. `count`: for how many nodes."""
        return sum(
            max(self._settings.operation_seconds_max, self._site_seconds(operation, count)) + _PROCESS_SECONDS
            for operation in _OPERATIONS_OF.get(call, ("",))
        )

    def _site_seconds(self, operation: str, count: int) -> float:
        commands = self._settings.commands
        if commands is None or not operation:
            return 0.0
        each = sum(commands.seconds_max(command) for command in _COMMANDS_OF.get(operation, (operation,)))
        return each * max(1, count)

    @property
    def address(self) -> str:
        """Of this node, as others see it; raises InvalidArgumentError where the configuration names none."""
        return _address_of(self._settings.home_address)

    def make_tree(self, reservation: str, tree: Path, capacity_bytes: int) -> None:
        """Has a site's engine make the tree, and mounts it here; idempotent. Raises as `open`."""
        marker = self._folder / reservation / SITE_FOLDER
        marker.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._run("prepare", reservation, TREE=str(tree), CAPACITY_BYTES=str(capacity_bytes))
        self._start(reservation)

    def check_tree(self, reservation: str) -> None:
        """StorageError if a site's tree is not mounted here: what lies in its place are no files of the job's."""
        if self._is_of_site(reservation) and not home_mount_is_there(self._folder / reservation):
            raise StorageError("the engine's tree is not mounted here, and is mounted again", reservation)

    def site_state(self, reservation: str) -> str:
        """What a site's commands on nodes are told; StorageError if it is no text, or too long."""
        return site_state(self._folder / reservation)

    def open(self, reservation: str, tree: Path, nodes: Mapping[str, str]) -> dict[str, NodeMount]:
        """Shows the tree to these nodes, by their addresses; idempotent. What each of them mounts. A site's tree was
        made before.

        Raises
        ------
        ForebayError
            What a driver raises; StorageError where it does not say why; DeadlineExceededError.
        """
        if not self._is_of_site(reservation):
            self._run(
                "prepare",
                reservation,
                TREE=str(tree),
                ADDRESS=self.address,
                PORTS=self._settings.ports,
                LEASE_SECONDS=str(self._settings.lease_seconds),
            )
            self._start(reservation)
        self.check_tree(reservation)
        admitted = self._run("admit", reservation, count=len(nodes), NODES=json.dumps(dict(nodes)))
        return {node: NodeMount(mount["source"], mount["port"]) for node, mount in admitted["mounts"].items()}

    def fence(self, reservation: str, nodes: Sequence[str]) -> None:
        """Takes these nodes' ways in; when it returns nothing that they have sent can land. Idempotent. Other nodes
        wait meanwhile, about a second, and for what they open anew until all of them are back.
        """
        if nodes and self.has(reservation):
            self._run("fence", reservation, count=len(nodes), NODES=json.dumps(list(nodes)))

    def release(self, reservation: str, nodes: Sequence[str]) -> None:
        """Closes the ways in of nodes that have unmounted; idempotent. It is no fence."""
        if nodes and self.has(reservation):
            self._run("release", reservation, count=len(nodes), NODES=json.dumps(list(nodes)))

    def stop(self, reservation: str, clean: Sequence[str] = ()) -> None:
        """Takes all nodes' ways in, as `fence` does; idempotent. `clean`: nodes that have unmounted; a site's engine
        only releases them.
        """
        if self.has(reservation):
            nodes = ways_in(self._folder / reservation)
            self._run("stop", reservation, count=nodes, CLEAN=json.dumps(list(clean)))

    def close(self, reservation: str, clean: Sequence[str] = ()) -> None:
        """Ends the engine, for all nodes; idempotent. That of a site keeps its tree. `clean`: as for `stop`."""
        self.stop(reservation, clean)
        if self.has(reservation) and not self._is_of_site(reservation):
            self._run("destroy", reservation)

    def forget(self, reservation: str) -> None:
        """As `close`, of a reservation that goes for good."""
        self.stop(reservation)
        if self.has(reservation):
            self._run("destroy", reservation)
        exports_made_file(self._folder / reservation).unlink(missing_ok=True)

    def forget_all_but(self, reservations: Collection[str]) -> None:
        """Of others that are closed nothing is kept."""
        for reservation in self._all():
            if self._is_of_site(reservation) and reservation not in reservations:
                _log.warning("the tree of %s, which is gone, is destroyed", reservation)
                self.forget(reservation)
        for path in self._folder.glob(exports_made_file(Path("*")).name):
            if path.stem not in reservations and not self.has(path.stem):
                path.unlink(missing_ok=True)

    def has(self, reservation: str) -> bool:
        """The driver has something of it."""
        return (self._folder / reservation).is_dir()

    def reservations(self) -> list[str]:
        """All that are shown to nodes. A site's tree may be there and not be shown."""
        return [name for name in self._all() if not self._is_of_site(name) or ways_in(self._folder / name)]

    def _all(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(self._folder) if entry.is_dir(follow_symlinks=False))
        return []

    def start_ended(self) -> None:
        """Starts engines again whose daemons have ended; their nodes wait and go on. Bounds their logs."""
        for reservation in self._all():
            with contextlib.suppress(OSError):
                bound_logs(self._folder / reservation)
        for reservation in self.ended():
            if time.monotonic() < self._not_before.get(reservation, 0.0):
                continue
            _log.warning("the engine of %s has ended, and is started again", reservation)
            try:
                self._start(reservation)
            except ForebayError as error:
                _log.warning("files of %s: %s", reservation, error)
                if self._is_of_site(reservation):  # its commands may take long, and others wait meanwhile
                    self._not_before[reservation] = time.monotonic() + _SITE_PAUSE_SECONDS
            else:
                self._not_before.pop(reservation, None)

    def ended(self) -> list[str]:
        """Reservations that nodes need, and whose daemons do not run."""
        return [reservation for reservation in self._all() if self._has_ended(reservation)]

    def _has_ended(self, reservation: str) -> bool:
        """Nodes need it, by what its state says, which is replaced as a whole; and it does not run. A site's tree is
        needed at the home, too, and is looked for there.
        """
        if self._is_of_site(reservation):
            return home_lacks_mount(self._folder / reservation)
        try:
            state = self._state_of(reservation)
            wanted = any(not export["fenced"] for export in state["exports"].values())
            return wanted and len(_running(state)) < _DAEMONS
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return False

    def cgroup_problem(self) -> str:
        """Why what daemons take counts to whoever has started them; "" if it does not."""
        pids: list[int] = []
        for reservation in self._all():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
                pids += _running(self._state_of(reservation))
        return cgroup_problem(self._settings.cgroup, pids)

    def _state_of(self, reservation: str) -> Any:
        return json.loads((self._folder / reservation / STATE_NAME).read_text(encoding="utf-8"))

    def _start(self, reservation: str) -> None:
        self._run("start", reservation)
        self._run("ready", reservation)
        if self._is_of_site(reservation):
            self._run("mount", reservation)

    def _is_of_site(self, reservation: str) -> bool:
        """Its driver is `commands`."""
        return (self._folder / reservation / SITE_FOLDER).is_dir()

    def _run(self, operation: str, reservation: str, count: int = 1, **values: str) -> dict[str, Any]:
        """`count`: how many nodes a site's commands are run for, one by one."""
        seconds = self._settings.operation_seconds_max
        driver = "nfs"
        if self._is_of_site(reservation):
            driver = "commands"
            values["COMMANDS"] = self.commands.as_json()
            seconds = self._site_seconds(operation, count)
        values |= {
            "DRIVER": driver,
            "FOLDER": str(self._folder / reservation),
            "RESERVATION": reservation,
            "INCARNATION": str(self.incarnation),
            "SECONDS": str(seconds),
            "CGROUP": self._settings.cgroup,
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
                timeout=seconds + _PROCESS_SECONDS,
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


def _running(state: Any) -> list[int]:
    """Daemons of a state that run."""
    pids = {int(identity.split("/")[1]): identity for identity in state["daemons"].values()}
    return [pid for pid, identity in pids.items() if process_identity(pid) == identity]


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
