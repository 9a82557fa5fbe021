# SPDX-License-Identifier: Apache-2.0
"""Permits, and who passes bytes: proofs that are wrong, replayed or late, and connections that are ended for good."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import (
    DeadlineExceededError,
    DisconnectedError,
    ForebayError,
    PermissionDeniedError,
    ProtocolError,
)
from forebay.workflows.files.juicefs import relay as relay_module
from forebay.workflows.files.juicefs.door import listener
from forebay.workflows.files.juicefs.forwarder import Forwarder
from forebay.workflows.files.juicefs.gate import Gate
from forebay.workflows.files.juicefs.part_state import HOME_NUMBER, PART_STATE, Node, PartState, permit_in
from forebay.workflows.files.juicefs.permit_proof import Target, derived, let_pass, prove_as_gate, prove_as_node
from forebay.workflows.files.juicefs.relay import Relay
from tests.slurm.cluster import wait_for
from tests.support.randomness import TEST_SEED
from tests.support.time_limits import seconds

_KEY = "0123456789abcdef" * 2
_PERMITS = {number: derived(bytes.fromhex(_KEY), "permit", number) for number in (7, 8)}


def soon() -> float:
    return time.monotonic() + seconds(20)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


# --- The proof


def gate_side(connection: socket.socket, part: int = 3) -> tuple[int, Target]:
    with contextlib.closing(connection):
        admitted = prove_as_gate(connection, part, _PERMITS.get, soon())
        let_pass(connection, soon())
        return admitted


def test_a_node_with_a_permit_is_let_in(pair: Any, thread: ThreadPoolExecutor) -> None:
    admitted = thread.submit(gate_side, pair[1])
    prove_as_node(pair[0], 3, Target.REDIS, 7, _PERMITS[7], soon())
    assert admitted.result() == (7, Target.REDIS)


@pytest.mark.parametrize(
    ("number", "permit"),
    [(7, _PERMITS[8]), (8, _PERMITS[7]), (9, _PERMITS[7]), (7, bytes(32))],
    ids=["another's permit", "another's number", "a number that nobody has", "zeros"],
)
def test_a_node_finds_out_that_a_gate_does_not_know_it(
    pair: Any, thread: ThreadPoolExecutor, number: int, permit: bytes
) -> None:
    admitted = thread.submit(gate_side, pair[1])
    with pytest.raises(PermissionDeniedError):
        prove_as_node(pair[0], 3, Target.BLOCKS, number, permit, soon())
    pair[0].close()
    with pytest.raises((PermissionDeniedError, DisconnectedError)):
        admitted.result()


def test_a_node_of_another_part_is_sent_away(pair: Any, thread: ThreadPoolExecutor) -> None:
    admitted = thread.submit(gate_side, pair[1])
    with pytest.raises(PermissionDeniedError, match="does not let this node in"):
        prove_as_node(pair[0], 4, Target.BLOCKS, 7, _PERMITS[7], soon())
    with pytest.raises(ProtocolError, match="another part"):
        admitted.result()


def test_what_was_recorded_lets_nobody_in(thread: ThreadPoolExecutor) -> None:
    """The whole of what a node has said, said again; and the gate's own proof sent back."""
    said: list[bytes] = []

    class Recorded(socket.socket):
        def sendall(self, text: Any, *flags: int) -> None:
            said.append(bytes(text))
            super().sendall(text, *flags)

    left, right = socket.socketpair()
    with Recorded(fileno=left.detach()) as node:
        admitted = thread.submit(gate_side, right)
        prove_as_node(node, 3, Target.BLOCKS, 7, _PERMITS[7], soon())
        assert admitted.result()[0] == 7
    for reflected in (False, True):
        left, right = socket.socketpair()
        with left:
            admitted = thread.submit(gate_side, right)
            left.sendall(said[0])
            answer = left.recv(48, socket.MSG_WAITALL)
            left.sendall(answer[16:] if reflected else said[1])
            assert left.recv(1) == b""
            with pytest.raises(PermissionDeniedError):
                admitted.result()


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1\r\nHost: blocks\r\n\r\n", b"FBGT\2" + bytes(27), b"FBGT\1"])
def test_what_is_no_greeting_is_refused(pair: Any, thread: ThreadPoolExecutor, text: bytes) -> None:
    admitted = thread.submit(gate_side, pair[1])
    pair[0].sendall(text)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises((ProtocolError, DisconnectedError)):
        admitted.result()


def test_a_peer_that_says_nothing_is_given_up(pair: Any) -> None:
    with pytest.raises(DeadlineExceededError):
        prove_as_gate(pair[0], 0, _PERMITS.get, time.monotonic() + 0.01)
    with pytest.raises(DeadlineExceededError):
        prove_as_node(pair[1], 0, Target.BLOCKS, 7, _PERMITS[7], time.monotonic() + 0.01)


