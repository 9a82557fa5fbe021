# SPDX-License-Identifier: Apache-2.0
"""What a user takes of the server's doors is no other user's loss: connections, memory, turns, consumers."""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import Admin, NoSpaceError, Rights, StreamNotFoundError, _core
from tests.fault.instance import Instance
from tests.support.instance import CommandLineInstance
from tests.support.ports import free_ports
from tests.support.raw_client import HELLO, RawClient, header, recorded, recorded_of
from tests.support.staging_server import StagingServer, StartError
from tests.support.time_limits import seconds
from tests.support.users import User, Users

Tell = Callable[[Any], None]
MIB = 1 << 20


def peak_bytes(pid: int) -> int:
    """The most memory that the process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def test_unfinished_messages_of_who_has_said_nothing_take_no_memory(users: Users, server: Instance) -> None:
    eve = users("eve")
    before, socket = peak_bytes(server.pid), server.socket()

    def attack() -> int:
        message = header(HELLO, 64 * MIB) + bytes(8 * MIB)
        clients = [RawClient(socket) for _ in range(40)]
        return sum(client.send(message) for client in clients)

    eve.call(attack)
    assert peak_bytes(server.pid) - before < 64 * MIB


def test_unfinished_messages_of_one_user_are_bounded(users: Users, server: Instance) -> None:
    eve, bob = users("eve"), users("bob")
    socket = server.socket()
    hello = recorded(socket, lambda admin: admin.reservations())[0]
    before = peak_bytes(server.pid)

    def attack(tell: Tell) -> None:
        # Each nearly the longest message that there may be.
        clients = [RawClient(socket) for _ in range(170)]
        tell(sum(client.send(hello + header(HELLO, 4 * MIB) + bytes(4 * MIB - 1)) for client in clients))
        tell([client.ended() for client in clients[-1:]])

    with eve.child(attack) as attacker:
        attacker.next()
        assert peak_bytes(server.pid) - before < 600 * MIB
        assert bob.call(lambda: Admin(socket).reservations()) == []


def test_libfabric_is_offered_only_where_all_of_the_network_are_trusted(place: Path) -> None:
    """It takes connections of anybody, and what they send for right: one frame ends the process (libfabric 1.17)."""
    (port,) = free_ports(1)
    offered = ("--listen", f"127.0.0.1:{port}", "--fabric", "tcp")
    with pytest.raises(StartError, match="trusts whoever reaches the ports"):
        StagingServer(place / "root", options=offered).start()
    trusting = StagingServer(place / "root", options=(*offered, "--fabric-peers", "trusted"))
    with trusting, Admin(trusting.root, server="") as admin:
        (said,) = (finding for finding in admin.audit() if "libfabric" in finding.what)
        assert said.severity == "note"


@pytest.fixture
def small_server(place: Path, users: Users) -> Iterator[Instance]:
    """A server that may have few files open."""
    root = place / "small"
    root.mkdir(mode=0o711)
    with Instance(root, capacity="512MiB", flush_interval_ms=20, prefix=("prlimit", "--nofile=700:700")) as running:
        yield running


def test_who_takes_all_connections_keeps_nobody_out_and_ends_no_stream(users: Users, small_server: Instance) -> None:
    eve, bob, ada = users("eve"), users("bob"), users("ada")
    small_server.create("bobs", "64MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    socket = small_server.socket()
    hello = recorded(socket, lambda admin: admin.reservations())[0]

    def write(tell: Tell) -> None:
        with forebay.open("bobs/flow", "w", instance=socket, rank=0, ranks=1, durability="durable") as stream:
            for number in range(20):
                with stream.step() as step:
                    step["T"] = np.full(1000, number)
                tell(number)
                if number == 4:
                    os.read(go_on, 1)

    def attack(tell: Tell) -> None:
        clients, let_in = [], 0
        for _ in range(900):
            try:
                client = RawClient(socket)
            except OSError:
                break
            clients.append(client)
            client.send(hello)
            let_in += len(client.answers(1))
        tell(len(clients))
        tell(let_in)
        os.read(stay, 1)

    go_on, let_go_on = os.pipe()
    stay, let_go = os.pipe()
    with bob.child(write) as writer, eve.child(attack) as attacker:
        for _ in range(5):
            writer.next()
        assert attacker.next() == 900
        os.write(let_go_on, b"x")
        for number in range(5, 20):
            assert writer.next() == number
        assert ada.call(lambda: Admin(socket).reservations()) == []
        os.write(let_go, b"x")
    with small_server.admin() as admin:
        assert admin.stream("bobs/flow").status == forebay.StreamStatus.ENDED
        assert admin.stream("bobs/flow").durable == 19


def test_who_makes_as_many_streams_as_may_be_leaves_descriptors_for_others(
    users: Users, small_server: Instance
) -> None:
    """Each stream keeps its journal open, also after a restart."""
    eve, bob, ada = users("eve"), users("bob"), users("ada")
    small_server.create("eves", "128MiB", owner_uid=eve.uid, owner_gid=eve.gid)
    small_server.create("bobs", "16MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    socket = small_server.socket()

    def write(address: str) -> None:
        with forebay.open(address, "w", instance=socket, rank=0, ranks=1) as stream, stream.step() as step:
            step["T"] = np.zeros(10)

    def attack(tell: Tell) -> None:
        stay_connected = [RawClient(socket) for _ in range(2)]
        made = 0
        try:
            while made < 700:
                write(f"eves/s{made}")
                made += 1
        except forebay.ForebayError as error:
            tell((made, error.what))
        else:
            tell((made, ""))
        os.read(stay, 1)
        stay_connected.clear()

    stay, let_go = os.pipe()
    with eve.child(attack) as attacker:
        made, why = attacker.next()
        assert 100 < made < 200
        assert "and the rest is kept for others; remove some" in why
        bob.call(lambda: write("bobs/flow"))
        assert ada.call(lambda: Admin(socket).reservations()) == []
        os.write(let_go, b"x")
    small_server.stop()
    small_server.start()
    assert ada.call(lambda: Admin(small_server.socket()).reservations()) == []


def test_a_packet_of_queries_over_many_files_holds_nobody_up(users: Users, server: Instance) -> None:
    eve, bob = users("eve"), users("bob")
    server.create("eves", "16MiB", files="16MiB", owner_uid=eve.uid, owner_gid=eve.gid)
    server.create("bobs", "16MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    with server.admin() as admin:
        files = Path(admin.reservation("eves").files_path)
    socket = server.socket()
    hello, query = recorded(socket, lambda admin: admin.reservation("eves"))[:2]
    queries = 1500

    def fill() -> None:
        for number in range(2_000):
            (files / str(number)).touch()

    def attack(tell: Tell) -> None:
        with RawClient(socket) as client:
            client.send(hello)
            client.answers(1)
            packet = bytearray()
            for request in range(2, queries + 2):
                one = bytearray(query)
                struct.pack_into("<I", one, 12, request)
                packet += one
            client.send(bytes(packet))
            client.answers(1)
            tell("asked")
            os.read(look, 1)
            tell(client.answers_so_far())

    eve.call(fill)
    look, let_look = os.pipe()
    with eve.child(attack) as attacker:
        assert attacker.next() == "asked"
        assert [found.name for found in bob.call(lambda: Admin(socket).reservations())] == ["bobs"]
        server.create("more", "16MiB")
        os.write(let_look, b"x")
        # Others do not wait for all of them.
        assert attacker.next() < queries / 5


def _answered_before_another(
    eve: User,
    bob: User,
    server: Instance,
    prepare: Callable[[], list[RawClient]],
    ask: Callable[[RawClient], object],
    bobs: Callable[[Admin], object] = lambda admin: admin.reservations(),
) -> int:
    """How many answers eve's clients have when bob has one, to `bobs`. All of them are there before bob asks, and the
    kernel tells the server of them first.
    """
    socket = server.socket()

    def attack(tell: Tell) -> None:
        clients = prepare()
        tell("prepared")
        os.read(go_on, 1)
        for client in clients:
            ask(client)
        tell("asked")
        os.read(look, 1)
        tell(sum(client.answers_so_far() for client in clients))

    def ask_once(tell: Tell) -> None:
        hello, query = recorded(socket, bobs)
        client = RawClient(socket)
        client.send(hello)
        client.answers(1)
        tell("connected")
        os.read(ask_now, 1)
        client.send(query)
        tell("asked")
        tell(len(client.answers(1)))

    go_on, let_go_on = os.pipe()
    look, let_look = os.pipe()
    ask_now, let_ask = os.pipe()
    with eve.child(attack) as attacker, bob.child(ask_once) as asker:
        assert [attacker.next(), asker.next()] == ["prepared", "connected"]
        os.kill(server.pid, signal.SIGSTOP)
        try:
            os.write(let_go_on, b"x")
            assert attacker.next() == "asked"
            os.write(let_ask, b"x")
            assert asker.next() == "asked"
            os.kill(server.pid, signal.SIGCONT)
            assert asker.next() == 1
            os.kill(server.pid, signal.SIGSTOP)
            os.write(let_look, b"x")
            return int(attacker.next())
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_long_requests_on_many_connections_hold_nobody_up(users: Users, server: Instance) -> None:
    """Each takes the loop for longer than a turn."""
    eve, bob = users("eve"), users("bob")
    server.create("eves", "16MiB", owner_uid=eve.uid, owner_gid=eve.gid)
    socket = server.socket()
    count = 30
    last: list[bytes] = []

    def prepare() -> list[RawClient]:
        with forebay.open("eves/flow", "w", instance=socket, rank=0, ranks=1) as stream, stream.step() as step:
            step["T"] = np.zeros(10)
        hello, long = recorded(socket, lambda admin: admin.set_precious("eves/flow", [0] * 500_000))
        last.append(long[-1:])
        clients = [RawClient(socket) for _ in range(count)]
        for client in clients:
            client.send(hello)
            client.answers(1)
            sent = 0
            while sent < len(long) - 1:
                sent += client.send(long[sent:-1])
        return clients

    assert _answered_before_another(eve, bob, server, prepare, lambda client: client.send(last[0])) < count / 2


def test_short_requests_on_thousands_of_connections_hold_nobody_up(users: Users, server: Instance) -> None:
    eve, bob = users("eve"), users("bob")
    server.create("eves", "16MiB", owner_uid=eve.uid, owner_gid=eve.gid)
    socket = server.socket()
    count = 3000
    queries: list[bytes] = []

    def prepare() -> list[RawClient]:
        hello, query = recorded(socket, lambda admin: admin.reservation("eves"))
        queries.append(query * 4)
        clients = []
        for _ in range(count):
            clients.append(RawClient(socket))
            clients[-1].send(hello)
            clients[-1].answers(1)
        return clients

    assert _answered_before_another(eve, bob, server, prepare, lambda client: client.send(queries[0])) < count


def _following(socket: str, address: str, **options: Any) -> list[bytes]:
    """What a client sends that follows a stream and waits for its next step: hello, open, wait."""

    def follow(path: str) -> None:
        server = _core.ServerPlace.at_socket(path)
        reader = _core.Reader.open(
            address,
            server=server,
            verify="none",
            open_timeout_ms=60_000,
            reconnect_timeout_ms=0,
            start="next",
            follow=True,
            **options,
        )
        reader.next(100)

    return recorded_of(socket, follow)[:3]


def _slowest_answer(bob: User, socket: str, meanwhile: Callable[[], object]) -> float:
    """Of bob's short requests, one after another, in seconds."""

    def ask(tell: Tell) -> None:
        slowest = 0.0
        with Admin(socket) as admin:
            tell("asks")
            while not select.select([over], [], [], 0.001)[0]:
                begun = time.monotonic()
                admin.reservations()
                slowest = max(slowest, time.monotonic() - begun)
        tell(slowest)

    over, end = os.pipe()
    with bob.child(ask) as asker:
        assert asker.next() == "asks"
        meanwhile()
        os.write(end, b"x")
        return float(asker.next())


