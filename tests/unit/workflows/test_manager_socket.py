# SPDX-License-Identifier: Apache-2.0
"""The manager's socket, while a manager starts beside users who ask it all the time."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from forebay.instance import Instance
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
