# SPDX-License-Identifier: Apache-2.0
"""Three nodes on one machine: network namespaces of a server, a producer and a consumer, and programs on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from forebay.workflows.cluster.network import Network, why_not
from tests.support.processes import TalkingProcess
from tests.support.time_limits import seconds

__all__ = ["PORT", "Nodes", "RemoteProgram", "why_not"]

PORT = 7460
_COMMAND_SECONDS_MAX = seconds(30)
_NUMBERS = {"server": 1, "producer": 2, "consumer": 3}


class NodesByName(Protocol):
    """Nodes that programs are started on."""

    def prefix_of(self, kind: str) -> tuple[str, ...]:
        """What runs a command on this node."""


class Nodes(Network):
    """The nodes of a cluster, by what runs on them."""

    def __init__(self, label: str, rate: str | None = None) -> None:
        super().__init__(f"fby{label}", len(_NUMBERS), rate)

    def prefix_of(self, kind: str) -> tuple[str, ...]:
        """What runs a command on this node."""
        return self.prefix(_NUMBERS[kind])

    def cut_off(self, kind: str) -> None:
        """The link of this node carries nothing any more."""
        self.cut(_NUMBERS[kind])

    def bring_back(self, kind: str) -> None:
        """The link is back."""
        self.heal(_NUMBERS[kind])

    def received_bytes(self, kind: str) -> int:
        """What has come over the link of this node."""
        counter = "/sys/class/net/eth0/statistics/rx_bytes"
        return int(subprocess.check_output([*self.prefix_of(kind), "cat", counter], timeout=_COMMAND_SECONDS_MAX))

    @property
    def server(self) -> str:
        """The server's address as the other nodes see it."""
        return f"{self.address(_NUMBERS['server'])}:{PORT}"


class RemoteProgram(TalkingProcess):
    """A Python program on a node, which finds nothing local: neither root nor socket."""

    def __init__(
        self, nodes: NodesByName, kind: str, program: Path, *arguments: str, token: Path | None, **environment: str
    ) -> None:
        self.kind = kind
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        kept = {name: os.environ[name] for name in ("FOREBAY_BUILD_DIR",) if name in os.environ}
        named = {"FOREBAY_ROOT": "/nonexistent", **environment}
        if token is not None:
            named["FOREBAY_TOKEN_FILE"] = str(token)
        super().__init__(
            [*nodes.prefix_of(kind), sys.executable, "-X", "faulthandler", "-u", str(program), *arguments],
            called=f"the {kind}",
            env={**inherited, **kept, **named},
        )
