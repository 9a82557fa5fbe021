# SPDX-License-Identifier: Apache-2.0
"""Opens a folder of a reservation, or of the outside, one component at a time: other users may exchange names."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass

from forebay.errors import ForebayError, InvalidArgumentError, NotFoundError, PermissionDeniedError

__all__ = ["FoundFolder", "open_below_files", "open_entry", "open_file", "open_outside"]

_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_MAX = 40


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """An open folder; if `is_whole_way` is false, the deepest one above what was asked for, which is not there."""

    descriptor: int
    is_whole_way: bool


def open_below_files(files_path: str, path: str) -> FoundFolder:
    """A folder below a reservation's ``files/``. No link is followed, and no other file system is entered.

    Raises
    ------
    NotFoundError
        There are no such ``files/`` (any more).
    InvalidArgumentError
        The path leads out, or a component is a link or a file.
    PermissionDeniedError
        This user may not.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts:
        raise InvalidArgumentError("a path in a reservation does not lead out of it", path)
    try:
        here = os.open(files_path, _READ & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        raise NotFoundError("the reservation's files are not there (any more)", files_path) from None
    except PermissionError:
        raise PermissionDeniedError("you may not read the files of this reservation", files_path) from None
    for number, part in enumerate(parts):
        where = "/".join([files_path, *parts[: number + 1]])
        try:
            inner = os.open(part, _READ, dir_fd=here)
        except FileNotFoundError:
            return FoundFolder(here, False)
        except OSError as error:
            os.close(here)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise InvalidArgumentError("this is a link or a file; name a folder", where) from None
            if error.errno == errno.EACCES:
                raise PermissionDeniedError("you may not read this folder", where) from None
            raise
        outer, here = here, inner
        is_mounted = os.fstat(outer).st_dev != os.fstat(inner).st_dev
        os.close(outer)
        if is_mounted:
            os.close(here)
            raise PermissionDeniedError("another file system is mounted there, inside the reservation's files", where)
    return FoundFolder(here, True)


def open_outside(path: str) -> int:
    """A folder by its absolute path, made if it is not there. A link may stand in it if it is root's or the caller's.

    Raises
    ------
    PermissionDeniedError
        A link of another user; or this user may not.
    InvalidArgumentError
        A component is a file, or links lead in circles.
    OSError
        What the system says.
    """
    found = _found(path, makes=True, may_be_file=False)
    try:
        return os.open(".", _READ, dir_fd=found)
    finally:
        os.close(found)


def open_entry(path: str) -> int:
    """What an absolute path leads to, a file or a folder, opened by ``O_PATH``. Links as in `open_outside`, also in the
    last place. The path ``/proc/self/fd/NUMBER`` leads to it, whatever becomes of its name.

    Raises
    ------
    PermissionDeniedError, InvalidArgumentError
        As `open_outside`.
    OSError
        What the system says, FileNotFoundError for example.
    """
    return _found(path, makes=False, may_be_file=True)


def open_file(path: str | os.PathLike[str]) -> int:
    """A regular file to read. Links as in `open_entry`.

    Raises
    ------
    PermissionDeniedError, InvalidArgumentError
        As `open_outside`; or it is no regular file.
    OSError
        What the system says, FileNotFoundError for example.
    """
    try:
        entry = open_entry(os.path.abspath(path))
    except ForebayError:
        raise
    except OSError as error:
        error.filename = os.fspath(path)  # not the component alone
        raise
    try:
        if stat.S_ISDIR(os.fstat(entry).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(os.fstat(entry).st_mode):
            raise InvalidArgumentError("it is no regular file", os.fspath(path))
        return os.open(f"/proc/self/fd/{entry}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(entry)


def _found(path: str, *, makes: bool, may_be_file: bool) -> int:
    """What the path leads to, opened by ``O_PATH``. `makes`: folders that are not there."""
    left = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    links = 0
    way = [os.open("/", _WALK | os.O_DIRECTORY)]
    try:
        while left:
            part = left.pop()
            if part == "..":
                if len(way) > 1:
                    os.close(way.pop())
                continue
            try:
                inner = os.open(part, _WALK, dir_fd=way[-1])
            except FileNotFoundError:
                if not makes:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=way[-1])
                _sync(way[-1])
                inner = os.open(part, _WALK, dir_fd=way[-1])
            status = os.fstat(inner)
            if stat.S_ISDIR(status.st_mode):
                way.append(inner)
                continue
            text = os.readlink("", dir_fd=inner) if stat.S_ISLNK(status.st_mode) else ""
            if may_be_file and not text and not left:
                return inner
            os.close(inner)
            links += 1
            if not text or links > _LINKS_MAX:
                raise InvalidArgumentError("this is a file, or a link that leads in circles; name a folder", path)
            if status.st_uid not in (0, os.geteuid()):
                raise PermissionDeniedError(
                    f"user {status.st_uid} has put a link there, {part!r}, which nobody else follows", path
                )
            if text.startswith("/"):
                while len(way) > 1:
                    os.close(way.pop())
            left += [piece for piece in reversed(text.split("/")) if piece not in ("", ".")]
        return way.pop()
    finally:
        for descriptor in way:
            os.close(descriptor)


def _sync(folder: int) -> None:
    """What was made in it lasts; not where that cannot be asked for."""
    try:
        opened = os.open(".", _READ, dir_fd=folder)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)
