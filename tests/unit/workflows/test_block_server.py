# SPDX-License-Identifier: Apache-2.0
"""The WebDAV server of blocks: what juicefs says, what a hostile node may say, and that a block is durable before its
writer is told.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from forebay.errors import InvalidArgumentError, NoSpaceError
from forebay.workflows.files.juicefs import block_server
from forebay.workflows.files.juicefs.block_server import BLOCK_BYTES_MAX, USER, BlockServer
from forebay.workflows.files.juicefs.block_store import BlockStore
from tests.slurm.cluster import wait_for

_PASSWORD = "f" * 32
_RIGHT = {"Authorization": "Basic " + base64.b64encode(f"{USER}:{_PASSWORD}".encode()).decode()}


class Client(http.client.HTTPConnection):
    """Over a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("blocks", timeout=30)
        self._path = path

    def connect(self) -> None:
        """To the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """With the password: status and body of the answer."""
        self.request(method, path, body, {**_RIGHT, **headers})
        answer = self.getresponse()
        return answer.status, answer.read()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    made = BlockStore(tmp_path, 0)
    yield made
    made.close()


@pytest.fixture
def server(store: BlockStore, tmp_path: Path) -> Iterator[BlockServer]:
    with BlockServer(tmp_path / "socket", store, _PASSWORD) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def client(server: BlockServer, tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path / "socket")
    yield made
    made.close()


def raw(path: Path, text: bytes) -> bytes:
    """All that the server says to these bytes until it ends the connection, or we do."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        said = b""
        while piece := connection.recv(1 << 16):
            said += piece
        return said


def head(method: str, path: str, *lines: str, password: bool = True) -> bytes:
    """Of a request."""
    words = [f"{method} {path} HTTP/1.1", "Host: blocks", *lines]
    words += [f"Authorization: {_RIGHT['Authorization']}"] if password else []
    return "\r\n".join([*words, "", ""]).encode()


def status(said: bytes) -> int:
    return int(said.split(b" ")[1])


def test_a_block_is_written_read_listed_and_removed(client: Client, tmp_path: Path) -> None:
    assert client.ask("PUT", "/files/chunks/1_0_5", b"water")[0] == 409
    assert client.ask("MKCOL", "/files/chunks/")[0] == 409
    assert client.ask("MKCOL", "/files/")[0] == 201
    assert client.ask("MKCOL", "/files/")[0] == 405
    assert client.ask("MKCOL", "/files/chunks/")[0] == 201
    assert client.ask("PUT", "/files/chunks/1_0_5", b"water")[0] == 201
    assert client.ask("PUT", "/files/chunks/1_0_5", b"other")[0] == 201
    assert (tmp_path / "blocks/files/chunks/1_0_5").read_bytes() == b"other"
    assert client.ask("GET", "/files/chunks/1_0_5") == (200, b"other")
    assert client.ask("GET", "/files/chunks/1_0_5", Range="bytes=1-2") == (206, b"th")
    assert client.ask("GET", "/files/chunks/1_0_5", Range="bytes=3-") == (206, b"er")
    for bad in ("bytes=5-", "bytes=2-1", "bytes=-1", "bytes=0-0,2-3", "lines=1-2"):
        assert client.ask("GET", "/files/chunks/1_0_5", Range=bad)[0] == 416
    code, text = client.ask("PROPFIND", "/files/chunks/", Depth="1")
    assert code == 207
    tree = ElementTree.fromstring(text)
    assert [element.text for element in tree.iter("{DAV:}href")] == ["/files/chunks/", "/files/chunks/1_0_5"]
    assert [element.text for element in tree.iter("{DAV:}getcontentlength")] == ["5"]
    assert b"1_0_5" not in client.ask("PROPFIND", "/files/chunks/", Depth="0")[1]
    assert client.ask("DELETE", "/files/chunks/")[0] == 409
    assert client.ask("DELETE", "/files/chunks/1_0_5")[0] == 204
    assert client.ask("DELETE", "/files/chunks/1_0_5")[0] == 404
    assert client.ask("GET", "/files/chunks/1_0_5")[0] == 404
    assert client.ask("GET", "/files/chunks/")[0] == 405
    assert client.ask("DELETE", "/files/chunks/")[0] == 204
    assert list((tmp_path / "blocks.partial").iterdir()) == []


def test_a_body_in_chunks_is_written(client: Client, tmp_path: Path) -> None:
    pieces = [b"x" * 70_000, b"y", b"z" * (1 << 20)]
    assert client.ask("PUT", "/block", iter(pieces))[0] == 201
    assert (tmp_path / "blocks/block").read_bytes() == b"".join(pieces)


