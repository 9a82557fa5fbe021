# SPDX-License-Identifier: Apache-2.0
"""Bodies, requests and connections of one user cost the manager and the others little."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.user_turns import UserTurns
from forebay.workflows.manager.http import peer
from forebay.workflows.manager.http.connection_shares import ConnectionShares
from forebay.workflows.manager.http.peer import PeerProtocol
from forebay.workflows.manager.http.request_limits import RequestLimits, Turn, _RequestTurns, turn_of

KIB = 1 << 10
#: An answer that is longer than what the connection's two ends keep.
LONG = json.dumps("x" * 8192 * KIB).encode()


class Connection:
    """To the served application."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, Any]:
        """Status and JSON of the next answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length: ")[2].partition("\r\n")[0]
        body = await self._reader.readexactly(int(length)) if length else await self._reader.read()
        return int(head.split()[1]), json.loads(body)

    async def status(self) -> int:
        """Of the next answer, whatever follows."""
        return int((await self._reader.readuntil(b"\r\n\r\n")).split()[1])

    @property
    def has_ended(self) -> bool:
        """It is known to have."""
        return self._reader.at_eof()

    async def read(self, size: int) -> None:
        """So many bytes of an answer."""
        await self._reader.readexactly(size)

    async def is_cut(self) -> bool:
        """Waits for the end."""
        with contextlib.suppress(ConnectionResetError):
            return await self._reader.read() == b""
        return True

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def served(
    folder: Path, *, nobodys: bool = False
) -> AsyncIterator[Callable[[], Coroutine[Any, Any, Connection]]]:
    """An application behind the limits; its handlers wait for `/go` if they are asked to."""
    api = FastAPI()
    go = asyncio.Event()

    @api.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return {"size": len(str(body))}

    @api.get("/wait")
    async def wait() -> dict[str, Any]:
        await go.wait()
        return {}

    @api.get("/poll")
    async def poll(request: Request) -> dict[str, Any]:
        async with turn_of(request).given_back():
            await go.wait()
        return {}

    @api.get("/go")
    async def set_go() -> dict[str, Any]:
        go.set()
        return {}

    @api.get("/long")
    async def long() -> Response:
        return Response(LONG, media_type="application/json")

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen(100)
    settings = uvicorn.Config(
        RequestLimits(api, lambda _peer: nobodys), http=PeerProtocol, ws="none", log_config=None, lifespan="off"
    )
    server = uvicorn.Server(settings)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    opened: list[Connection] = []

    async def connect() -> Connection:
        connection = Connection(*await asyncio.open_unix_connection(str(folder / "s")))
        opened.append(connection)
        return connection

    try:
        async with asyncio.timeout(30):
            yield connect
    finally:
        for connection in opened:
            connection.close()
        go.set()
        server.should_exit = True
        await serving


async def send_pieces(connection: Connection, count: int) -> None:
    for _ in range(count):
        await connection.send(b"10000\r\n" + b" " * (64 * KIB) + b"\r\n")


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "host: m", "content-type: application/json", *lines, "", ""]
    ).encode()


@pytest.mark.parametrize("nobodys", [False, True])
def test_a_body_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path, nobodys: bool) -> None:
    limit = "5120 KiB" if nobodys else "512 KiB"

    async def run() -> None:
        async with served(tmp_path, nobodys=nobodys) as connect:
            announced = await connect()
            await announced.send(head("POST", "/echo", f"content-length: {1 << 30}") + b'{"a": "')
            status, told = await announced.answer()
            assert (status, told["error"]["code"]) == (413, "invalid_argument")
            assert limit in told["error"]["what"]
            assert await announced.is_cut()
            endless = await connect()
            await endless.send(head("POST", "/echo", "transfer-encoding: chunked"))
            with pytest.raises(ConnectionError):
                await send_pieces(endless, 200)  # it is cut long before
            good = await connect()
            body = json.dumps({"a": "b" * 400 * KIB}).encode()
            await good.send(head("POST", "/echo", f"content-length: {len(body)}") + body)
            assert (await good.answer())[0] == 200

    asyncio.run(run())


def test_a_body_in_chunks_is_refused_before_they_are_read(tmp_path: Path) -> None:
    """However small they are, each is an event of its own in the loop that everybody waits for."""

    async def run() -> None:
        async with served(tmp_path) as connect:
            chunked = await connect()
            await chunked.send(head("POST", "/echo", "transfer-encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n")
            assert await chunked.status() == 400

    asyncio.run(run())


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_a_head_of_many_lines_is_refused_before_they_are_read(tmp_path: Path, ending: str) -> None:
    """Each takes microseconds of the loop, and there is place for 16 000, before anybody knows whose turn it is."""

    async def run() -> None:
        async with served(tmp_path) as connect:
            connection = await connect()
            lines = ["GET /long HTTP/1.1", "host: m", *["a:"] * 200]
            await connection.send(ending.join([*lines, "", ""]).encode())
            assert await connection.status() == 400
            await connection.read(len("Invalid HTTP request received."))
            few = await connect()
            body = b'{"a":' + b"\n" * 300 + b'""}'
            await few.send((head("POST", "/echo", f"content-length: {len(body)}", *["a:"] * 90) + body) * 2)
            assert await few.status() == 200
            await few.read(len('{"size":9}'))
            # Nobody comes again at once, with another connection.
            assert not connection.has_ended

    asyncio.run(run())


@pytest.mark.parametrize("begun", [b"", b"GET / HT", head("POST", "/echo", "content-length: 100") + b'{"a": '])
def test_half_a_request_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    async def run() -> None:
        async with served(tmp_path) as connect:
            monkeypatch.setattr(peer, "REQUEST_SECONDS_MAX", 0.05)
            connection = await connect()
            await connection.send(begun)
            assert await connection.is_cut()

    asyncio.run(run())


def test_a_whole_request_that_waits_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with served(tmp_path) as connect:
            monkeypatch.setattr(peer, "REQUEST_SECONDS_MAX", 0.05)
            waiting, trickling = await connect(), await connect()
            await waiting.send(head("GET", "/wait"))
            # The time for another one is up meanwhile.
            await trickling.send(b"GET")
            assert await trickling.is_cut()
            other = await connect()
            await other.send(head("GET", "/go"))
            assert (await other.answer())[0] == 200
            assert (await waiting.answer())[0] == 200
            # The time for the next one runs again.
            assert await waiting.is_cut()

    asyncio.run(run())


def test_requests_take_turns_between_users() -> None:
    async def run() -> None:
        turns = _RequestTurns()
        turns._turns = UserTurns(places=2, reserve=1)
        ada = [Turn(turns, 1) for _ in range(4)]
        waits = [asyncio.create_task(turn.take()) for turn in ada]
        bob = Turn(turns, 2)
        async with asyncio.timeout(10):
            await asyncio.wait(waits[:2])
            await bob.take()  # although two of ada's have all places, and two wait
            assert [wait.done() for wait in waits] == [True, True, False, False]
            bob.give_back()
            waits[2].cancel()  # who waits may go away
            await asyncio.wait([waits[2]])
            async with ada[0].given_back():  # who only waits for something has no place meanwhile
                await waits[3]
                ada[1].give_back()
            for turn in (ada[0], ada[3]):
                turn.give_back()
                turn.give_back()
            assert (turns._turns.begin(), turns._waiting) == (None, {})

    asyncio.run(run())


def test_requests_that_wait_for_nothing_are_not_all_answered_before_anothers() -> None:
    """One of each of a user's hundreds of connections, in each round of the loop."""

    async def run() -> None:
        turns = _RequestTurns()
        answered: list[int] = []

        async def ask(uid: int) -> None:
            number = await turns.begin(uid)
            answered.append(uid)
            turns.end(number)

        many = [asyncio.create_task(ask(7)) for _ in range(100)]
        await asyncio.create_task(ask(8))
        assert answered == [7, 7, 7, 7, 8]
        await asyncio.gather(*many)
        assert len(answered) == 101

    asyncio.run(run())


