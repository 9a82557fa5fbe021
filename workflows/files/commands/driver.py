# SPDX-License-Identifier: Apache-2.0
"""The driver `commands` at the home: a site's own engine, whose tree the home mounts over the reservation's files/.

The state says who is let in, and who is fenced; the site's commands follow it. docs/design/files-on-nodes.md has the
reasons.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.errors import (
    ForebayError,
    NotFoundError,
    RefusedError,
    StorageError,
)
from forebay.fail_point import fail_point
from forebay.workflows.files.commands.site_command import CommandRunner
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.commands.site_mount import SiteMount
from forebay.workflows.files.driver_checks import STAGES_NODE, check_addresses, check_reservation, room_of
from forebay.workflows.files.driver_state import locked_folder
from forebay.workflows.files.mounts import mount_at
from forebay.workflows.files.state_file import STATE_NAME, StateFile

__all__ = ["SITE_FOLDER", "CommandsDriver", "home_lacks_mount", "home_mount_is_there", "site_state", "ways_in"]

#: In the reservation's folder: what the site's commands keep.
SITE_FOLDER = "site"
#: What goes to the nodes with each answer.
_SITE_STATE_BYTES_MAX = 16 * 1024
_READY_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class WayIn:
    """One node's."""

    number: int  #: never used again
    address: str  #: of the node
    home: bool  #: it is this machine, which copies, and is never fenced
    admitted: bool = False  #: the site's command was done
    fenced: bool = False  #: it is being taken away


@dataclass(slots=True)
class CommandsState:
    """Of one reservation."""

    reservation: str  #: its uuid
    incarnation: int  #: the highest that an operation came with
    tree: str  #: files/ of the reservation
    capacity_bytes: int
    owner: tuple[int, int, int]  #: uid, gid and mode that the tree's top is to have
    prepared: bool = False  #: the site's command was done
    owned: bool = False  #: the tree's top has its owner
    ending: bool = False  #: it is being destroyed: nobody mounts it again
    numbers_made: int = 0
    nodes: dict[str, WayIn] = field(default_factory=dict)


def _from_fields(fields: dict[str, Any]) -> CommandsState:
    fields["nodes"] = {node: WayIn(**values) for node, values in fields["nodes"].items()}
    fields["owner"] = tuple(fields["owner"])
    return CommandsState(**fields)


_STATE = StateFile("forebay.files-commands", _from_fields, "the driver commands", "the tree of these files is not made")


