# SPDX-License-Identifier: Apache-2.0
"""The folder that a user's views lie in: each in a folder of its own, with a file that is locked while somebody keeps
the view.

Everything is opened by the descriptor of the folder, which is looked at once: it belongs to the user, and nobody else
may enter it. A view that nobody keeps is known by its lock, which the kernel lets go of with the last process that
holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from forebay.errors import BusyError, InvalidArgumentError, NotFoundError, PermissionDeniedError

__all__ = ["LOG", "SOCKET", "ViewFolder", "ViewRecord", "ViewsFolder", "default_folder", "name_of_view"]

SOCKET = "keeper.sock"
LOG = "keeper.log"
_TURN = ".turn"
_RECORD = ".view"
_NAME = re.compile(r"[0-9a-f]{16}")
_TURN_SECONDS_MAX = 30.0
_TURN_SECONDS_BETWEEN = 0.02


def default_folder(root: Path) -> Path:
    """Where the user's views of an instance lie.

    ``$FOREBAY_VIEWS``, else below the root if that is the user's own, else in the user's cache.
    """
    if named := os.environ.get("FOREBAY_VIEWS"):
        return Path(os.path.abspath(named))
    with contextlib.suppress(OSError):
        if root.stat().st_uid == os.geteuid():
            return root / "views"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # A home may be shared between nodes, and a process is known on its own node only.
    return Path(cache) / "forebay" / "views" / os.uname().nodename


def name_of_view(path: Path) -> str:
    """The view that has this file; InvalidArgumentError if none can have it."""
    if not _NAME.fullmatch(path.parent.name):
        raise InvalidArgumentError("this is no path that `forebay path` printed", str(path))
    return path.parent.name


@dataclass(frozen=True)
class ViewRecord:
    """What is written down of a view, for those who find it when its keeper has died."""

    file: str  #: name of the file
    holder: str  #: identity of the process that it lives for (`process_identity`); empty: none was set yet
    kind: str = "copy"


class ViewFolder:
    """The folder of one view, which this process holds the lock of."""

    def __init__(self, name: str, descriptor: int, lock: int) -> None:
        self.name = name
        self.descriptor = descriptor
        self.lock = lock

    def write_record(self, record: ViewRecord) -> None:
        """Replaces what is written down."""
        text = json.dumps(asdict(record)).encode()
        os.pwrite(self.lock, text, 0)
        os.ftruncate(self.lock, len(text))

    def read_record(self) -> ViewRecord | None:
        """What is written down; None: nothing whole."""
        try:
            return ViewRecord(**json.loads(os.pread(self.lock, 1 << 16, 0)))
        except (ValueError, TypeError):
            return None

    def close(self) -> None:
        """Lets go of the lock, unless another process has it, too."""
        os.close(self.lock)
        os.close(self.descriptor)


class ViewsFolder:
    """The folder of all views of a user. A context manager."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, create: bool) -> Self:
        """Opens it and checks that it is the user's alone.

        Raises
        ------
        NotFoundError
            It is not there, and is not to be made.
        PermissionDeniedError
            It is somebody else's, a link, or open to others.
        """
        if create:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFoundError("there are no views here", str(path)) from None
        except NotADirectoryError:
            raise PermissionDeniedError(
                "the folder of your views must be a directory and no link: remove it, or set $FOREBAY_VIEWS",
                str(path),
            ) from None
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(descriptor)
            raise PermissionDeniedError(
                f"the folder of your views must belong to you and have mode 0700; it belongs to uid {found.st_uid} and "
                f"has {stat.S_IMODE(found.st_mode):04o}: remove it, or set $FOREBAY_VIEWS",
                str(path),
            )
        return cls(path, descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One process at a time makes folders, looks for those that are left over, or starts or ends the keeper.

        Raises
        ------
        BusyError
            Another one does so for half a minute.
        """
        turn = os.open(_TURN, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._descriptor)
        try:
            end = time.monotonic() + _TURN_SECONDS_MAX
            while not _locked(turn):
                if time.monotonic() > end:
                    raise BusyError("another process holds the folder of your views for half a minute", str(self.path))
                time.sleep(_TURN_SECONDS_BETWEEN)
            yield
        finally:
            os.close(turn)

    def try_turn(self) -> int | None:
        """The turn as a descriptor, which the end of the process gives back; None: somebody else has it."""
        turn = os.open(_TURN, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._descriptor)
        if _locked(turn):
            return turn
        os.close(turn)
        return None

    def make(self) -> ViewFolder:
        """A new folder for a view, locked; to be called in this process's turn."""
        name = secrets.token_hex(8)
        os.mkdir(name, 0o700, dir_fd=self._descriptor)
        view = self._opened(name)
        assert view is not None
        return view

    def names(self) -> list[str]:
        """Of all views."""
        return sorted(name for name in os.listdir(self._descriptor) if _NAME.fullmatch(name))

    def left_over(self, name: str) -> ViewFolder | None:
        """The view, locked, if nobody keeps it; to be called in this process's turn."""
        return self._opened(name)

    def folder_of(self, name: str, lock: int) -> ViewFolder:
        """A view whose lock another process handed over."""
        return ViewFolder(name, self._open_folder(name), lock)

    def remove(self, view: ViewFolder) -> None:
        """Removes a view that this process has the lock of, and closes it. Somebody may have removed it already."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.listdir(view.descriptor):
                if entry != _RECORD:
                    os.unlink(entry, dir_fd=view.descriptor)
            # The lock's file is last: a folder without it is left over, one with it is looked at by its lock.
            os.unlink(_RECORD, dir_fd=view.descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(view.name, dir_fd=self._descriptor)
        view.close()

    def path_of(self, view: ViewFolder, file: str) -> Path:
        return self.path / view.name / file

    def unlink_socket(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=self._descriptor)

    def _opened(self, name: str) -> ViewFolder | None:
        """The folder with its lock; None: another process has it."""
        try:
            descriptor = self._open_folder(name)
        except FileNotFoundError:
            return None
        lock = os.open(_RECORD, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=descriptor)
        if _locked(lock):
            return ViewFolder(name, descriptor, lock)
        os.close(lock)
        os.close(descriptor)
        return None

    def _open_folder(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)


def _locked(descriptor: int) -> bool:
    """Takes the lock of a file, if nobody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
