# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.workflows.files.juicefs.block_server CONFIGURATION``: the WebDAV server of one part's blocks.

It knows what juicefs says, PROPFIND, PUT, MKCOL, GET and DELETE, and answers a PUT when the block is durable. It
listens at a socket of root's. Who comes there has shown the gate a permit, and is trusted no further than its password:
names lead nowhere else, bodies are bounded, and a connection that breaks the rules ends.
"""

from __future__ import annotations

import base64
import errno
import hmac
import http.server
import json
import os
import re
import socketserver
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from forebay.errors import NO_ROOM, InvalidArgumentError, NoSpaceError
from forebay.workflows.files.juicefs.block_store import DEPTH_MAX, BlockStore, Names

__all__ = ["BLOCK_BYTES_MAX", "USER", "BlockServer"]

#: A block of juicefs has at most 4 MiB, as `format` is called; compaction makes no larger ones.
BLOCK_BYTES_MAX = 4 << 20
#: The name that goes with the password.
USER = "forebay"
#: Of what asks for properties; nobody reads it.
_QUESTION_BYTES_MAX = 64 << 10
_PIECE_BYTES = 1 << 20
#: How long a block waits for room. juicefs waits 30 s for an answer, and tries again.
_ROOM_SECONDS_MAX = 20.0
_CHUNK_LINE_BYTES_MAX = 1 << 10
_TRAILERS_MAX = 16
_CONNECTIONS_MAX = 4096
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[^\r\n]*)?\r?\n")
_LENGTH = re.compile(r"[0-9]{1,18}")
_STATUS_BY_ERROR = {
    errno.ENOENT: 404,
    errno.ENOTDIR: 404,
    errno.ELOOP: 404,
    errno.EISDIR: 405,
    errno.ENOTEMPTY: 409,
    errno.EEXIST: 409,
}


class BlockServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves until `shutdown`; a thread for each connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, path: Path, store: BlockStore, password: str, *, for_home: bool = False) -> None:
        self.store = store
        self.for_home = for_home  #: it compacts, and may take what is kept for that
        self.expected = b"Basic " + base64.b64encode(f"{USER}:{password}".encode())
        self._places = threading.BoundedSemaphore(_CONNECTIONS_MAX)
        super().__init__(str(path), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A connection too many ends at once."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread of one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that is gone is no news; what else happens ends its connection alone, with a word in the log."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, _BrokenRequestError)):
            print(f"a connection has ended: {error!r}", file=sys.stderr, flush=True)


class _BrokenRequestError(Exception):
    """Nothing more can be said on this connection."""


class _RefusedError(Exception):
    """What follows on this connection cannot be told from the body: it ends after the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Connection(http.server.BaseHTTPRequestHandler):
    server: BlockServer
    protocol_version = "HTTP/1.1"
    server_version = "forebay"
    sys_version = ""
    #: How much of the body is still to be read; None: it comes in chunks.
    _left: int | None = 0

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Nothing: the log has failures alone."""

    def do_PROPFIND(self) -> None:
        """What a block or folder is, and with a depth of 1 what is in it."""
        self._serve(_QUESTION_BYTES_MAX, self._properties)

    def do_PUT(self) -> None:
        """Writes a block."""
        self._serve(BLOCK_BYTES_MAX, self._write)

    def do_MKCOL(self) -> None:
        """Makes a folder."""
        self._serve(0, self._make_folder)

    def do_GET(self) -> None:
        """Sends a block, or a range of it."""
        self._serve(0, self._read)

    def do_DELETE(self) -> None:
        """Removes a block, or an empty folder."""
        self._serve(0, self._remove)

    def _serve(self, body_bytes_max: int, carry_out: Callable[[Names], None]) -> None:
        self._body_bytes_max = body_bytes_max
        try:
            self._left = self._announced()
            if self._left is not None and self._left > body_bytes_max:
                raise _RefusedError(413)
            given = self.headers.get("Authorization", "").encode("latin-1", "replace")
            if not hmac.compare_digest(given, self.server.expected):
                # The first request of each client comes so, and may have a body.
                self._discard()
                self._answer(401)
                return
            try:
                carry_out(_names_of(self.path))
            except ConnectionError:
                raise
            except (NoSpaceError, InvalidArgumentError, OSError) as error:
                self._discard()
                self._answer(_status_of(error, self.command))
        except _RefusedError as error:
            self.close_connection = True
            self._answer(error.status)

    def _properties(self, names: Names) -> None:
        self._discard()
        store = self.server.store
        status = store.status(names)
        parts = [_response(names, status, None if names else store.free_bytes())]
        if self.headers.get("Depth") != "0" and stat.S_ISDIR(status.st_mode):
            parts += [_response((*names, name), found) for name, found in store.entries(names)]
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<d:multistatus xmlns:d="DAV:">{"".join(parts)}</d:multistatus>'
        self._answer(207, text.encode(), "application/xml; charset=utf-8")

    def _write(self, names: Names) -> None:
        store = self.server.store
        size = BLOCK_BYTES_MAX if self._left is None else self._left
        with (
            store.room(size, _ROOM_SECONDS_MAX, for_home=self.server.for_home),
            store.writing(names) as file,
        ):
            for piece in self._body():
                view = memoryview(piece)
                while view:
                    view = view[os.write(file, view) :]
        self._answer(201)

    def _make_folder(self, names: Names) -> None:
        try:
            self.server.store.make_folder(names)
        except FileExistsError:
            self._answer(405)  # as WebDAV has it
            return
        self._answer(201)

    def _read(self, names: Names) -> None:
        with self.server.store.reading(names) as file:
            size = os.fstat(file).st_size
            asked = self.headers.get("Range")
            begin, end = (0, size) if asked is None else _range_of(asked, size)
            if asked is not None and begin >= end:
                self._answer(416)
                return
            self.send_response(200 if asked is None else 206)
            if asked is not None:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            while begin < end:
                try:
                    sent = os.sendfile(self.connection.fileno(), file, begin, end - begin)
                except OSError:
                    sent = 0
                if not sent:
                    raise _BrokenRequestError  # the answer has begun
                begin += sent

    def _remove(self, names: Names) -> None:
        self.server.store.remove(names)
        self._answer(204)

    def _announced(self) -> int | None:
        """How long the body is; None if it comes in chunks."""
        encoding = self.headers.get_all("Transfer-Encoding") or []
        lengths = self.headers.get_all("Content-Length") or []
        if encoding:
            if lengths or [word.strip().lower() for word in encoding] != ["chunked"]:
                raise _RefusedError(400)
            return None
        if len(lengths) > 1 or any(_LENGTH.fullmatch(length) is None for length in lengths):
            raise _RefusedError(400)
        return int(lengths[0]) if lengths else 0

    def _discard(self) -> None:
        for _ in self._body():
            pass

    def _body(self) -> Iterator[bytes]:
        """What is left of it, in pieces, and no more than the request may have."""
        if self._left is None:
            yield from self._chunks()
        while self._left:
            piece = self.rfile.read1(min(self._left, _PIECE_BYTES))
            if not piece:
                raise _BrokenRequestError
            self._left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        room = self._body_bytes_max
        while size := self._chunk_size():
            if size > room:
                raise _RefusedError(413)
            room -= size
            while size:
                piece = self.rfile.read1(min(size, _PIECE_BYTES))
                if not piece:
                    raise _BrokenRequestError
                size -= len(piece)
                yield piece
            if self.rfile.read(2) != b"\r\n":
                raise _RefusedError(400)
        for _ in range(_TRAILERS_MAX):
            line = self.rfile.readline(_CHUNK_LINE_BYTES_MAX)
            if line in (b"\r\n", b"\n"):
                self._left = 0
                return
        raise _RefusedError(400)

    def _chunk_size(self) -> int:
        match = _CHUNK_SIZE.fullmatch(self.rfile.readline(_CHUNK_LINE_BYTES_MAX))
        if match is None:
            raise _RefusedError(400)
        return int(match[1], 16)

    def _answer(self, status: int, text: bytes = b"", kind: str = "") -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="blocks"')
        if kind:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(text)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text)


def _names_of(path: str) -> Names:
    """Of a request's path; InvalidArgumentError if it is none."""
    plain = urlsplit(path).path if path.startswith("/") else ""
    if not plain.startswith("/") or plain.startswith("//"):
        raise InvalidArgumentError("this is no path")
    text = unquote_to_bytes(plain)
    names = tuple(text[1:].removesuffix(b"/").split(b"/"))
    if names == (b"",):
        return ()
    if len(names) > DEPTH_MAX + 1 or not all(names):
        raise InvalidArgumentError("this is no path")
    return names