def test_refusals_take_turns_as_answers_do(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as connect:
            for _ in range(4):
                await (await connect()).send(head("GET", "/wait"))
            refused = await connect()
            await refused.send(head("POST", "/echo", f"content-length: {1 << 30}"))
            answered = asyncio.create_task(refused.answer())
            for _ in range(10):  # these take no place, and the other one would have come before them
                other = await connect()
                await other.send(b"GET\r\n\r\n")
                assert await other.status() == 400
            assert not answered.done()
            answered.cancel()

    asyncio.run(run())


def test_one_user_computes_few_answers_at_once() -> None:
    async def run() -> None:
        turns = _RequestTurns()
        ada = [asyncio.create_task(Turn(turns, 1).take()) for _ in range(40)]
        async with asyncio.timeout(10):
            await asyncio.wait(ada[:4])
            for uid in range(2, 30):
                await Turn(turns, uid).take()
        assert sum(wait.done() for wait in ada) == 4
        for wait in ada:
            wait.cancel()
        await asyncio.wait(ada)

    asyncio.run(run())


def test_one_users_requests_do_not_keep_another_request_waiting(tmp_path: Path) -> None:
    """All of the user's places but one are taken, and none by those who only wait."""

    async def run() -> None:
        async with served(tmp_path) as connect:
            for path, count in (("/poll", 40), ("/wait", 3)):
                for _ in range(count):
                    await (await connect()).send(head("GET", path))
            last = await connect()
            await last.send(head("GET", "/go"))
            assert (await last.answer())[0] == 200

    asyncio.run(run())


def test_who_reads_no_answers_has_no_further_ones_computed(tmp_path: Path) -> None:
    """Each is kept until it is read, and may be a list of many megabytes."""

    async def run() -> None:
        async with served(tmp_path) as connect:
            unread = [await connect() for _ in range(4)]
            for connection in unread:
                await connection.send(head("GET", "/long"))
                assert await connection.status() == 200
            waiting = await connect()
            await waiting.send(head("GET", "/go"))
            answered = asyncio.create_task(waiting.answer())
            for _ in range(10):  # these take no place, and the other one would have come before them
                refused = await connect()
                await refused.send(b"GET\r\n\r\n")
                assert await refused.status() == 400
            assert not answered.done()
            await unread[0].read(len(LONG))
            assert (await answered)[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize("lines", [(), ("connection: close",)])
def test_who_does_not_read_an_answer_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...]
) -> None:
    async def run() -> None:
        is_cut = asyncio.Event()
        cut = PeerProtocol.cut

        def cut_and_tell(self: PeerProtocol) -> None:
            cut(self)
            is_cut.set()

        monkeypatch.setattr(PeerProtocol, "cut", cut_and_tell)
        async with served(tmp_path) as connect:
            connection = await connect()
            monkeypatch.setattr(peer, "REQUEST_SECONDS_MAX", 0.05)
            await connection.send(head("GET", "/long", *lines))
            await is_cut.wait()

    asyncio.run(run())