# --- The relay


class Ends:
    """A pair in a relay, as the owner and as the server see it."""

    def __init__(self, relay: Relay, owner: int) -> None:
        self.near, near = socket.socketpair()
        self.far, far = socket.socketpair()
        for each in (self.near, self.far):
            each.settimeout(seconds(20))
        self.added = relay.add(near, far, owner)


def everything(connection: socket.socket) -> bytes:
    read = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            read += piece
    return read


def test_bytes_pass_both_ways_whole_and_in_order(thread: ThreadPoolExecutor) -> None:
    ends = Ends(Relay(), 1)
    source = random.Random(TEST_SEED)
    there, back = source.randbytes(9 << 20), source.randbytes(7 << 20)

    def send(connection: socket.socket, text: bytes) -> None:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)

    # The near side ends first; what the far side says after that still arrives.
    thread.submit(send, ends.near, there)
    assert everything(ends.far) == there
    thread.submit(send, ends.far, back)
    assert everything(ends.near) == back


def say_and_end(connection: socket.socket, text: bytes) -> None:
    with connection:
        connection.sendall(text)


def test_a_far_side_that_ends_at_once_is_heard_to_its_end(thread: ThreadPoolExecutor) -> None:
    text = b"x" * (3 << 20)
    for _ in range(20):
        ends = Ends(Relay(), 1)
        sent = thread.submit(say_and_end, ends.far, text)
        assert everything(ends.near) == text
        sent.result()


def test_the_end_of_an_owner_is_over_when_nobody_works_for_it(thread: ThreadPoolExecutor) -> None:
    relay = Relay()
    ends, other = Ends(relay, 7), Ends(relay, 8)
    ends.near.sendall(b"write")
    assert ends.far.recv(5) == b"write"
    # Its server has the request, and is at it.
    ended = thread.submit(relay.end, 7, soon())
    assert everything(ends.near) == b""
    assert everything(ends.far) == b""  # the server learns that nothing more comes
    assert not ended.done()
    with contextlib.suppress(OSError):
        ends.far.sendall(b"written")
    assert not ended.done()
    ends.far.close()
    ended.result()
    assert relay.count(7) == 0
    # For good, and for it alone.
    late = Ends(relay, 7)
    assert not late.added
    assert everything(late.near) == b""
    other.near.sendall(b"on")
    assert other.far.recv(2) == b"on"


def test_an_end_that_is_not_reached_in_time_says_so_and_is_repeated() -> None:
    relay = Relay()
    ends = Ends(relay, 7)
    with pytest.raises(DeadlineExceededError):
        relay.end(7, time.monotonic() + 0.01)
    ends.far.close()
    relay.end(7, soon())


def test_an_owner_that_takes_nothing_is_ended_as_others_are(thread: ThreadPoolExecutor) -> None:
    relay = Relay()
    ends = Ends(relay, 7)
    sent = thread.submit(ends.far.sendall, bytes(64 << 20))
    wait_for(lambda: any(side.waiting for side in list(relay._sides.values())), "the near side to be full")
    ended = thread.submit(relay.end, 7, soon())
    sent.result()  # what it sends is read, and dropped
    ends.far.close()
    ended.result()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname(), seconds(20))
        return there, listener.accept()[0]


def test_bytes_pass_over_a_network_also_out_of_band(thread: ThreadPoolExecutor) -> None:
    (near, left), (right, far) = tcp_pair(), socket.socketpair()
    far.settimeout(seconds(20))
    assert Relay().add(left, right, 1)
    text = random.Random(TEST_SEED).randbytes(5 << 20)

    def send() -> None:
        near.sendall(text)
        near.send(b"!", socket.MSG_OOB)  # which may count as a part of the stream
        say_and_end(near, text[::-1])

    sent = thread.submit(send)
    assert everything(far) in (text + text[::-1], text + b"!" + text[::-1])
    sent.result()
    far.close()


