# SPDX-License-Identifier: Apache-2.0
"""The keeper of a user's views: removes each when it is released, when its holder has ended, or an hour after its last
close. ``python -m forebay.views.keeper FOLDER READY`` runs it; it ends with the last view.

Requests come over a socket in the folder of views, one message each, JSON; descriptors come along with it:

========  ==============================  ============================================================
``keep``  the view's folder               its lock and the holder's pidfd: from now on the keeper's
``release``  the view's folder            none
========  ==============================  ============================================================

The answer is ``{}``, or ``{"error": TEXT}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.manager.unix_path import short_path
from forebay.views.file_watch import FileWatch, is_open_elsewhere
from forebay.views.folder import SOCKET, ViewRecord, ViewsFolder
from forebay.views.left_over import views_left_over

__all__ = ["IDLE_SECONDS", "MESSAGE_BYTES_MAX", "Keeper", "listening"]

IDLE_SECONDS = 3600.0
MESSAGE_BYTES_MAX = 1 << 16
_DESCRIPTORS_MAX = 2
_PEER = struct.Struct("3i")
# How long a request may take to come after its connection.
_REQUEST_SECONDS_MAX = 10.0
# How often a keeper without views looks if it may end.
_ENDING_SECONDS = 1.0


@dataclass
class _KeptView:
    name: str
    lock: int
    holder: int  #: pidfd
    path: str
    watch: int
    last_used: float


class Keeper:
    """What the keeper does; see the module.

    Parameters
    ----------
    folder : ViewsFolder
        Of all views.
    listener : socket
        Listening.
    idle_seconds : float
        A view ends so long after its last close.
    now : callable
        The time, in seconds.
    """

    def __init__(
        self,
        folder: ViewsFolder,
        listener: socket.socket,
        *,
        idle_seconds: float = IDLE_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._listener = listener
        self._idle_seconds = idle_seconds
        self._now = now
        self._views: dict[str, _KeptView] = {}
        self._watch = FileWatch()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._answer_one)
        self._selector.register(self._watch.descriptor, selectors.EVENT_READ, self._note_changes)

    @property
    def views(self) -> list[str]:
        """The folders of the views that it keeps."""
        return sorted(self._views)

    def adopt(self) -> None:
        """Takes over what a keeper that died has left, and removes what nobody needs; in somebody's turn."""
        for view, holder in views_left_over(self._folder):
            record = view.read_record()
            if holder is None or record is None:
                self._folder.remove(view)
            else:
                os.close(view.descriptor)
                self._keep(view.name, record, view.lock, holder.descriptor)

    def round(self, timeout: float | None = None) -> None:
        """Waits for something to happen, at most ``timeout`` seconds or until a view's time is over, and does it."""
        due = min((view.last_used + self._idle_seconds - self._now() for view in self._views.values()), default=None)
        waits = [seconds for seconds in (due, timeout) if seconds is not None]
        for key, _ in self._selector.select(max(0.0, min(waits)) if waits else None):
            key.data()
        for view in list(self._views.values()):
            if view.last_used + self._idle_seconds <= self._now():
                self._end_unless_open(view)

    def run(self) -> None:
        """Until there is no view."""
        while True:
            if not self._views and (turn := self._folder.try_turn()) is not None:
                # Whoever comes now waits for the turn, which ends with this process.
                if not self._is_asked():
                    self._folder.unlink_socket()
                    return
                os.close(turn)
            self.round(None if self._views else _ENDING_SECONDS)

    def end_all(self) -> None:
        """Removes all views."""
        for view in list(self._views.values()):
            self._end(view)

    def _is_asked(self) -> bool:
        return any(key.fileobj is self._listener for key, _ in self._selector.select(0))

    def _answer_one(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(_REQUEST_SECONDS_MAX)
            _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if uid not in (0, os.geteuid()):
                return
            with contextlib.suppress(OSError):
                data, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, _DESCRIPTORS_MAX)
                connection.send(json.dumps(self._answer(data, descriptors)).encode())

    def _answer(self, data: bytes, descriptors: list[int]) -> dict[str, Any]:
        try:
            match json.loads(data):
                case {"keep": str(name)} if len(descriptors) == _DESCRIPTORS_MAX:
                    lock, holder = descriptors
                    descriptors.clear()
                    view = self._folder.folder_of(name, lock)
                    os.close(view.descriptor)
                    record = view.read_record()
                    if record is None:
                        raise ValueError("the view has no record")
                    self._keep(name, record, lock, holder)
                    return {}
                case {"release": str(name)}:
                    if (kept := self._views.get(name)) is None:
                        return {"error": "there is no such view any more"}
                    self._end(kept)
                    return {}
            return {"error": "this keeper does not know the request: it is of another version of forebay"}
        except (OSError, ValueError) as error:
            return {"error": str(error)}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _keep(self, name: str, record: ViewRecord, lock: int, holder: int) -> None:
        path = str(self._folder.path / name / record.file)
        view = _KeptView(name, lock, holder, path, self._watch.add(path), self._now())
        self._views[name] = view
        self._selector.register(holder, selectors.EVENT_READ, lambda: self._end(view))

    def _note_changes(self) -> None:
        used, gone = self._watch.changes()
        for view in list(self._views.values()):
            if view.watch in gone:
                self._end(view)  # Somebody removed the file.
            elif view.watch in used or -1 in used:
                view.last_used = self._now()

    def _end_unless_open(self, view: _KeptView) -> None:
        self._watch.remove(view.watch)
        try:
            with open(view.path, "rb") as file:
                is_open = is_open_elsewhere(file.fileno())
            view.watch = self._watch.add(view.path)
        except FileNotFoundError:
            is_open = False
        if is_open:
            view.last_used = self._now()
        else:
            self._end(view)

    def _end(self, view: _KeptView) -> None:
        if self._views.pop(view.name, None) is None:
            return  # Several of its ends came at once.
        self._watch.remove(view.watch)
        self._selector.unregister(view.holder)
        os.close(view.holder)
        try:
            folder = self._folder.folder_of(view.name, view.lock)
        except FileNotFoundError:
            os.close(view.lock)
        else:
            self._folder.remove(folder)


def listening(folder: ViewsFolder) -> socket.socket:
    """The socket of a keeper, in place of one that an earlier keeper left; in somebody's turn."""
    folder.unlink_socket()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    with short_path(folder.path / SOCKET) as path:
        listener.bind(path)
    listener.listen(128)
    return listener


def main(arguments: list[str]) -> None:
    """Runs the keeper of a folder; tells by a pipe that it listens."""
    path, ready = Path(arguments[0]), int(arguments[1])
    # What asks whether a view is open is answered by a lease, and who opens the file then sends this signal.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft < hard else (soft, hard))
    with ViewsFolder.open(path, create=False) as folder:
        keeper = Keeper(folder, listening(folder))

        def end(*_: object) -> None:
            keeper.end_all()
            sys.exit(0)

        signal.signal(signal.SIGTERM, end)
        keeper.adopt()
        os.write(ready, b"ready")
        os.close(ready)
        keeper.run()


if __name__ == "__main__":
    main(sys.argv[1:])