def test_nothing_is_done_without_the_password(client: Client, tmp_path: Path) -> None:
    wrong = {"Authorization": _RIGHT["Authorization"][:-6] + "AAAAA="}
    for method in ("PUT", "MKCOL", "GET", "PROPFIND", "DELETE"):
        for headers in ({}, wrong, {"Authorization": "Basic"}, {"Authorization": "\xff"}):
            body = iter([b"water"]) if method == "PUT" else None
            client.request(method, "/block", body, headers)
            answer = client.getresponse()
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == 'Basic realm="blocks"'
            answer.read()
    # The connection goes on.
    assert client.ask("PUT", "/block", iter([b"water"]))[0] == 201


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/a/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/a/./secret",
        "/a//secret",
        "/a%00",
        "secret",
        "http://blocks/../secret",
        "/" + "x" * 256,
        "/a" * 18,
        "/..",
        "/.",
        "/",
    ],
)
def test_no_name_leads_out_of_the_folder(server: BlockServer, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    for method in ("GET", "PUT", "DELETE", "MKCOL"):
        said = raw(tmp_path / "socket", head(method, path, "Content-Length: 0"))
        assert status(said) in (400, 404, 405, 409), said
        assert b"secret" not in said
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_links_in_the_folder_are_not_followed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "blocks/link").symlink_to(tmp_path / "secret")
    (tmp_path / "blocks/folder").symlink_to(tmp_path)
    for path in ("/link", "/folder/secret"):
        assert client.ask("GET", path)[0] == 404
    os.mkfifo(tmp_path / "blocks/fifo")
    assert client.ask("GET", "/fifo")[0] == 405


