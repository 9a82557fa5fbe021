# SPDX-License-Identifier: Apache-2.0
"""What users of the same node do at the port of `forebay view --web`, without the address that was printed."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import forebay
from tests.support.other_user import Child
from tests.support.time_limits import seconds
from tests.viz.conftest import field
from tests.viz.test_view import SCENE, scene_file

pytest.importorskip("trame", reason="trame is not installed: pip install 'forebay[web]'")


async def say_odd_things(port: str) -> None:
    """Texts that move a cursor, and messages that are none."""
    import aiohttp
    import msgpack
    from wslink.chunking import generate_chunks

    page = f"http://127.0.0.1:{port}/ws"
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(page) as socket:
            await socket.send_str("\x1b]0;owned\x07hello\nerror: run this")
        for message in (["\x1b[31m"], {"id": 5, "method": "x"}, {"id": "a", "method": "\x1b[31m", "args": 5}):
            async with session.ws_connect(page) as socket:
                for chunk in generate_chunks(msgpack.packb(message), 4096):
                    await socket.send_bytes(chunk)
                # It is answered, or ended.
                await socket.send_bytes(b"\x01")
                while not socket.closed:
                    await socket.receive(seconds(30))
        async with session.get(page) as answer:
            await answer.read()


@contextmanager
def shown(reservation: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scene in a browser of a process that may open few files, and its port."""
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step["T"] = field(1)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    view = subprocess.Popen(
        [
            *(sys.executable, "-m", "forebay", "view", f"{reservation}/flow"),
            *("--scene", scene_file(folder, SCENE), "--web"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, most)),
    )
    assert view.stdout is not None
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\S+\n", view.stdout.readline())
    assert match is not None
    try:
        yield view, match[1]
    finally:
        view.kill()
        view.wait()


def test_strangers_say_nothing_in_the_terminal(reservation: str, tmp_path: Path) -> None:
    with shown(reservation, tmp_path) as (view, port):
        asyncio.run(say_odd_things(port))
        _, errors = view.communicate(timeout=seconds(60))
    assert view.returncode == 0
    assert "\x1b]" not in errors
    assert "hello" not in errors
    assert "Traceback" not in errors


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_connections_of_another_user_keep_no_page_waiting(reservation: str, tmp_path: Path) -> None:
    def crowd(tell: Callable[[object], None]) -> None:
        connections = []
        for _ in range(1500):
            connections.append(socket.socket())
            connections[-1].connect(("127.0.0.1", int(port)))
        tell("there")
        os.read(stay, 1)

    stay, _ = os.pipe()
    with shown(reservation, tmp_path) as (_, port), Child(65534, crowd) as stranger:
        assert stranger.next() == "there"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=seconds(60)) as page:
            assert page.status == 200