@dataclass(frozen=True, slots=True)
class CommandsDriver:
    """One operation's view of it: the process that carries it out makes one."""

    folder: Path  #: of the reservation's driver
    reservation: str  #: its uuid
    incarnation: int
    deadline: float  #: on the monotonic clock
    commands: SiteCommands

    def prepare(self, tree: Path, capacity_bytes: int) -> dict[str, Any]:
        """Remembers what is to be shown, and has the engine make its tree; idempotent.

        Raises
        ------
        RefusedError
            Files lie there already, or something is mounted there.
        """
        check_reservation(self.reservation)
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                if mount_at(tree) is not None:
                    raise RefusedError('an image is mounted there: set files_image = ""', str(tree)) from None
                if any(os.scandir(tree)):
                    raise RefusedError("files lie there that no other node would see; remove them", str(tree)) from None
                status = tree.stat()
                owner = (status.st_uid, status.st_gid, status.st_mode & 0o7777)
                (self.folder / SITE_FOLDER).mkdir(mode=0o700, exist_ok=True)
                state = CommandsState(self.reservation, self.incarnation, str(tree), capacity_bytes, owner)
                fail_point("files.prepare.state")
                _STATE.write(self.folder, state)
            if state.tree != str(tree):
                raise RefusedError("another tree was made for this reservation", str(tree))
            if mount_at(tree) is None:  # after a boot, nobody takes the folder below for an empty tree
                _give(tree, 0, 0, 0)
            if state.capacity_bytes != capacity_bytes or state.ending:
                state.capacity_bytes, state.prepared = capacity_bytes, False
                state.owned, state.ending = state.owned and not state.ending, False
                _STATE.write(self.folder, state)
            if not state.prepared:
                self._runner(state).run("prepare", self._home_values)
                state.prepared = True
                _STATE.write(self.folder, state)
            return {}

    def start(self) -> dict[str, Any]:
        """Has the engine run; idempotent."""
        with self._locked():
            self._runner(self._state()).run("start", self._home_values)
            return {}

    def ready(self) -> dict[str, Any]:
        """Returns when it serves; raises what its command said last if it does not in time."""
        with self._locked():
            runner = self._runner(self._state())
            last: ForebayError | None = None
            while True:
                try:
                    runner.run("ready", self._home_values, self.deadline)
                    return {}
                except ForebayError as error:
                    last = error if last is None or time.monotonic() < self.deadline else last
                if time.monotonic() + _READY_POLL_SECONDS > self.deadline:
                    raise last
                time.sleep(_READY_POLL_SECONDS)

    def mount(self) -> dict[str, Any]:
        """Mounts the tree at the home, over the reservation's files/; idempotent."""
        with self._locked():
            state = self._state()
            self._home(state).mount(self.incarnation, "home")
            if not state.owned:
                _give(Path(state.tree), *state.owner)
                state.owned = True
                _STATE.write(self.folder, state)
            return {}

    def admit(self, nodes: Mapping[str, str]) -> dict[str, Any]:
        """Lets nodes in, by their addresses; idempotent. By which way in each of them mounts.

        Raises
        ------
        InvalidArgumentError
            A node's name or address is none.
        """
        check_addresses(nodes)
        with self._locked():
            state = self._state()
            for node, address in nodes.items():
                known = state.nodes.get(node)
                if known is not None and (known.fenced or known.address != address):
                    self._fence(state, node)
                    known = None
                if known is None:
                    state.numbers_made += 1
                    state.nodes[node] = WayIn(state.numbers_made, address, _is_here(address))
            _STATE.write(self.folder, state)
            fail_point("files.admit.state")
            for node in nodes:
                if not state.nodes[node].admitted:
                    self._runner(state).run("admit", _node_values(node, state.nodes[node]))
                    state.nodes[node] = replace(state.nodes[node], admitted=True)
                    _STATE.write(self.folder, state)
            return {"mounts": {node: {"source": f"{node}.{state.nodes[node].number}", "port": 0} for node in nodes}}

    def release(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Forgets nodes that have unmounted; idempotent. It is no fence."""
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                return {}
            self._release(state, nodes)
            return {}

    def fence(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Takes the ways in of these nodes; idempotent. Then nothing that they have sent can land.

        Raises
        ------
        StorageError, DeadlineExceededError
            It is not sure; asked again, it goes on with those that are left.
        """
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                return {}
            for node in nodes:
                if node in state.nodes:
                    state.nodes[node] = replace(state.nodes[node], fenced=True)
            _STATE.write(self.folder, state)
            fail_point("files.fence.state")
            for node in nodes:
                if node in state.nodes:
                    self._fence(state, node)
            return {}

    def usage(self) -> dict[str, Any]:
        """Bytes of the engine's tree, as the home's kernel is told."""
        with self._locked():
            state = self._state()
            if not self._home(state).is_as_made():
                raise StorageError("the engine's tree is not mounted here", state.tree)
            return room_of(state.tree)

    def stop(self, clean: Sequence[str]) -> dict[str, Any]:
        """No node has a way in when it returns; idempotent. `clean`: these have unmounted. The home keeps the tree, for
        it is to be copied.
        """
        with self._locked():
            with contextlib.suppress(NotFoundError):
                state = self._state()
                self._release(state, clean)
                state.nodes = {node: replace(way, fenced=True) for node, way in state.nodes.items()}
                _STATE.write(self.folder, state)
                fail_point("files.stop.state")
                for node in list(state.nodes):
                    self._fence(state, node)
            return {}

    def destroy(self) -> dict[str, Any]:
        """Ends the engine, and nothing is left of the tree, nor of the driver; idempotent. Nodes go first: `stop`.

        Raises
        ------
        RefusedError
            A node has a way in.
        """
        with self._locked():
            with contextlib.suppress(NotFoundError):
                state = self._state()
                if state.nodes:
                    raise RefusedError("nodes have ways in to these files", str(self.folder))
                state.ending = True
                _STATE.write(self.folder, state)
                fail_point("files.destroy.state")
                home = self._home(state)
                said = home.unmount(lazy=True) if home.is_there() else ""
                if said:
                    raise StorageError(f"the tree cannot be unmounted here: {said}", state.tree)
                fail_point("files.destroy.unmounted")
                runner = self._runner(state)
                for operation in ("stop", "destroy"):
                    runner.run(operation, self._home_values)
                runner.forget()
            shutil.rmtree(self.folder)
            return {}

    def _fence(self, state: CommandsState, node: str) -> None:
        """Nor is the manager's node ever fenced, which copies, too."""
        way = state.nodes[node]
        if not way.home:
            operation = "release" if node == STAGES_NODE else "fence"
            self._runner(state).run(operation, _node_values(node, way))
        self._drop(state, node)

    def _release(self, state: CommandsState, nodes: Sequence[str]) -> None:
        for node in nodes:
            if node in state.nodes and not state.nodes[node].fenced:
                self._runner(state).run("release", _node_values(node, state.nodes[node]))
                self._drop(state, node)

    def _drop(self, state: CommandsState, node: str) -> None:
        del state.nodes[node]
        _STATE.write(self.folder, state)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked_folder(self.folder, self.deadline)

    def _state(self) -> CommandsState:
        return _STATE.read(self.folder, self.incarnation)

    def _runner(self, state: CommandsState) -> CommandRunner:
        values = {
            "FOREBAY_RESERVATION_ID": self.reservation,
            "FOREBAY_INCARNATION": str(self.incarnation),
            "FOREBAY_CAPACITY_BYTES": str(state.capacity_bytes),
            "FOREBAY_STATE": str(self.folder / SITE_FOLDER / STATE_NAME),
        }
        return CommandRunner(self.commands, values, self.folder / "running", self.folder / "commands.log")

    @property
    def _home_values(self) -> dict[str, str]:
        return {"FOREBAY_NODE": socket.gethostname().partition(".")[0]}

    def _home(self, state: CommandsState) -> SiteMount:
        return SiteMount(Path(state.tree), self.folder / "home.mount", self._runner(state), self._home_values)


def ways_in(folder: Path) -> int:
    """How many nodes have one."""
    with contextlib.suppress(ForebayError):
        return len(_STATE.peek(folder / STATE_NAME).nodes)
    return 0


def home_mount_is_there(folder: Path) -> bool:
    """The tree is mounted at the home, as it was; True where it has not been mounted yet."""
    try:
        state = _STATE.peek(folder / STATE_NAME)
    except ForebayError:
        return True
    return not state.owned or _is_mounted(folder, state)


def home_lacks_mount(folder: Path) -> bool:
    """The tree is to be mounted at the home again, as after a boot."""
    try:
        state = _STATE.peek(folder / STATE_NAME)
    except ForebayError:
        return False
    return state.owned and not state.ending and not _is_mounted(folder, state)


def _is_mounted(folder: Path, state: CommandsState) -> bool:
    record = folder / "home.mount"
    runner = CommandRunner(SiteCommands({}), {}, folder / "running", folder / "commands.log")
    return SiteMount(Path(state.tree), record, runner, {}).is_as_made()


def site_state(folder: Path) -> str:
    """What the site's commands have written for those on nodes.

    Raises
    ------
    StorageError
        It is too long, or no text.
    """
    path = folder / SITE_FOLDER / STATE_NAME
    try:
        with path.open("rb") as content:
            text = content.read(_SITE_STATE_BYTES_MAX + 1)
    except FileNotFoundError:
        return ""
    try:
        if len(text) <= _SITE_STATE_BYTES_MAX:
            return text.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise StorageError(f"what the site's commands keep must be a text of {_SITE_STATE_BYTES_MAX} bytes", str(path))


def _node_values(node: str, way: WayIn) -> dict[str, str]:
    return {"FOREBAY_NODE": node, "FOREBAY_NODE_ADDRESS": way.address, "FOREBAY_WAY_IN": f"{node}.{way.number}"}


def _is_here(address: str) -> bool:
    """It is an address of this machine: one can listen at it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _give(folder: Path, uid: int, gid: int, mode: int) -> None:
    """The folder's owner and mode, as the server made them."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(f"the tree's owner cannot be set: {error.strerror}", str(folder)) from None
