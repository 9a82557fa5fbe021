# SPDX-License-Identifier: Apache-2.0
"""Who listens where a member's server is down is not taken for it, whoever it passes the home's words on to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import forebay
from forebay import _core
from tests.servers.ranks import Ranks, check, numbers, start_here
from tests.servers.three_servers import be_far, far_environment, three_servers, wait_until_away, wait_until_present
from tests.support.load import until

pytestmark = [pytest.mark.timeout(60)]


@contextmanager
def relay(address: str, to: str) -> Iterator[list[int]]:
    """Passes all that comes to one HOST:PORT on to another; one element for each connection that has come."""
    came: list[int] = []
    host, port = address.split(":")
    listener = socket.create_server((host, int(port)))

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            end.close()

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            other, other_port = to.split(":")
            server = socket.create_connection((other, int(other_port)))
            came.append(1)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield came
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_no_other_server_of_the_pool_is_taken_for_a_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with three_servers(tmp_path) as pool:
        far = be_far(pool, tmp_path, monkeypatch)
        # Not durable: the power of a node that has a part would take them.
        with Ranks(start_here(far), "run1/flow") as writers:
            for number in range(3):
                assert writers.write(number) == ["done", "done"]
            pool.servers[2].kill()
            wait_until_away(pool)
            with relay(pool.addresses[2], pool.addresses[1]) as came:
                until(lambda: len(came) >= 3 or "lost its power" in pool.servers[0].log(), "the home has asked")
            pool.servers[2].start()
            pool.tell()
            wait_until_present(pool, 3)
            with forebay.open("run1/flow", verify="read") as stream:
                assert numbers(stream) == [0, 1, 2]
                for number in range(3):
                    check(stream, number)
        assert "has lost its power" not in pool.servers[0].log()


def test_a_member_that_was_started_anew_is_away_once(tmp_path: Path) -> None:
    with three_servers(tmp_path) as pool:
        far = far_environment(pool, tmp_path)
        with Ranks(start_here(far), "run1/flow", durability="durable") as writers:
            assert writers.write(0) == ["done", "done"]
            assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
        pool.servers[1].stop()
        until(lambda: "member 1 (server1) is away" in pool.servers[0].log(), "the home has noticed")
        pool.servers[1].start()
        wait_until_present(pool, 3)
        # What the home has asked it before, it asked on connections that have ended with its earlier start.
        with Ranks(start_here(far), "run1/flow", mode="a", durability="durable") as writers:
            assert writers.write(1) == ["done", "done"]
            assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
        assert pool.servers[0].log().count("member 1 (server1) is away") == 1


# crash-matrix: bytes on another member of the reservation | that member's server, started again with another key than the pool's | it counts as away, and serves neither home nor clients; with the pool's key it is there again
def test_a_member_with_another_key_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with three_servers(tmp_path) as pool:
        far = be_far(pool, tmp_path, monkeypatch)
        key = tmp_path / "pool" / "pool.key"
        right = key.read_text()
        with Ranks(start_here(far), "run1/flow", durability="durable") as writers:
            assert writers.write(0) == ["done", "done"]
            pool.servers[2].kill()
            wait_until_away(pool)
            key.write_text(_core.new_pool_key())
            pool.servers[2].start()
            key.write_text(right)
            with (
                forebay.open("run1/flow", reconnect_timeout=0) as stream,
                pytest.raises(forebay.UnavailableError, match="server2"),
            ):
                stream[0]["T"][...]
            written = next(number for number in range(1, 4) if writers.write(number) == ["done", "done"])
            pool.servers[2].kill()
            pool.servers[2].start()
            pool.tell()
            wait_until_present(pool, 3)
            with forebay.open("run1/flow", verify="read") as stream:
                check(stream, 0)
                check(stream, 1, written)
            assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
