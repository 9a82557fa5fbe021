# SPDX-License-Identifier: Apache-2.0
"""Views are handed over to the keeper, which is started if none runs."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from forebay.errors import BusyError, NotFoundError, StorageError
from forebay.manager.unix_path import short_path
from forebay.views.folder import LOG, SOCKET, ViewFolder, ViewsFolder, name_of_view
from forebay.views.holder import Holder

__all__ = ["hand_over", "keeper_runs", "release", "start_keeper"]

_ANSWER_SECONDS_MAX = 30.0


def hand_over(folder: ViewsFolder, view: ViewFolder, holder: Holder) -> None:
    """From now on the keeper keeps the view; in this process's turn. The descriptors stay this process's to close.

    Raises
    ------
    BusyError
        The keeper does not answer.
    StorageError
        It cannot be started, or refuses.
    """
    connection = _connected(folder)
    if connection is None:
        start_keeper(folder)
        connection = _connected(folder)
    if connection is None:
        raise StorageError(f"the keeper of views has ended at once; {folder.path / LOG} may say why", str(folder.path))
    with connection:
        answer = _ask(connection, {"keep": view.name}, [view.lock, holder.descriptor], folder)
    if error := answer.get("error"):
        raise StorageError(f"the keeper of views refuses this one: {error}", str(folder.path))


def release(path: Path) -> None:
    """Ends the view with this path.

    Raises
    ------
    InvalidArgumentError
        It is no path of a view.
    NotFoundError
        There is no such view.
    """
    # Before its folder is looked at, which could be any: nobody is to be told to remove / or their home.
    name = name_of_view(path)
    with ViewsFolder.open(path.parent.parent, create=False) as folder, folder.turn():
        connection = _connected(folder)
        if connection is not None:
            with connection:
                answer = _ask(connection, {"release": name}, [], folder)
            if not answer.get("error"):
                return
        # Its keeper was killed.
        view = folder.left_over(name)
        if view is None:
            raise NotFoundError("there is no such view", str(path))
        folder.remove(view)


def keeper_runs(folder: ViewsFolder) -> bool:
    """Whether somebody keeps the views; in this process's turn."""
    connection = _connected(folder)
    if connection is None:
        return False
    connection.close()
    return True


def start_keeper(folder: ViewsFolder) -> None:
    """Starts the keeper and waits until it listens and has looked at what was left over; in this process's turn."""
    heard, ready = os.pipe()
    try:
        log = os.open(folder.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "forebay.views.keeper", str(folder.path), str(ready)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[ready],
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(log)
            os.close(ready)
        if not select.select([heard], [], [], _ANSWER_SECONDS_MAX)[0] or not os.read(heard, 16):
            raise StorageError(f"the keeper of views does not start; {folder.path / LOG} says why", str(folder.path))
    finally:
        os.close(heard)


def _connected(folder: ViewsFolder) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    connection.settimeout(_ANSWER_SECONDS_MAX)
    try:
        with short_path(folder.path / SOCKET) as path:
            connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def _ask(
    connection: socket.socket, request: dict[str, Any], descriptors: list[int], folder: ViewsFolder
) -> dict[str, Any]:
    try:
        socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
        answer: dict[str, Any] = json.loads(connection.recv(1 << 16) or b'{"error": "it has ended"}')
    except TimeoutError:
        raise BusyError(
            f"the keeper of views does not answer for {_ANSWER_SECONDS_MAX:.0f} s", str(folder.path)
        ) from None
    return answer