def _range_of(asked: str, size: int) -> tuple[int, int]:
    """First byte and end; nothing between them if there is no such range."""
    match = _RANGE.fullmatch(asked)
    if match is None:
        return 0, 0
    return int(match[1]), min(size, int(match[2]) + 1) if match[2] else size


def _status_of(error: Exception, command: str) -> int:
    if isinstance(error, NoSpaceError) or (isinstance(error, OSError) and error.errno in NO_ROOM):
        return 507
    if isinstance(error, InvalidArgumentError):
        return 400
    assert isinstance(error, OSError)
    if command in ("PUT", "MKCOL") and error.errno in (errno.ENOENT, errno.ENOTDIR):
        return 409  # the folder is missing
    return _STATUS_BY_ERROR.get(error.errno or 0, 500)


def _response(names: Names, status: os.stat_result, free_bytes: int | None = None) -> str:
    is_folder = stat.S_ISDIR(status.st_mode)
    href = "/" + "".join(quote_from_bytes(name, safe="") + "/" for name in names)
    href = href if is_folder or not names else href[:-1]
    kind = "<d:resourcetype><d:collection/></d:resourcetype>" if is_folder else "<d:resourcetype/>"
    size = "" if is_folder else f"<d:getcontentlength>{status.st_size}</d:getcontentlength>"
    free = "" if free_bytes is None else f"<d:quota-available-bytes>{free_bytes}</d:quota-available-bytes>"
    when = f"<d:getlastmodified>{formatdate(status.st_mtime, usegmt=True)}</d:getlastmodified>"
    return (
        f"<d:response><d:href>{href}</d:href><d:propstat><d:prop>{kind}{size}{when}{free}</d:prop>"
        "<d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>"
    )


def main() -> int:
    """Serves until it is killed. The configuration is a JSON object: tree, reserve_bytes, compaction_bytes, password,
    and two sockets: for nodes, and for the home.
    """
    os.umask(0o077)
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    store = BlockStore(Path(settings["tree"]), settings["reserve_bytes"], settings["compaction_bytes"])
    servers = []
    for for_home in (True, False):
        path = Path(settings["socket_for_home" if for_home else "socket"])
        path.unlink(missing_ok=True)
        servers.append(BlockServer(path, store, settings["password"], for_home=for_home))
    threading.Thread(target=servers[0].serve_forever, daemon=True).start()
    servers[1].serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