def test_a_pair_ends_alone_where_no_descriptors_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = Relay()
    full, other = Ends(relay, 7), Ends(relay, 8)

    class NoPipe:
        def __init__(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(relay_module, "_Pipe", NoPipe)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        full.far.sendall(bytes(64 << 20))  # the near side does not take it
    full.far.close()
    wait_for(lambda: relay.count(7) == 0, "its end")
    other.near.sendall(b"on")
    assert other.far.recv(2) == b"on"


def test_pairs_that_are_over_are_forgotten() -> None:
    relay = Relay()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        ends = Ends(relay, number % 5)
        ends.near.close()
        assert everything(ends.far) == b""
        ends.far.close()
    for owner in range(5):
        relay.end(owner, soon())
    last = Ends(relay, 99)  # when it is served, all before it are closed
    last.near.sendall(b"x")
    assert last.far.recv(1) == b"x"
    last.near.close()
    last.far.close()
    assert len(os.listdir("/proc/self/fd")) < before + 20


# --- Gate and forwarder


@pytest.fixture
def state(tmp_path: Path) -> PartState:
    nodes = {"n1": Node(7), "n2": Node(8, fenced=True)}
    made = PartState("id", 1, 3, 4, "/tree", "uuid", "127.0.0.1", 700, _KEY, 1 << 30, nodes=nodes)
    PART_STATE.write(tmp_path, made)
    return made


def test_permits_are_what_the_state_says(state: PartState, tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert path.stat().st_mode & 0o777 == 0o600
    assert permit_in(path, 7) == _PERMITS[7]
    assert permit_in(path, 8) is permit_in(path, 9) is None
    assert permit_in(path, HOME_NUMBER) is not None
    uses = {state.secret(use, number) for use in ("permit", "redis", "blocks") for number in range(9)}
    assert len(uses) == 27


class Passage:
    """A forwarder, a gate and what is behind it, in this process."""

    def __init__(self, folder: Path, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self.behind = socket.socket(socket.AF_UNIX)
        self.behind.bind(str(folder / "blocks"))
        self.behind.listen()
        self.behind.settimeout(seconds(20))
        self.gate = Gate(3, folder / "state", {Target.BLOCKS: folder / "blocks"}, {})
        self.door = listener("127.0.0.1", 0)

    def come(self, number: int, permit: bytes, target: Target = Target.BLOCKS) -> tuple[socket.socket, Future[None]]:
        """A program on a node connects: its side, and what becomes of the forwarder's attempt."""
        port = self.door.getsockname()[1]
        program, local = socket.socketpair()
        program.settimeout(seconds(20))

        def greet() -> None:
            connection, _ = self.door.accept()
            try:
                self.gate.greet(connection)
            except (ForebayError, OSError):
                connection.close()

        self._threads.submit(greet)
        forwarder = Forwarder(number, permit)
        return program, self._threads.submit(forwarder.forward, 3, target, "127.0.0.1", port, local)


@pytest.fixture
def passage(
    state: PartState, tmp_path: Path, thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Passage]:
    # A pair of sockets has no options of TCP.
    monkeypatch.setattr("forebay.workflows.files.juicefs.forwarder.lively", lambda _: None)
    if os.geteuid() != 0:
        ordinary = lambda address, port, seconds_max: socket.create_connection((address, port), seconds_max)  # noqa: E731
        monkeypatch.setattr("forebay.workflows.files.juicefs.forwarder.connected", ordinary)
    made = Passage(tmp_path, thread)
    with made.behind, made.door:
        yield made


def test_a_listed_node_reaches_what_is_behind_the_gate(passage: Passage) -> None:
    program, forwarded = passage.come(7, _PERMITS[7])
    behind, _ = passage.behind.accept()
    forwarded.result()
    program.sendall(b"put")
    assert behind.recv(3) == b"put"
    behind.sendall(b"done")
    assert program.recv(4) == b"done"
    program.close()
    assert everything(behind) == b""
    behind.close()


@pytest.mark.parametrize("number", [8, 9], ids=["fenced", "never admitted"])
def test_others_do_not(passage: Passage, number: int) -> None:
    permit = derived(bytes.fromhex(_KEY), "permit", number)
    program, forwarded = passage.come(number, permit)
    with pytest.raises(PermissionDeniedError):
        forwarded.result()
    program.close()


def test_a_part_without_redis_says_so(passage: Passage) -> None:
    program, forwarded = passage.come(7, _PERMITS[7], Target.REDIS)
    with pytest.raises(PermissionDeniedError):
        forwarded.result()
    program.close()


def test_a_fence_ends_a_connection_that_was_let_in_before_it(
    passage: Passage, state: PartState, tmp_path: Path, thread: ThreadPoolExecutor
) -> None:
    """Also one whose permit was looked up before the state said that the node is fenced."""
    program, forwarded = passage.come(7, _PERMITS[7])
    behind, _ = passage.behind.accept()
    forwarded.result()
    # Until the gate keeps the connection; the first byte shows that it does.
    program.sendall(b"x")
    assert behind.recv(1) == b"x"
    asked, answering = socket.socketpair()
    asked.settimeout(seconds(20))
    asked.sendall(b"end 7\n")
    answered = thread.submit(passage.gate.answer, answering)
    assert everything(behind) == b""
    assert not answered.done()
    behind.close()
    answered.result()
    assert asked.recv(16) == b"ended\n"
    assert everything(program) == b""
    # The state still lists it, as an old copy would: it is ended for good.
    program, forwarded = passage.come(7, _PERMITS[7])
    behind, _ = passage.behind.accept()
    assert everything(behind) == b""
    assert everything(program) == b""
