# SPDX-License-Identifier: Apache-2.0
"""The manager's socket, while a manager starts beside users who ask it all the time."""

from __future__ import annotations

import errno
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ForebayError
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.workflows.manager.http.manager_socket import ManagerSocket


def test_a_socket_has_its_name_only_when_all_may_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[Path] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            named.extend(path for path in tmp_path.iterdir() if path.name == "manager.sock")

    monkeypatch.setattr("forebay.workflows.manager.http.manager_socket.socket.socket", Watched)
    umask = os.umask(0o077)
    try:
        first = ManagerSocket(Instance(tmp_path))
        assert named == []
        # What a killed manager leaves stays until the next one's takes its place.
        first.listener.close()
        left = first.path.lstat()
        second = ManagerSocket(Instance(tmp_path))
    finally:
        os.umask(umask)
    assert named == [first.path]
    assert not os.path.samestat(left, second.path.lstat())
    assert stat.S_IMODE(second.path.lstat().st_mode) == 0o666
    assert stat.S_IMODE((tmp_path / "manager-endpoint").stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manager-endpoint", "manager.sock"]
    second.close()
    assert not second.path.exists()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "manager.sock").write_text("a user's")
    with pytest.raises(OSError, match="no socket"):
        ManagerSocket(Instance(tmp_path))
    assert (tmp_path / "manager.sock").read_text() == "a user's"


def test_a_client_waits_where_the_queue_of_connections_is_full(tmp_path: Path) -> None:
    """Others who connect again and again fill it."""
    with ExitStack() as all_of_them:
        manager = all_of_them.enter_context(socket.socket(socket.AF_UNIX))
        manager.bind(str(tmp_path / "manager.sock"))
        manager.listen(0)
        (tmp_path / "manager-endpoint").write_text(f"{tmp_path}/manager.sock\n")
        refusal = 0
        while refusal == 0:
            other = all_of_them.enter_context(socket.socket(socket.AF_UNIX))
            other.setblocking(False)
            refusal = other.connect_ex(str(tmp_path / "manager.sock"))
        assert refusal == errno.EAGAIN
        asking = all_of_them.enter_context(ThreadPoolExecutor()).submit(ManagerClient(Instance(tmp_path)).health)
        with pytest.raises(TimeoutError):
            asking.exception(0.2)
        asked = b""
        while not asked.startswith(b"GET /health"):
            connection = all_of_them.enter_context(manager.accept()[0])
            connection.settimeout(0.1)
            with suppress(TimeoutError):
                asked = connection.recv(1 << 16)
        connection.shutdown(socket.SHUT_RDWR)
        assert isinstance(asking.exception(), ForebayError)
