# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.workflows.files.juicefs.forwarder CONFIGURATION``: listens on the node's loopback, where juicefs
looks for Redis and the parts, and shows the node's permit to the gates. It passes on what root says, and nobody else.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError
from forebay.workflows.files.juicefs.door import GREETING_SECONDS_MAX, connected, listen_for_ever, listener, lively
from forebay.workflows.files.juicefs.engine_commands import LoopbackNet
from forebay.workflows.files.juicefs.loopback_peer import check_told, is_from_us
from forebay.workflows.files.juicefs.part_state import HOME_PART
from forebay.workflows.files.juicefs.permit_proof import Target, prove_as_node
from forebay.workflows.files.juicefs.relay import Relay, allow_many_connections

__all__ = ["Forwarder", "listens", "ways_of"]

#: All pairs are this node's.
_OWNER = 0


class Forwarder:
    """Of one reservation on one node."""

    def __init__(self, number: int, permit: bytes) -> None:
        self._number = number
        self._permit = permit
        self._relay = Relay()

    def forward(self, part: int, target: Target, address: str, port: int, connection: socket.socket) -> None:
        """Passes bytes between this connection and a part's gate."""
        lively(connection)
        deadline = time.monotonic() + GREETING_SECONDS_MAX
        far = connected(address, port, GREETING_SECONDS_MAX)
        try:
            prove_as_node(far, part, target, self._number, self._permit, deadline)
        except (OSError, ForebayError):
            far.close()
            raise
        self._relay.add(connection, far, _OWNER)


def ways_of(net: LoopbackNet, parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a forwarder listens at, and which gate is behind that."""
    ways = [(net.part(part), part, Target.BLOCKS, gate) for part, gate in enumerate(parts)]
    ways.append((net.redis, HOME_PART, Target.REDIS, parts[HOME_PART]))
    return [
        {
            "address": address,
            "port": net.port,
            "part": part,
            "target": int(target),
            "gate_address": gate["address"],
            "gate_port": gate["port"],
        }
        for address, part, target, gate in ways
    ]


def listens(net: LoopbackNet) -> bool:
    """A forwarder does, at this network."""
    try:
        socket.create_connection((net.redis, net.port), 1.0).close()
    except OSError:
        return False
    return True


def main() -> int:
    """Runs until it is killed. The configuration: number, permit (hexadecimal), and ways: objects with the address and
    port that juicefs looks for, part, target, and the gate's address and port.
    """
    os.umask(0o077)
    settings: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    allow_many_connections()
    forwarder = Forwarder(settings["number"], bytes.fromhex(settings["permit"]))
    greeters = {
        listener(way["address"], way["port"]): partial(
            forwarder.forward, way["part"], Target(way["target"]), way["gate_address"], way["gate_port"]
        )
        for way in settings["ways"]
    }
    check_told()
    listen_for_ever(greeters, is_from_us)
    return 0


if __name__ == "__main__":
    sys.exit(main())
