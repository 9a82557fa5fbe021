# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.workflows.files.juicefs.gate CONFIGURATION``: the one open port of a part.

It asks for a node's permit, then passes bytes on to the blocks, and at the home to Redis, which listen at sockets of
root's. Who has a permit, the part's state says at that moment. ``end N`` at the control socket ends the connections of
node N, for good, and is answered when nothing works for them any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path

from forebay.errors import ForebayError, NotFoundError, ProtocolError
from forebay.workflows.files.juicefs.door import GREETING_SECONDS_MAX, listen_for_ever, listener, lively
from forebay.workflows.files.juicefs.part_state import HOME_NUMBER, permit_in
from forebay.workflows.files.juicefs.permit_proof import Target, let_pass, prove_as_gate
from forebay.workflows.files.juicefs.relay import Relay, allow_many_connections

__all__ = ["Gate", "ask_gate"]

_REQUEST_BYTES_MAX = 64
_ENDS_SECONDS_MAX = 600.0


class Gate:
    """Of one part.

    Parameters
    ----------
    state : Path
        The part's state, which is replaced as a whole.
    targets, targets_for_home : dict
        The sockets behind it. The home has some of its own.
    """

    def __init__(
        self, part: int, state: Path, targets: dict[Target, Path], targets_for_home: dict[Target, Path]
    ) -> None:
        self._part = part
        self._state = state
        self._targets = targets
        self._targets_for_home = targets | targets_for_home
        self._relay = Relay()

    def greet(self, connection: socket.socket) -> None:
        """Lets a node in that has a permit, to what it asks for."""
        lively(connection)
        deadline = time.monotonic() + GREETING_SECONDS_MAX
        number, target = prove_as_gate(connection, self._part, self._permit_of, deadline)
        targets = self._targets_for_home if number == HOME_NUMBER else self._targets
        if target not in targets:
            raise ProtocolError(f"there is no {target.name.lower()} at this part", str(number))
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            far.settimeout(GREETING_SECONDS_MAX)
            far.connect(str(targets[target]))
            let_pass(connection, deadline)
        except (OSError, ForebayError):
            far.close()
            raise
        # Its permit may have been taken since: the relay knows.
        self._relay.add(connection, far, number)

    def answer(self, connection: socket.socket) -> None:
        """A request at the control socket."""
        with connection:
            connection.settimeout(GREETING_SECONDS_MAX)
            words = connection.recv(_REQUEST_BYTES_MAX).split()
            if words == [b"here"]:
                connection.sendall(b"here\n")
            elif len(words) == 2 and words[0] == b"end" and words[1].isdigit():
                self._relay.end(int(words[1]), time.monotonic() + _ENDS_SECONDS_MAX)
                connection.sendall(b"ended\n")

    def _permit_of(self, number: int) -> bytes | None:
        with contextlib.suppress(NotFoundError):
            return permit_in(self._state, number)
        return None


def ask_gate(control: Path, request: str, deadline: float) -> bool:
    """Asks the gate at its control socket; whether it has done what it was asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            connection.connect(str(control))
            connection.sendall(request.encode())
            return bool(connection.recv(_REQUEST_BYTES_MAX))
        except OSError:
            return False


def main() -> int:
    """Runs until it is killed. The configuration: part, address, port, state, and the sockets blocks, blocks_for_home,
    redis (null without) and control.
    """
    os.umask(0o077)
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    allow_many_connections()
    targets = {Target.BLOCKS: Path(settings["blocks"])}
    if settings["redis"]:
        targets[Target.REDIS] = Path(settings["redis"])
    targets_for_home = {Target.BLOCKS: Path(settings["blocks_for_home"])}
    gate = Gate(settings["part"], Path(settings["state"]), targets, targets_for_home)
    control = Path(settings["control"])
    control.unlink(missing_ok=True)
    inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    open_port = listener(settings["address"], settings["port"], reserved_alone=True)
    inside.bind(str(control))
    inside.listen()
    listen_for_ever({open_port: gate.greet, inside: gate.answer})
    return 0


if __name__ == "__main__":
    sys.exit(main())