def test_thousands_of_readers_that_share_steps_hold_nobody_up(users: Users, server: Instance) -> None:
    """One after another they go, and what they were to get comes to those that are left."""
    eve, bob = users("eve"), users("bob")
    server.create("eves", "64MiB", owner_uid=eve.uid, owner_gid=eve.gid)
    socket = server.socket()

    def attack(tell: Tell) -> None:
        writer = forebay.open("eves/flow", "w", instance=socket, rank=0, ranks=1)
        hello, opening, wait = _following(socket, "eves/flow", distribution="round_robin")
        clients = []
        for _ in range(2000):
            clients.append(RawClient(socket))
            clients[-1].send(hello + opening + wait)
            clients[-1].answers(2)
        for number in range(3):
            with writer.step() as step:
                step["T"] = np.full(1, number)
        tell("wait")
        os.read(go_on, 1)
        clients.clear()  # which closes them
        with Admin(socket) as admin:
            while len(admin.stream("eves/flow").waits) > 0:
                time.sleep(0.1)
        tell("gone")

    go_on, let_go_on = os.pipe()
    with eve.child(attack) as attacker:

        def let_them_go() -> None:
            assert attacker.next() == "wait"
            os.write(let_go_on, b"x")
            assert attacker.next() == "gone"

        assert _slowest_answer(bob, socket, let_them_go) < seconds(1)