class FakeConnection:
    """A connection of a user."""

    def __init__(self, *, is_idle: bool = True) -> None:
        self.is_idle = is_idle
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


def test_connections_are_shared_out_between_users() -> None:
    shares = ConnectionShares(connections_max=10, of_one_max=8)
    ada = [FakeConnection(is_idle=number > 2) for number in range(9)]
    assert [shares.enter(1, connection) for connection in ada] == [True] * 8 + [False]
    bob = [FakeConnection() for _ in range(9)]
    assert [shares.enter(2, connection) for connection in bob[:4]] == [True] * 4
    # Of who has most, the oldest that is not being answered gave way.
    assert [connection.is_cut for connection in ada[:6]] == [False, False, False, True, True, False]
    assert [shares.enter(2, connection) for connection in bob[4:]] == [True, False, False, False, False]
    eve = FakeConnection()
    assert shares.enter(3, eve)
    for _ in range(2):
        shares.leave(3, eve)
    assert shares.enter(3, FakeConnection())
    assert not shares.enter(3, FakeConnection()) or sum(connection.is_cut for connection in ada + bob) <= 5


def test_a_user_with_too_many_connections_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeerProtocol, "shares", ConnectionShares(connections_max=4, of_one_max=2))
    monkeypatch.setattr(Peer, "is_administrator", False)

    async def run() -> None:
        async with served(tmp_path) as connect:
            kept = [await connect() for _ in range(2)]
            for connection in kept:
                await connection.send(head("GET", "/go"))
                assert (await connection.answer())[0] == 200
            refused = await connect()
            status, told = await refused.answer()
            assert (status, told["error"]["code"]) == (503, "busy")
            kept[0].close()
            while True:  # the server sees the end soon
                again = await connect()
                await again.send(head("GET", "/go"))
                if (await again.answer())[0] == 200:
                    break

    asyncio.run(run())
