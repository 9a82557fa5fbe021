# SPDX-License-Identifier: Apache-2.0
"""A reservation's tree on a node: a forwarder and `juicefs mount`, both root's and in sessions of their own.

FOLDER/RESERVATION/state   what is mounted, and by which processes; the folder is root's alone
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forebay.errors import CorruptError, InvalidArgumentError, NoSpaceError, StorageError
from forebay.fail_point import fail_point
from forebay.workflows.files.daemon_cgroup import NO_CGROUP, DaemonCgroup
from forebay.workflows.files.daemons import end_daemons, find_daemons, last_words, program_path, start_daemon
from forebay.workflows.files.driver_state import locked_folder
from forebay.workflows.files.home_server import is_alive
from forebay.workflows.files.juicefs.engine_commands import NAME, LoopbackNet, mount_command
from forebay.workflows.files.juicefs.engine_program import installed_program
from forebay.workflows.files.juicefs.forwarder import listens, ways_of
from forebay.workflows.files.juicefs.names_server import node_user
from forebay.workflows.files.mounts import mount_at
from forebay.workflows.files.state_file import STATE_NAME
from forebay.workflows.staging.publication import write_whole

__all__ = ["NodeMount"]

_NETS = 8192
_KIND = "fuse.juicefs"
_SOURCE = f"JuiceFS:{NAME}"
_POLL_SECONDS = 0.02
_FORWARDER = "forebay.workflows.files.juicefs.forwarder"


@dataclass(slots=True)
class _State:
    number: int
    net: int
    port: int
    place: str
    daemons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeMount:
    """One operation's view of it: the process that carries it out makes one."""

    folder: Path  #: of this reservation on this node
    deadline: float  #: on the monotonic clock
    cgroup: DaemonCgroup = NO_CGROUP

    def mount(self, place: Path, ticket: Mapping[str, Any], *, squash: bool = True) -> dict[str, Any]:
        """Mounts what `admit` has answered for this node; idempotent. What another number showed there goes first: its
        node was fenced since. `squash`: root is nobody there, but at the home.

        Raises
        ------
        StorageError
            It is not mounted in time.
        """
        try:
            number, port, parts = int(ticket["number"]), int(ticket["port"]), list(ticket["parts"])
            permit, password = str(ticket["permit"]), str(ticket["password"])
        except (KeyError, TypeError, ValueError):
            raise InvalidArgumentError("this is no answer of `admit`") from None
        program = installed_program()
        with locked_folder(self.folder, self.deadline):
            state = self._state()
            if state is not None and (state.number != number or state.place != str(place)):
                self._end(state, lazy=True)
                state = None
            if state is None:
                with locked_folder(self.folder.parent, self.deadline):
                    state = _State(number, self._free_net(), port, str(place))
                    self._write(state)
                fail_point("files.mount.state")
            net = LoopbackNet(state.net, state.port)
            if not is_alive(state.daemons.get("forwarder", "")):
                end_daemons(self._forwarder_file, self.deadline)
                settings = {"number": number, "permit": permit, "ways": ways_of(net, parts)}
                write_whole(self._forwarder_file, json.dumps(settings) + "\n", mode=0o600, durable=False)
                command = [sys.executable, "-P", "-m", _FORWARDER, str(self._forwarder_file)]
                state.daemons["forwarder"] = start_daemon(command, self.folder / "forwarder.log", {}, self.cgroup)
                fail_point("files.mount.forwarder")
                self._write(state)
            self._wait(lambda: listens(net), state, "forwarder")
            if is_alive(state.daemons.get("juicefs", "")) and self._is_mounted(place):
                return {"place": str(place), "mounted": False}
            self._unmount(place, lazy=True)
            end_daemons(self._log, self.deadline)
            place.mkdir(mode=0o755, exist_ok=True)
            command = mount_command(program, net, node_user(number), place, self._log, squash=squash)
            # The session's number is the node's: the home knows whose locks are whose. Without a supervisor: juicefs's
            # own one unmounts the place and mounts it again when its child ends, also after it was mounted anew.
            environment = {"META_PASSWORD": password, "_JFS_META_SID": str(number)}
            environment |= {"JFS_SUPERVISOR": "forebay", "HOME": "/root"}
            state.daemons["juicefs"] = start_daemon(command, self._log, environment, self.cgroup)
            fail_point("files.mount.engine")
            self._write(state)
            self._wait(lambda: self._is_mounted(place), state, "juicefs")
            return {"place": str(place), "mounted": True}

    def unmount(self, place: Path, *, lazy: bool = False) -> dict[str, Any]:
        """Writes out what the node has, unmounts, and ends what has served it; idempotent. `lazy` asks no server: what
        was not written out is lost.

        Raises
        ------
        StorageError
            Programs use it, or it does not come to an end in time.
        """
        with locked_folder(self.folder, self.deadline):
            state = self._state()
            if state is not None and state.place != str(place):
                raise InvalidArgumentError("these files are mounted elsewhere", state.place)
            self._end(state or _State(0, 0, 0, str(place)), lazy=lazy)
            fail_point("files.unmount.ended")
            shutil.rmtree(self.folder)
            return {}

    def _end(self, state: _State, *, lazy: bool) -> None:
        self._unmount(Path(state.place), lazy=lazy)
        fail_point("files.unmount.unmounted")
        if not lazy:
            # It has still to end its session, which is soon done.
            self._wait(lambda: not find_daemons(self._log), None, "the end of juicefs")
        end_daemons(self._log, self.deadline)
        end_daemons(self._forwarder_file, self.deadline)
        self.cgroup.remove()
        (self.folder / STATE_NAME).unlink(missing_ok=True)

    def _unmount(self, place: Path, *, lazy: bool) -> None:
        while (mount := mount_at(place)) is not None:
            if mount.kind != _KIND:
                raise StorageError(f"something else is mounted there: {mount.kind}", str(place))
            command = [program_path("umount", "mount"), "-n", "-i", "-c", *(["-l"] if lazy else []), str(place)]
            left = max(0.1, self.deadline - time.monotonic())
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=left, check=False
                )
            except subprocess.TimeoutExpired:
                raise StorageError("it cannot be unmounted: juicefs does not answer", str(place)) from None
            if done.returncode != 0 and mount_at(place) is not None:
                words = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
                if time.monotonic() > self.deadline:
                    raise StorageError(f"it cannot be unmounted: {words[-200:]}", str(place))
                time.sleep(_POLL_SECONDS)

    def _is_mounted(self, place: Path) -> bool:
        mount = mount_at(place)
        return mount is not None and (mount.kind, mount.source) == (_KIND, _SOURCE)

    def _free_net(self) -> int:
        """A loopback network that no other reservation has on this node."""
        taken = set()
        for path in self.folder.parent.glob(f"*/{STATE_NAME}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                taken.add(json.loads(path.read_text(encoding="utf-8"))["net"])
        free = next((net for net in range(_NETS) if net not in taken), None)
        if free is None:
            raise NoSpaceError("too many reservations are mounted on this node", str(self.folder.parent))
        return free

    def _state(self) -> _State | None:
        path = self.folder / STATE_NAME
        try:
            return _State(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise CorruptError(f"this is no state of a mount ({error})", str(path)) from None

    def _write(self, state: _State) -> None:
        write_whole(self.folder / STATE_NAME, json.dumps(asdict(state)) + "\n", mode=0o600)

    @property
    def _forwarder_file(self) -> Path:
        return self.folder / "forwarder.json"

    @property
    def _log(self) -> Path:
        return self.folder / "juicefs.log"

    def _wait(self, condition: Callable[[], bool], state: _State | None, name: str) -> None:
        """`state`: the daemon of this name must run meanwhile."""
        while not condition():
            if state is not None and not is_alive(state.daemons.get(name, "")):
                raise StorageError(f"{name} has ended: {last_words(self.folder / f'{name}.log')}", str(self.folder))
            if time.monotonic() > self.deadline:
                raise StorageError(f"{name} does not come in time", str(self.folder))
            time.sleep(_POLL_SECONDS)