_BROKEN = {
    "two lengths": (head("PUT", "/b", "Content-Length: 1", "Content-Length: 2") + b"xy", 400),
    "a length below zero": (head("PUT", "/b", "Content-Length: -1"), 400),
    "a length that is none": (head("PUT", "/b", "Content-Length: 0x4") + b"food", 400),
    "length and chunks": (head("PUT", "/b", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "another encoding": (head("PUT", "/b", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 400),
    "a huge body": (head("PUT", "/b", f"Content-Length: {BLOCK_BYTES_MAX + 1}"), 413),
    "a huge body without a password": (head("PUT", "/b", f"Content-Length: {1 << 50}", password=False), 413),
    "a huge chunk": (head("PUT", "/b", "Transfer-Encoding: chunked") + b"ffffffff\r\n", 413),
    "a chunk of no number": (head("PUT", "/b", "Transfer-Encoding: chunked") + b"-1\r\n", 400),
    "a chunk's line without end": (head("PUT", "/b", "Transfer-Encoding: chunked") + b"1;" + b"x" * 4096, 400),
    "a chunk that goes on": (head("PUT", "/b", "Transfer-Encoding: chunked") + b"1\r\nxy\r\n0\r\n\r\n", 400),
    "trailers without end": (head("PUT", "/b", "Transfer-Encoding: chunked") + b"0\r\n" + b"a: b\r\n" * 99, 400),
    "a body where none belongs": (head("GET", "/b", "Content-Length: 3") + b"abc", 413),
    "many headers": (head("GET", "/b", *["A: b"] * 200), 431),
    "a long header": (head("GET", "/b", "A: " + "b" * 70_000), 431),
    "another method": (head("POST", "/b"), 501),
}


@pytest.mark.parametrize("name", _BROKEN)
def test_what_breaks_the_rules_ends_the_connection_and_changes_nothing(
    server: BlockServer, tmp_path: Path, name: str
) -> None:
    text, expected = _BROKEN[name]
    said = raw(tmp_path / "socket", text + head("MKCOL", "/smuggled"))
    assert status(said) == expected
    assert said.count(b"HTTP/1.1 ") == 1
    assert list((tmp_path / "blocks").iterdir()) == list((tmp_path / "blocks.partial").iterdir()) == []


def test_a_body_that_ends_too_early_changes_nothing(server: BlockServer, tmp_path: Path) -> None:
    for lines, body in (
        (["Content-Length: 10"], b"water"),
        (["Transfer-Encoding: chunked"], b"A\r\nwater"),
        (["Transfer-Encoding: chunked"], b"5\r\nwater\r\n"),
    ):
        raw(tmp_path / "socket", head("PUT", "/b", *lines) + body)
        assert list((tmp_path / "blocks").iterdir()) == list((tmp_path / "blocks.partial").iterdir()) == []


def test_near_the_end_of_the_room_blocks_are_refused(
    client: Client, store: BlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.ask("PUT", "/block", b"x" * 4)[0] == 201
    monkeypatch.setattr(store, "_reserve_bytes", 1 << 60)
    monkeypatch.setattr(block_server, "_ROOM_SECONDS_MAX", 0.01)
    # With a length and in chunks; the connection goes on.
    assert client.ask("PUT", "/other", b"x" * 11)[0] == 507
    assert client.ask("PUT", "/other", iter([b"x"]))[0] == 507
    assert b"<d:quota-available-bytes>0<" in client.ask("PROPFIND", "/", Depth="0")[1]
    assert client.ask("GET", "/block") == (200, b"xxxx")
    assert client.ask("DELETE", "/block")[0] == 204
    assert list((tmp_path / "blocks").iterdir()) == []


def test_blocks_that_are_being_written_count(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "free_bytes", lambda **_: 10)
    with store.room(6, 0), pytest.raises(NoSpaceError), store.room(5, 0):
        pass
    with store.room(10, 0):
        pass


def test_who_finds_no_room_waits_until_there_is_some(
    client: Client, store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    asked = threading.Event()

    def free_bytes(**_: bool) -> int:
        asked.set()
        return free[0]

    monkeypatch.setattr(store, "free_bytes", free_bytes)

    def make_room() -> None:
        assert asked.wait(30)
        free[0] = 10

    maker = threading.Thread(target=make_room)
    maker.start()
    assert client.ask("PUT", "/block", b"water")[0] == 201
    maker.join()


def test_the_home_may_take_what_is_kept_for_compaction(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, 0, 1 << 60)
    assert store.free_bytes() == 0
    with store.room(1, 0, for_home=True), pytest.raises(NoSpaceError), store.room(1, 0):
        pass
    store.close()


def test_a_writer_is_told_when_the_block_and_its_name_are_durable(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []
    sync, rename, answer = os.fsync, os.rename, block_server._Connection._answer

    def synced(descriptor: int) -> None:
        sync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        done.append(f"sync {path.parent.name}" if path.parent.name == "blocks.partial" else f"sync {path.name}")

    def renamed(*arguments: Any, **options: Any) -> None:
        rename(*arguments, **options)
        done.append("rename")

    def answered(connection: Any, code: int, *arguments: Any) -> None:
        done.append(f"answer {code}")
        answer(connection, code, *arguments)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(block_server._Connection, "_answer", answered)
    assert client.ask("MKCOL", "/files/")[0] == 201
    assert client.ask("PUT", "/files/block", b"water")[0] == 201
    assert done == ["sync blocks", "answer 201", "sync blocks.partial", "rename", "sync files", "answer 201"]


@pytest.mark.parametrize("call", ["fsync", "rename", "write"])
def test_a_disk_that_fails_is_reported_and_leaves_nothing(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def failing(*_: Any, **__: Any) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        assert client.ask("PUT", "/block", b"water")[0] == 500
    assert list((tmp_path / "blocks").iterdir()) == list((tmp_path / "blocks.partial").iterdir()) == []
    assert client.ask("PUT", "/block", b"water")[0] == 201


def test_what_a_killed_server_left_is_removed(tmp_path: Path) -> None:
    BlockStore(tmp_path, 0).close()
    (tmp_path / "blocks.partial/0").write_bytes(b"half")
    store = BlockStore(tmp_path, 0)
    with store.writing((b"block",)) as file:
        os.write(file, b"water")
    store.close()
    assert list((tmp_path / "blocks.partial").iterdir()) == []
    assert (tmp_path / "blocks/block").read_bytes() == b"water"


def test_the_folder_of_all_blocks_is_no_block(store: BlockStore) -> None:
    with pytest.raises(InvalidArgumentError):
        store.remove(())
    with pytest.raises(InvalidArgumentError):
        store.make_folder(())


# crash-matrix: Files striped over servers | the server of blocks, killed at `files.block.written`, `files.block.synced`, `files.block.named` | its writer is not told; the block is there whole or not at all
@pytest.mark.parametrize("place", ["written", "synced", "named"])
def test_a_block_of_a_killed_server_is_whole_or_missing(tmp_path: Path, place: str) -> None:
    configuration = tmp_path / "configuration"
    path = tmp_path / "socket"
    settings: dict[str, Any] = {
        "socket": str(path),
        "socket_for_home": f"{path}.home",
        "tree": str(tmp_path),
        "password": _PASSWORD,
    }
    settings |= {"reserve_bytes": 0, "compaction_bytes": 0}
    configuration.write_text(json.dumps(settings))
    command = [sys.executable, "-P", "-m", "forebay.workflows.files.juicefs.block_server", str(configuration)]
    environment = os.environ | {"FOREBAY_FAIL_POINT": f"files.block.{place}"}
    with subprocess.Popen(command, env=environment) as process:
        wait_for(path.exists, "the server")
        client = Client(path)
        wait_for(lambda: client.sock is not None or _connects(client), "the server to listen")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            client.ask("PUT", "/block", b"water")
        assert process.wait() == -signal.SIGKILL
    BlockStore(tmp_path, 0).close()
    assert list((tmp_path / "blocks.partial").iterdir()) == []
    found = [block.read_bytes() for block in (tmp_path / "blocks").iterdir()]
    assert found == ([b"water"] if place == "named" else [])


def _connects(client: Client) -> bool:
    try:
        client.connect()
    except ConnectionError:
        client.sock = None
        return False
    return True
