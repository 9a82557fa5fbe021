# SPDX-License-Identifier: Apache-2.0
"""Doors of drivers for nodes: ordinary users do not reach them, however many connections they make."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - a child that is another user may not be able to read it
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from forebay.workflows.files.juicefs.door import connected, listen_for_ever, listener
from forebay.workflows.files.juicefs.loopback_peer import check_told, is_from_us
from forebay.workflows.files.reserved_ports import serve_reserved_alone_by
from tests.support.other_user import as_user
from tests.support.time_limits import seconds

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has ports below 1024, and can act as other users")

_STRANGER = 1_900_000_007
#: Listens, says where, accepts all that come, and says what it reads of each.
_ACCEPTING = """
import socket, threading
door = socket.create_server((ADDRESS, 0), family=FAMILY)
print(door.getsockname()[1], flush=True)
kept = []
def read(connection):
    while text := connection.recv(100):
        connection.sendall(text)
    connection.close()
while True:
    kept.append(door.accept()[0])
    threading.Thread(target=read, args=(kept[-1],), daemon=True).start()
"""


def knock(address: str, port: int, seconds_max: float) -> bool:
    """An ordinary user's connection is made."""
    try:
        socket.create_connection((address, port), seconds_max).close()
    except TimeoutError:
        return False
    return True


@pytest.fixture(params=["127.0.0.1", "::1"])
def address(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_gate_does_not_hear_of_ordinary_users(address: str) -> None:
    with listener(address, 0, reserved_alone=True) as door:
        port = door.getsockname()[1]
        assert as_user(_STRANGER, lambda: knock(address, port, 0.5)) is False
        with connected(address, port, seconds(20)) as node:
            accepted, place = door.accept()
            with accepted:
                assert place[1] < 1024
                node.sendall(b"hello")
                assert accepted.recv(5) == b"hello"
        door.setblocking(False)
        with pytest.raises(BlockingIOError):
            door.accept()


def test_many_connections_of_one_node_to_several_gates_find_ports() -> None:
    with listener("127.0.0.1", 0, reserved_alone=True) as one, listener("127.0.0.2", 0, reserved_alone=True) as other:
        places = [(f"127.0.0.{number}", door.getsockname()[1]) for number, door in ((1, one), (2, other))]
        made = [connected(address, port, seconds(20)) for address, port in places for _ in range(300)]
        assert len({each.getsockname()[1] for each in made}) > 300
        for each in made:
            each.close()


@pytest.fixture
def accepting(address: str) -> Iterator[tuple[int, int]]:
    """A process that listens, as an NFS server does: its pid and port."""
    family = "socket.AF_INET6" if ":" in address else "socket.AF_INET"
    program = _ACCEPTING.replace("ADDRESS", repr(address)).replace("FAMILY", family)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        yield process.pid, int(process.stdout.readline())
        process.kill()
        process.wait()


def test_a_server_of_another_make_is_closed_to_ordinary_users_too(address: str, accepting: tuple[int, int]) -> None:
    """Also those who were there before."""
    pid, port = accepting
    with socket.create_connection((address, port), seconds(20)) as stranger, connected(address, port, 20.0) as node:
        for each in (stranger, node):
            each.sendall(b"x")
            assert each.recv(1) == b"x"
        serve_reserved_alone_by(pid, time.monotonic() + seconds(20))
        assert stranger.recv(1) == b""
        node.sendall(b"y")
        assert node.recv(1) == b"y"
    assert as_user(_STRANGER, lambda: knock(address, port, 0.5)) is False
    serve_reserved_alone_by(pid, time.monotonic() + seconds(20))
    with connected(address, port, seconds(20)) as node:
        node.sendall(b"z")
        assert node.recv(1) == b"z"


def crowd(port: int, count: int) -> int:
    """How many of an ordinary user's connections are ended, of so many that say nothing."""
    made = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(count)]
    return sum(connection.recv(1) == b"" for connection in made)


def test_a_forwarder_passes_on_nothing_of_ordinary_users() -> None:
    check_told()
    held: list[socket.socket] = []
    greeted = threading.Semaphore(0)

    def keep(connection: socket.socket) -> None:
        held.append(connection)
        greeted.release()

    door = listener("127.0.0.1", 0)
    port = door.getsockname()[1]
    threading.Thread(target=listen_for_ever, args=({door: keep}, is_from_us), daemon=True).start()
    assert as_user(_STRANGER, lambda: crowd(port, 700)) == 700  # more than may be greeted at once
    with socket.create_connection(("127.0.0.1", port), seconds(20)) as own:
        assert greeted.acquire(timeout=seconds(20))
        assert [each.getpeername() for each in held] == [own.getsockname()]
    held[0].close()


def test_a_connection_that_was_left_is_nobodys() -> None:
    """The kernel says that its socket is root's."""

    def leave(port: int) -> None:
        socket.create_connection(("127.0.0.1", port), 60).close()

    with listener("127.0.0.1", 0) as door:
        port = door.getsockname()[1]
        as_user(_STRANGER, lambda: leave(port))
        accepted, _ = door.accept()
        with accepted:
            assert not is_from_us(accepted)