def test_a_step_stays_until_hundreds_that_wait_have_it(users: Users, server: Instance) -> None:
    """They are answered in several turns of the server's loop, and the writer goes on meanwhile."""
    eve = users("eve")
    server.create("eves", "64MiB", owner_uid=eve.uid, owner_gid=eve.gid)
    socket = server.socket()
    count, first = 600, 0x1234567

    def read() -> int:
        writer = forebay.open("eves/flow", "w", instance=socket, rank=0, ranks=1, retention="last:1")
        with writer.step(0) as step:
            step["T"] = np.zeros(1)
        hello, opening, wait = _following(socket, "eves/flow")
        clients = []
        for _ in range(count):
            clients.append(RawClient(socket))
            clients[-1].send(hello + opening + wait)
            clients[-1].answers(2)
        for number in range(first, first + 4):
            with writer.step(number) as step:
                step["T"] = np.full(1, number)
        return sum(client.received().count(struct.pack("<Q", first)) > 0 for client in clients)

    assert eve.call(read) == count


def test_shares_of_one_user_hold_nobodys_up(users: Users, server: Instance) -> None:
    """Each is written to the disk, one after another."""
    eve, bob = users("eve"), users("bob")
    server.create("bobs", "8MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    names = [f"eves{number}" for number in range(40)]
    for name in names:
        server.create(name, "8MiB", owner_uid=eve.uid, owner_gid=eve.gid)
    socket = server.socket()
    shares: list[bytes] = []

    def share(name: str, admin: Admin) -> None:
        admin.share(name, Rights.READ, user=0)

    def prepare() -> list[RawClient]:
        client = RawClient(socket)
        for name in names:
            hello, asked = recorded(socket, partial(share, name))
            shares.append(asked)
        client.send(hello)
        client.answers(1)
        return [client]

    def ask(client: RawClient) -> None:
        client.send(b"".join(shares))

    assert _answered_before_another(eve, bob, server, prepare, ask, partial(share, "bobs")) < len(names) / 2


def test_who_waits_for_many_streams_makes_no_answer_long(users: Users, server: Instance) -> None:
    bob, eve = users("bob"), users("eve")
    server.create("bobs", "16MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    socket = server.socket()
    with server.admin() as admin:
        admin.share("bobs", Rights.READ, user=eve.uid)
    name = "stream-with-a-name-of-its-own-0000"

    def wait_shortly(path: str) -> None:
        with pytest.raises(StreamNotFoundError):
            forebay.open(f"bobs/{name}", instance=path, timeout=0.1)

    def attack(tell: Tell) -> None:
        hello, asked, *_ = recorded_of(socket, wait_shortly)
        # Its time, in milliseconds.
        assert asked.count(struct.pack("<q", 100)) == 1
        asked = asked.replace(struct.pack("<q", 100), struct.pack("<q", 1_000_000))
        clients = []
        for number in range(300):
            clients.append(RawClient(socket))
            clients[-1].send(hello + asked.replace(name.encode(), name.encode()[:-4] + b"%04d" % number))
            clients[-1].answers(1)
        # The server has what was sent before.
        Admin(socket).reservations()
        tell("waits")
        os.read(stay, 1)

    stay, _ = os.pipe()
    with eve.child(attack) as attacker:
        assert attacker.next() == "waits"
        assert len(bob.call(lambda: Admin(socket).awaited_streams("bobs"))) == 256


def test_a_reader_cannot_fill_the_owners_journal_with_names(users: Users, server: Instance) -> None:
    bob, eve = users("bob"), users("eve")
    server.create("bobs", "16MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    socket = server.socket()
    with server.admin() as admin:
        admin.share("bobs", Rights.READ, user=eve.uid)
    writer = forebay.open("bobs/flow", "w", instance=socket, rank=0, ranks=1)
    with writer.step() as step:
        step["T"] = np.zeros(10)

    def attack() -> int:
        stream = forebay.open("bobs/flow", instance=socket)
        for number in range(1000):
            try:
                next(iter(stream.follow(consumer=f"n{number}", timeout=seconds(60))))
            except NoSpaceError:
                return number
        return 1000

    assert eve.call(attack) == 64
    with writer.step() as step:
        step["T"] = np.ones(10)
    writer.close()


def test_answers_do_not_tell_whether_anothers_reservation_exists(users: Users, server: Instance) -> None:
    """Where the asker has no right to see it: the same answer, word by word, as for one that there is not."""
    bob, eve = users("bob"), users("eve")
    server.create("hidden", "16MiB", files="1MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    socket = server.socket()

    def write() -> None:
        with forebay.open("hidden/flow", "w", instance=socket, rank=0, ranks=1) as stream, stream.step() as step:
            step["T"] = np.zeros(10)

    def told(name: str) -> list[str]:
        flow = f"{name}/flow"
        answers = []
        with Admin(socket) as admin:
            requests: list[Callable[[], Any]] = [
                lambda: admin.create(name, "16MiB"),
                lambda: admin.change(name, persistent=True),
                lambda: admin.destroy(name, force=True),
                lambda: admin.share(name, Rights.READ, user=0),
                lambda: admin.reservation(name),
                lambda: admin.streams(name),
                lambda: admin.awaited_streams(name),
                lambda: admin.stream(flow),
                lambda: admin.stream(f"{name}/none"),
                lambda: admin.steps(flow),
                lambda: admin.remove_stream(flow),
                lambda: admin.remove_consumer(flow, "anna"),
                lambda: admin.set_retention(flow, "all"),
                lambda: admin.mark_staged(flow, 1, [0], "receipt"),
                lambda: admin.set_precious(flow, [0]),
                lambda: admin.set_precious(flow, [17]),
                lambda: admin.drop_steps(flow, [0]),
                lambda: admin.create_token(name),
                lambda: forebay.open(flow, instance=socket, timeout=5),
                lambda: next(iter(forebay.open(flow, instance=socket, timeout=5).follow(consumer="anna"))),
                lambda: forebay.open(flow, "w", instance=socket, rank=0, ranks=1, timeout=5),
            ]
            for number, request in enumerate(requests):
                try:
                    answers.append(f"{number}: done, {request()}")
                except forebay.ForebayError as error:
                    answers.append(f"{number}: {error.code}: {error.what} ({error.where})")
        return [answer.replace(name, "NAME") for answer in answers]

    bob.call(write)
    of_hidden = eve.call(lambda: told("hidden"))
    assert of_hidden == eve.call(lambda: told("hiding"))
    assert not [answer for answer in of_hidden if "done" in answer]


def test_who_connects_to_the_manager_again_and_again_keeps_nobody_waiting(
    users: Users, instance: CommandLineInstance
) -> None:
    """The manager accepts a few connections, and then deals with what others ask."""
    eve, bob = users("eve"), users("bob")
    path = str(instance.root / "manager.sock")

    def connect(tell: Tell) -> None:
        connected = 0
        while True:
            with socket(AF_UNIX) as client:
                client.connect(path)
            connected += 1
            if connected == 500:
                tell("connects")

    def ask(tell: Tell) -> None:
        with socket(AF_UNIX) as client:
            client.connect(path)
            client.settimeout(seconds(60))
            slowest = 0.0
            for _ in range(200):
                begun = time.monotonic()
                client.sendall(b"GET /health HTTP/1.1\r\nHost: manager\r\n\r\n")
                answer = b""
                while not answer.endswith(b"}"):
                    answer += client.recv(1 << 16)
                slowest = max(slowest, time.monotonic() - begun)
            tell(slowest)

    with ExitStack() as attackers:
        for attacker in [attackers.enter_context(eve.child(connect)) for _ in range(6)]:
            assert attacker.next() == "connects"
        with bob.child(ask) as asker:
            assert asker.next() < seconds(1)
