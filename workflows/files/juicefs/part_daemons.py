# SPDX-License-Identifier: Apache-2.0
"""The daemons of one part on its server: how each is started, found, asked and ended."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from forebay.errors import CorruptError, ForebayError, StorageError
from forebay.fail_point import fail_point
from forebay.workflows.files.daemon_cgroup import DaemonCgroup
from forebay.workflows.files.daemons import end_daemons, last_words, program_path, start_daemon
from forebay.workflows.files.home_server import is_alive
from forebay.workflows.files.juicefs import names_server
from forebay.workflows.files.juicefs.block_client import free_bytes_at
from forebay.workflows.files.juicefs.block_server import USER
from forebay.workflows.files.juicefs.door import connected
from forebay.workflows.files.juicefs.engine_commands import LoopbackNet, format_command, run_engine
from forebay.workflows.files.juicefs.engine_program import installed_program
from forebay.workflows.files.juicefs.forwarder import listens, ways_of
from forebay.workflows.files.juicefs.part_state import HOME_NUMBER, HOME_PART, PART_STATE, PartState
from forebay.workflows.files.juicefs.permit_proof import Target, prove_as_node
from forebay.workflows.files.juicefs.redis_client import RedisClient
from forebay.workflows.files.juicefs.room_plan import compaction_bytes, files_max, reserve_bytes, slack_bytes
from forebay.workflows.staging.publication import write_whole

__all__ = ["PartDaemons"]

_POLL_SECONDS = 0.02
_MODULES = "forebay.workflows.files.juicefs"
#: The home's loopback networks begin here; nodes choose theirs below.
_HOME_NET = 8192


@dataclass(frozen=True, slots=True)
class PartDaemons:
    """Those of one part."""

    folder: Path  #: of the part's driver
    reservation: str  #: its uuid
    part: int
    deadline: float  #: on the monotonic clock
    cgroup: DaemonCgroup

    def keep(self, state: PartState, name: str) -> bool:
        """The daemon of this name, if it runs, stays; else it is started. Whether it was."""
        starters = {
            "blocks": self._start_blocks,
            "gate": self._start_gate,
            "redis": self._start_redis,
            "forwarder": self._start_forwarder,
            "keeper": self._start_keeper,
        }
        if is_alive(state.daemons.get(name, "")):
            return False
        end_daemons(self.mark(name), self.deadline)
        state.daemons[name] = starters[name](state)
        fail_point(f"files.start.{name}")
        PART_STATE.write(self.folder, state)
        return True

    def _start_blocks(self, state: PartState) -> str:
        return self._start_module(
            "blocks",
            "block_server",
            socket=str(self.socket("blocks")),
            tree=state.tree,
            socket_for_home=str(self.socket("blocks.home")),
            reserve_bytes=reserve_bytes(self.part, state.capacity_bytes),
            compaction_bytes=compaction_bytes(state.parts_count),
            password=state.password("blocks"),
        )

    def _start_gate(self, state: PartState) -> str:
        return self._start_module(
            "gate",
            "gate",
            part=self.part,
            address=state.address,
            port=state.port,
            state=str(self.folder / "state"),
            blocks=str(self.socket("blocks")),
            blocks_for_home=str(self.socket("blocks.home")),
            redis=str(self.socket("redis")) if self.part == HOME_PART else None,
            control=str(self.socket("gate")),
        )

    def _start_redis(self, state: PartState) -> str:
        names_server.write_users(self.users, state)
        names_server.write_configuration(self.mark("redis"), self.users, self.socket("redis"), Path(state.tree))
        self.socket("redis").unlink(missing_ok=True)
        command = [program_path("redis-server", "redis-server"), str(self.mark("redis"))]
        return start_daemon(command, self.folder / "redis.log", {}, self.cgroup)

    def _start_forwarder(self, state: PartState) -> str:
        return self._start_module(
            "forwarder",
            "forwarder",
            number=HOME_NUMBER,
            permit=state.secret("permit", HOME_NUMBER).hex(),
            ways=ways_of(self._net(state), state.parts),
        )

    def _start_keeper(self, state: PartState) -> str:
        net = self._net(state)
        return self._start_module(
            "keeper",
            "keeper",
            program=str(installed_program()),
            net=net.number,
            port=net.port,
            parts=state.parts_count,
            user=names_server.HOME_USER,
            password=state.password("redis", HOME_NUMBER),
            blocks_password=state.password("blocks"),
            low_bytes=slack_bytes(state.parts_count, state.capacity_bytes) // 2,
        )

    def _start_module(self, name: str, module: str, **settings: Any) -> str:
        configuration = self.mark(name)
        write_whole(configuration, json.dumps(settings) + "\n", mode=0o600, durable=False)
        command = [sys.executable, "-P", "-m", f"{_MODULES}.{module}", str(configuration)]
        return start_daemon(command, self.folder / f"{name}.log", {}, self.cgroup)

    def format(self, state: PartState) -> None:
        """Makes the file system in Redis, once: CorruptError if it was there and is lost."""
        self.wait(lambda: self.redis_answers(state), "Redis")
        net = self._net(state)
        self.wait(lambda: listens(net), "the forwarder")
        with self.redis(state) as redis:
            formatted = names_server.is_formatted(redis)
        if not formatted and state.formatted:
            raise CorruptError("Redis has lost the names of all files", str(self.folder))
        if not formatted:
            self._call_format(state)
        if not state.formatted:
            fail_point("files.start.formatted")
            state.formatted = True
            PART_STATE.write(self.folder, state)

    def _call_format(self, state: PartState) -> None:
        net = self._net(state)
        command = format_command(
            installed_program(),
            net,
            names_server.HOME_USER,
            state.parts_count,
            state.capacity_bytes,
            files_max(state.capacity_bytes),
        )
        fail_point("files.start.format")
        environment = {
            "META_PASSWORD": state.password("redis", HOME_NUMBER),
            "ACCESS_KEY": USER,
            "SECRET_KEY": state.password("blocks"),
        }
        run_engine(command, environment, self.deadline)

    def end(self) -> None:
        """Ends all of them; StorageError if one does not end."""
        for name in ("keeper", "forwarder", "gate", "redis", "blocks"):
            end_daemons(self.mark(name), self.deadline)
        self.cgroup.remove()
        shutil.rmtree(self.run_folder, ignore_errors=True)

    # --- What answers

    def _gate_answers(self, state: PartState, part: int) -> bool:
        """It knows the key, too."""
        soon = min(self.deadline, time.monotonic() + 1.0)
        gate = state.parts[part]
        try:
            with connected(gate["address"], gate["port"], 1.0) as connection:
                permit = state.secret("permit", HOME_NUMBER)
                prove_as_node(connection, part, Target.BLOCKS, HOME_NUMBER, permit, soon)
                return True
        except (OSError, ForebayError):
            return False

    def wait_for_gates(self, state: PartState) -> None:
        """Returns when those of all parts answer."""
        for part in range(state.parts_count):
            self.wait(partial(self._gate_answers, state, part), f"the gate of part {part}")

    def blocks_answer(self, state: PartState) -> bool:
        """The server of blocks does."""
        return free_bytes_at(self.socket("blocks"), state.password("blocks"), self.deadline) is not None

    def redis_answers(self, state: PartState) -> bool:
        """Redis does, and has read its log; StorageError if it has ended."""
        if not is_alive(state.daemons.get("redis", "")):
            raise StorageError(f"Redis has ended: {last_words(self.folder / 'redis.log')}", str(self.folder))
        with contextlib.suppress(ForebayError), self.redis(state) as redis:
            # While it reads its log it answers with an error.
            return bool(redis.call("PING") == b"PONG")
        return False

    def redis(self, state: PartState, deadline: float | None = None) -> RedisClient:
        """A connection to Redis with the home's rights."""
        password = state.password("redis", HOME_NUMBER)
        return RedisClient(self.socket("redis"), names_server.HOME_USER, password, deadline or self.deadline)

    def _net(self, state: PartState) -> LoopbackNet:
        return LoopbackNet(_HOME_NET + state.port, state.port)

    def mark(self, name: str) -> Path:
        """A daemon's configuration, which is what it is found by."""
        return self.folder / ("redis.conf" if name == "redis" else f"{name}.json")

    @property
    def users(self) -> Path:
        """Redis's users."""
        return self.folder / "redis.users"

    @property
    def run_folder(self) -> Path:
        """A short path: a root's may be longer than a socket's name can be. Two parts may lie on one server."""
        return Path("/run/forebay-files") / f"{self.reservation}.{self.part}"

    def socket(self, name: str) -> Path:
        """What a daemon listens at."""
        return self.run_folder / name

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Returns when the condition holds; StorageError, naming what does not answer, at the deadline."""
        while not condition():
            if time.monotonic() > self.deadline:
                raise StorageError(f"{what} does not answer in time", str(self.folder))
            time.sleep(_POLL_SECONDS)
