# SPDX-License-Identifier: Apache-2.0
"""The driver `juicefs` on the server of one part: blocks and a gate, and at the home, part 0, Redis and a keeper.

Every setting has its reason in docs/design/files-on-nodes.md. Who is let in is what the part's state says; the daemons
follow it, never the other way round.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from forebay.errors import (
    CorruptError,
    DeadlineExceededError,
    DisconnectedError,
    InvalidArgumentError,
    NotFoundError,
    RefusedError,
    StorageError,
)
from forebay.fail_point import fail_point
from forebay.workflows.files.daemon_cgroup import NO_CGROUP, DaemonCgroup
from forebay.workflows.files.daemons import end_daemons
from forebay.workflows.files.driver_checks import check_nodes, check_reservation, room_of
from forebay.workflows.files.driver_state import locked_folder
from forebay.workflows.files.home_server import file_system_of, free_port, is_alive
from forebay.workflows.files.juicefs import names_server
from forebay.workflows.files.juicefs.engine_program import installed_program
from forebay.workflows.files.juicefs.gate import ask_gate
from forebay.workflows.files.juicefs.keeper import WANTED_NAME
from forebay.workflows.files.juicefs.part_daemons import PartDaemons
from forebay.workflows.files.juicefs.part_state import HOME_NUMBER, HOME_PART, PART_STATE, Node, PartState
from forebay.workflows.files.juicefs.room_plan import image_bytes

__all__ = ["PARTS_MAX", "JuicefsDriver"]

#: The last number of an address of the loopback network is the part's; Redis has 254.
PARTS_MAX = 250
_KEY = re.compile(r"[0-9a-f]{32}")
#: What of a file system is not for files.
_FILE_SYSTEM_SHARE = 50
#: How long Redis has to drop a user before it is killed, which takes the way in as surely.
_DROP_SECONDS_MAX = 2.0


@dataclass(frozen=True, slots=True)
class JuicefsDriver:
    """One operation's view of one part: the process that carries it out makes one."""

    folder: Path  #: of the part's driver
    reservation: str  #: its uuid
    part: int
    incarnation: int
    deadline: float  #: on the monotonic clock
    cgroup: DaemonCgroup = NO_CGROUP

    @property
    def _daemons(self) -> PartDaemons:
        return PartDaemons(self.folder, self.reservation, self.part, self.deadline, self.cgroup)

    def prepare(
        self, tree: Path, address: str, ports: range, capacity_bytes: int, parts: int, key: str = ""
    ) -> dict[str, Any]:
        """Remembers what this part is; idempotent. The home makes the key, which the caller brings to the others.

        Raises
        ------
        RefusedError
            The tree is no file system of its own, or too small, or another one than before.
        BusyError
            No port is free.
        """
        check_reservation(self.reservation)
        if not 2 <= parts <= PARTS_MAX or not 0 <= self.part < parts:
            raise InvalidArgumentError(f"there are 2 to {PARTS_MAX} parts; one server needs no juicefs")
        if (self.part == HOME_PART) == bool(key) or (key and _KEY.fullmatch(key) is None):
            raise InvalidArgumentError("the home makes the key, and the other parts are given it")
        ip_address(address)
        installed_program()
        file_system = file_system_of(tree)
        room = os.statvfs(tree)
        size = room.f_blocks * room.f_frsize
        needed = image_bytes(self.part, parts, capacity_bytes)
        if size < needed - needed // _FILE_SYSTEM_SHARE:
            raise RefusedError(f"part {self.part} is too small: it needs {needed >> 20} MiB", str(tree))
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                if any((tree / name).exists() for name in ("blocks", "redis")):
                    raise RefusedError("blocks of another tree lie there, which nobody can read", str(tree)) from None
                with locked_folder(self.folder.parent, self.deadline):
                    port = free_port(self.folder.parent, address, ports)
                    state = PartState(
                        self.reservation,
                        self.incarnation,
                        self.part,
                        parts,
                        str(tree),
                        file_system,
                        address,
                        port,
                        key or secrets.token_hex(16),
                        capacity_bytes,
                    )
                    fail_point("files.prepare.part")
                    PART_STATE.write(self.folder, state)
            known = (state.tree, state.file_system, state.part, state.parts_count, state.capacity_bytes)
            if known != (str(tree), file_system, self.part, parts, capacity_bytes) or (key and key != state.key):
                raise RefusedError("another part was prepared here before", str(tree))
            return {"address": state.address, "port": state.port, "key": state.key}

    def start(self, parts: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Starts what does not run, with those let in whom the state allows; idempotent. The home is started last, with
        the address and port of each part's gate.

        Raises
        ------
        StorageError
            A daemon does not answer; as long as the tree is not formatted, also another part's gate.
        """
        with self._locked():
            state = self._state()
            if self.part == HOME_PART and parts:
                self._take_parts(state, parts)
            if self.part == HOME_PART and not state.parts:
                raise InvalidArgumentError("the home must know the gates of all parts", str(self.folder))
            if file_system_of(Path(state.tree)) != state.file_system:
                raise RefusedError("another file system lies there than was prepared", state.tree)
            self._daemons.run_folder.parent.mkdir(mode=0o700, exist_ok=True)
            self._daemons.run_folder.mkdir(mode=0o700, exist_ok=True)
            started = [self._daemons.keep(state, "blocks"), self._daemons.keep(state, "gate")]
            if self.part == HOME_PART:
                started.append(self._daemons.keep(state, "redis"))
                if not state.formatted:
                    # Later no part is needed to start the home's daemons; a fence would wait for one that is away.
                    self._daemons.wait_for_gates(state)
                started.append(self._daemons.keep(state, "forwarder"))
                self._daemons.format(state)
                started.append(self._daemons.keep(state, "keeper"))
            return {"started": any(started)}

    def ready(self) -> dict[str, Any]:
        """Returns when what runs here answers; StorageError if something has ended, or does not answer in time."""
        with self._locked():
            state = self._state()
            self._daemons.wait(lambda: ask_gate(self._daemons.socket("gate"), "here\n", self.deadline), "the gate")
            self._daemons.wait(lambda: self._daemons.blocks_answer(state), "the server of blocks")
            if self.part == HOME_PART:
                self._daemons.wait(lambda: self._daemons.redis_answers(state), "Redis")
            return {}

    def admit(self, nodes: Mapping[str, int | None]) -> dict[str, Any]:
        """Lets nodes in; idempotent. The home gives each a number, which the other parts are told. At the home: what
        each of them mounts.

        Raises
        ------
        InvalidArgumentError
            A node's name or number is none.
        """
        check_nodes(nodes)
        for node, number in nodes.items():
            if (number is None) != (self.part == HOME_PART) or (number is not None and number <= HOME_NUMBER):
                raise InvalidArgumentError("the home gives numbers, and the other parts are told them", node)
        with self._locked():
            state = self._state()
            for node in nodes:
                known = state.nodes.get(node)
                if known is not None and (known.fenced or nodes[node] not in (None, known.number)):
                    self._take_away(state, [node])
                    known = None
                if known is None:
                    state.nodes[node] = Node(nodes[node] or self._next_number(state))
            PART_STATE.write(self.folder, state)
            fail_point("files.admit.part")
            if self.part != HOME_PART:
                return {"numbers": {node: state.nodes[node].number for node in nodes}}
            names_server.write_users(self._daemons.users, state)
            with self._daemons.redis(state) as redis:
                for node in nodes:
                    names_server.admit_user(redis, state, state.nodes[node].number)
                    fail_point("files.admit.user")
            return {"mounts": {node: self._mount_of(state, state.nodes[node].number) for node in nodes}}

    def release(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Takes the ways in of nodes that have unmounted; idempotent."""
        return {"released": self._end_nodes(nodes)}

    def fence(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Takes the ways in of these nodes; idempotent. When the home has done it, nothing that they have sent can come
        into a file; when all parts have, nobody works for them. Other nodes notice nothing.

        Raises
        ------
        ForebayError
            It is not sure; asked again, it goes on.
        """
        return {"fenced": self._end_nodes(nodes)}

    def usage(self) -> dict[str, Any]:
        """Bytes of the part's file system."""
        with self._locked():
            return room_of(self._state().tree)

    def stop(self) -> dict[str, Any]:
        """Ends the daemons, and with them every node's way in; idempotent. The blocks stay."""
        with self._locked():
            with contextlib.suppress(NotFoundError, CorruptError):
                state = self._state()
                state.nodes = {node: replace(known, fenced=True) for node, known in state.nodes.items()}
                PART_STATE.write(self.folder, state)
                fail_point("files.stop.part")
            self._daemons.end()
            return {}

    def destroy(self) -> dict[str, Any]:
        """As `stop`, and nothing is left of the driver; what is in the image goes with it. Idempotent."""
        with self._locked():
            self._daemons.end()
            fail_point("files.destroy.part")
            shutil.rmtree(self.folder)
            return {}

    # --- Nodes

    def _end_nodes(self, nodes: Sequence[str]) -> list[str]:
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                return []
            there = [node for node in nodes if node in state.nodes]
            for node in there:
                state.nodes[node] = replace(state.nodes[node], fenced=True)
            PART_STATE.write(self.folder, state)
            fail_point("files.fence.part")
            if there:
                self._take_away(state, there)
            return there

    def _take_away(self, state: PartState, nodes: Sequence[str]) -> None:
        """The ways in of nodes that the state says are fenced, or that get another number."""
        for node in nodes:
            state.nodes[node] = replace(state.nodes[node], fenced=True)
        PART_STATE.write(self.folder, state)
        numbers = [state.nodes[node].number for node in nodes]
        if self.part == HOME_PART:
            names_server.write_users(self._daemons.users, state)
            self._drop_users(state, numbers)
            fail_point("files.fence.users")
            if is_alive(state.daemons.get("redis", "")):
                with self._daemons.redis(state) as redis:
                    for number in numbers:
                        names_server.free_session(redis, number)
            fail_point("files.fence.locks")
        for number in numbers:
            self._end_connections(state, number)
        fail_point("files.fence.gate")
        for node in nodes:
            del state.nodes[node]
        PART_STATE.write(self.folder, state)
        if self.part == HOME_PART:
            # Of what they have sent, blocks may be left that no file has.
            (self.folder / WANTED_NAME).touch(mode=0o600)

    def _drop_users(self, state: PartState, numbers: Sequence[int]) -> None:
        """When this is over, Redis carries out nothing more of them. If it does not say so, it is killed: its file has
        these users no more when it starts again.
        """
        if not is_alive(state.daemons.get("redis", "")):
            end_daemons(self._daemons.mark("redis"), self.deadline)
            return
        soon = min(self.deadline, time.monotonic() + _DROP_SECONDS_MAX)
        try:
            with self._daemons.redis(state, soon) as redis:
                redis.call("ACL", "DELUSER", *map(names_server.node_user, numbers))
        except (DeadlineExceededError, DisconnectedError, StorageError):
            end_daemons(self._daemons.mark("redis"), self.deadline)
            fail_point("files.fence.redis")
            self._daemons.keep(state, "redis")
            self._daemons.wait(lambda: self._daemons.redis_answers(state), "Redis")

    def _end_connections(self, state: PartState, number: int) -> None:
        """A gate that does not say that they have ended is killed: the other nodes' connections begin anew."""
        if not is_alive(state.daemons.get("gate", "")):
            end_daemons(self._daemons.mark("gate"), self.deadline)
        elif not ask_gate(self._daemons.socket("gate"), f"end {number}\n", self.deadline):
            raise DeadlineExceededError("requests of this node are still under way", str(self.folder))

    def _next_number(self, state: PartState) -> int:
        state.numbers_made += 1
        return state.numbers_made

    def _mount_of(self, state: PartState, number: int) -> dict[str, Any]:
        return {
            "reservation": state.reservation,
            "number": number,
            "permit": state.secret("permit", number).hex(),
            "password": state.password("redis", number),
            "port": state.port,
            "parts": state.parts,
        }

    def _take_parts(self, state: PartState, parts: Sequence[Mapping[str, Any]]) -> None:
        try:
            given = [{"address": str(ip_address(part["address"])), "port": int(part["port"])} for part in parts]
        except (KeyError, TypeError, ValueError):
            raise InvalidArgumentError("a part's gate has an address and a port") from None
        if len(given) != state.parts_count or given[HOME_PART] != {"address": state.address, "port": state.port}:
            raise InvalidArgumentError("these are not the gates of all parts, the home's first")
        if state.parts != given:
            state.parts = given
            # It has the old addresses.
            end_daemons(self._daemons.mark("forwarder"), self.deadline)
            PART_STATE.write(self.folder, state)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked_folder(self.folder, self.deadline)

    def _state(self) -> PartState:
        state = PART_STATE.read(self.folder, self.incarnation)
        if (state.reservation, state.part) != (self.reservation, self.part):
            raise RefusedError("another part was prepared here", str(self.folder))
        return state
