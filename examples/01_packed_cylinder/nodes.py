# SPDX-License-Identifier: Apache-2.0
"""The demo on several nodes. Either on three: server, producer and consumers each on its own, and the consumers' is cut
off meanwhile. Or on five: three servers, which have the reservation together, and one of them is killed meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from cast import RESERVATION, Cast
from course import Pause
from instance import Instance
from programs import DemoError, Program, processes_of_instance, wait_for_end
from show import Show

#: The node whose server is asked.
SERVER = 1
#: For how many steps a node is away.
_AWAY_STEPS = 3


class NodeInstance(Instance):
    """The instance of the server's node. A context manager: the whole cluster goes with it."""

    producer, consumers = 2, 3
    _cluster_options: tuple[str, ...] = ()

    def __init__(self, folder: Path, capacity: str = "1GiB") -> None:
        """``capacity``: of each server, which one of them has to have for all of the reservation."""
        super().__init__(folder / f"node{SERVER}" / "root")
        self._folder = folder
        self._capacity = capacity
        self._server = ""
        self.environment["FOREBAY_CLUSTER"] = str(folder)
        #: As root each node has a network of its own. Else they share this machine's, and nothing can be cut off.
        self.has_links = os.geteuid() == 0 and shutil.which("ip") is not None

    def up(self) -> None:
        """Makes the nodes, each with its instance."""
        options = [*self._cluster_options, "--capacity", self._capacity, *(["--netns"] if self.has_links else [])]
        made: dict[str, Any] = json.loads(self.run("cluster", "up", "--nodes", str(self.consumers), *options, "--json"))
        self._server = made["nodes"][SERVER - 1]["server"]

    def create_token(self, rights: str) -> dict[str, str]:
        """The environment of a program on another node, which may do this and nothing else."""
        file = self._folder.parent / "work" / f"{rights}.token"
        self.run("token", "create", RESERVATION, "--rights", rights, "--output", str(file))
        return {"FOREBAY_SERVER": self._server, "FOREBAY_TOKEN_FILE": str(file)}

    def on(self, node: int, command: list[str]) -> list[str]:
        """What runs this command on a node."""
        return [self.command, "cluster", "exec", str(node), "--", *command]

    def down(self) -> list[int]:
        """Removes the nodes; returns the processes that are left, of which there should be none."""
        roots = [self._folder / f"node{node}" / "root" for node in range(SERVER, self.consumers + 1)]
        serving = [pid for root in roots for pid in processes_of_instance(root)]
        self.run("cluster", "down")
        return wait_for_end(serving, 5)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (self._folder / "cluster.json").exists():
            self._run("cluster", "down")


class PoolInstance(NodeInstance):
    """Nodes 1 to 3 are one pool of servers. Its commands run on the first of them."""

    producer, consumers = 4, 5
    create_options = ("--servers", "3")
    _cluster_options = ("--servers", "3")
    #: A server that is not the reservation's home.
    victim = 3

    def up(self) -> None:
        if not self.has_links:
            raise DemoError("several servers need root and the command ip: each node has a network of its own")
        super().up()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "cluster":
            return super()._run(*arguments)
        return super()._run("cluster", "exec", str(SERVER), "--", self.command, *arguments)


class NodeCast(Cast):
    """Ranks and consumers run on nodes of their own. They know of the server its address, and have a token."""

    _instance: NodeInstance

    def create_reservation(self) -> None:
        """Makes the tokens as well."""
        super().create_reservation()
        self._reading = self._instance.create_token("read")
        self._writing = self._instance.create_token("write")

    def _start_consumer(self, name: str, command: list[str]) -> Program:
        environment = self._instance.environment | self._reading
        return self._programs.start(name, self._instance.on(self._instance.consumers, command), environment)

    def _start_rank(self, name: str, command: list[str], environment: dict[str, str]) -> Program:
        environment = self._instance.environment | environment | self._writing
        return self._programs.start(name, self._instance.on(self._instance.producer, command), environment)


class NodeShow(Show):
    """In the middle the consumers' node is cut off, and healed."""

    _instance: NodeInstance

    def _choose_acts(self) -> tuple[Iterator[None], ...]:
        return (self._cut(),)

    def _cut(self) -> Iterator[None]:
        while self._committed < self._plan.rank_killed_at:
            yield
        cut = Pause(self._committed)
        self._cut_off()
        while self._committed < cut.at_step + _AWAY_STEPS:
            yield
        self._heal()
        cut.steps = self._committed - cut.at_step
        self.course.cut = cut
        self._screen.tell(f"node {self._instance.consumers} is back, after {cut.steps} steps")
        self._kills_shown = True

    def _cut_off(self) -> None:
        if self._instance.has_links:
            self._instance.run("cluster", "cut", str(self._instance.consumers))
            self._screen.tell(
                f"node {self._instance.consumers}, with rendering, is cut off; the simulation does not wait for it"
            )
            return
        if self._cast.renderer is None:
            raise DemoError("rendering was never started")
        self._cast.renderer.pause()
        self._screen.tell("without root no link can be cut: rendering is paused instead")

    def _heal(self) -> None:
        if self._instance.has_links:
            self._instance.run("cluster", "heal", str(self._instance.consumers))
        elif self._cast.renderer is not None:
            self._cast.renderer.go_on()


class PoolShow(Show):
    """In the middle a server is killed that has a part of the reservation, and started again."""

    _instance: PoolInstance

    def _choose_acts(self) -> tuple[Iterator[None], ...]:
        return (self._kill(),)

    def _newest(self) -> int:
        """The newest step. A follower may have to wait for one before it, until the server is back."""
        return -1 if self._info.committed is None else self._info.committed

    def _kill(self) -> Iterator[None]:
        while self._newest() < self._plan.rank_killed_at:
            yield
        node = str(self._instance.victim)
        away = Pause(self._newest())
        self._instance.run("cluster", "kill", node)
        self._screen.tell(f"the server of node {node} is killed; the simulation goes on with the others")
        while self._newest() < away.at_step + _AWAY_STEPS:
            yield
        self._instance.run("cluster", "heal", node)
        away.steps = self._newest() - away.at_step
        self.course.away = away
        self._screen.tell(f"node {node} is back, after {away.steps} steps")
        self._kills_shown = True
