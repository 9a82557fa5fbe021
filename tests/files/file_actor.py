# SPDX-License-Identifier: Apache-2.0
"""``python3 file_actor.py HOST PORT NAME FOLDER UID``: does in a folder what a test asks for, one operation after the
other, and answers. It runs on a node, so it needs nothing but the standard library.

A request is a line ``[OPERATION, ARGUMENTS...]``, an answer a line ``{"is": RESULT}`` or ``{"error": "EEXIST"}``. Bytes
travel as Latin-1.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)


class FileActor:
    """The operations. Files that are open have the numbers of their descriptors, mappings those of `map`."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}

    def open(self, name: str, flags: str = "O_RDONLY", mode: int = 0o644) -> int:
        return os.open(name, _flags(flags), mode)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def pread(self, descriptor: int, count: int, offset: int) -> str:
        return os.pread(descriptor, count, offset).decode("latin-1")

    def pwrite(self, descriptor: int, content: str, offset: int) -> int:
        return os.pwrite(descriptor, content.encode("latin-1"), offset)

    def append(self, descriptor: int, content: str) -> int:
        return os.write(descriptor, content.encode("latin-1"))

    def put(self, name: str, content: str) -> None:
        """Writes a file anew, and closes it."""
        with open(name, "wb", buffering=0) as file:
            file.write(content.encode("latin-1"))

    def get(self, name: str) -> str:
        """Opens a file, reads all, and closes it."""
        with open(name, "rb") as file:
            return file.read().decode("latin-1")

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def syncfs(self, name: str) -> None:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            if _LIBC.syncfs(descriptor) != 0:
                raise OSError(ctypes.get_errno(), "syncfs")
        finally:
            os.close(descriptor)

    def truncate(self, name: str, size: int) -> None:
        os.truncate(name, size)

    def ftruncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def lock(self, descriptor: int, kind: str, start: int, length: int, wait: bool = False) -> None:
        """fcntl's: "r" shared, "w" exclusive, "u" none."""
        how = {"r": fcntl.LOCK_SH, "w": fcntl.LOCK_EX, "u": fcntl.LOCK_UN}[kind]
        fcntl.lockf(descriptor, how | (0 if wait or kind == "u" else fcntl.LOCK_NB), length, start)

    def flock(self, descriptor: int, kind: str) -> None:
        how = {"r": fcntl.LOCK_SH, "w": fcntl.LOCK_EX, "u": fcntl.LOCK_UN}[kind]
        fcntl.flock(descriptor, how | (0 if kind == "u" else fcntl.LOCK_NB))

    def stat(self, name: str) -> dict[str, int]:
        return _status(os.lstat(name))

    def fstat(self, descriptor: int) -> dict[str, int]:
        return _status(os.fstat(descriptor))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, name: str) -> None:
        os.unlink(name)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def symlink(self, content: str, name: str) -> None:
        os.symlink(content, name)

    def readlink(self, name: str) -> str:
        return os.readlink(name)

    def mkdir(self, name: str) -> None:
        os.mkdir(name)

    def rmdir(self, name: str) -> None:
        os.rmdir(name)

    def names(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def chmod(self, name: str, mode: int) -> None:
        os.chmod(name, mode)

    def chown(self, name: str, uid: int) -> None:
        os.chown(name, uid, -1)

    def mknod(self, name: str) -> None:
        """The device that is /dev/null everywhere."""
        os.mknod(name, 0o20666, os.makedev(1, 3))

    def map(self, descriptor: int, length: int) -> int:
        number = 1 + max(self._maps, default=0)
        self._maps[number] = mmap.mmap(descriptor, length)
        return number

    def map_read(self, number: int, start: int, count: int) -> str:
        return self._maps[number][start : start + count].decode("latin-1")

    def map_write(self, number: int, start: int, content: str) -> None:
        self._maps[number][start : start + len(content)] = content.encode("latin-1")

    def map_sync(self, number: int) -> None:
        self._maps[number].flush()

    def unmap(self, number: int) -> None:
        self._maps.pop(number).close()

    def free(self) -> int:
        room = os.statvfs(".")
        return room.f_bavail * room.f_frsize

    def write_until_full(self, descriptor: int, piece: int) -> str:
        """The error at which writing and syncing ends."""
        try:
            while True:
                os.write(descriptor, b"x" * piece)
                os.fsync(descriptor)
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def make_files(self, folder: str, count: int) -> None:
        for number in range(count):
            os.close(os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))

    def add_under_a_lock(self, name: str, count: int) -> None:
        """Adds 1 to the number in a file as often as that: locked, read, written, synced, unlocked."""
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            for _ in range(count):
                fcntl.lockf(descriptor, fcntl.LOCK_EX)
                number = int(os.pread(descriptor, 20, 0) or b"0")
                os.pwrite(descriptor, b"%20d" % (number + 1), 0)
                os.fsync(descriptor)
                fcntl.lockf(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def append_lines(self, name: str, word: str, count: int, locked: bool) -> None:
        """Lines of one length, one write each."""
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            for number in range(count):
                if locked:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX)
                os.write(descriptor, f"{word} {number:8d}\n".encode())
                if locked:
                    os.fsync(descriptor)
                    fcntl.lockf(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def write_blocks(self, name: str, letter: str, size: int, first: int, step: int, count: int) -> None:
        """Blocks of one file: every ``step``-th from the ``first`` on, ``count`` in all. No locks."""
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            for number in range(first, first + step * count, step):
                os.pwrite(descriptor, letter.encode() * size, number * size)
        finally:
            os.close(descriptor)

    def write_large(self, name: str, mebibytes: int) -> None:
        """In pieces of 1 MiB, synced."""
        piece = os.urandom(1 << 20)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            for _ in range(mebibytes):
                os.write(descriptor, piece)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_large(self, name: str) -> int:
        """How many bytes it has, read in pieces of 1 MiB."""
        buffer = bytearray(1 << 20)
        total = 0
        with open(name, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
        return total

    def write_shared(self, name: str, first: int, step: int, count: int) -> None:
        """Pieces of 1 MiB of one file, as MPI-IO writes them over NFS: each with a lock on its range. Synced."""
        piece = os.urandom(1 << 20)
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            for number in range(first, first + step * count, step):
                fcntl.lockf(descriptor, fcntl.LOCK_EX, 1 << 20, number << 20)
                os.pwrite(descriptor, piece, number << 20)
                fcntl.lockf(descriptor, fcntl.LOCK_UN, 1 << 20, number << 20)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def look_at_all(self, folder: str) -> int:
        """Lists a folder, and looks at each file; their number."""
        with os.scandir(folder) as entries:
            return sum(entry.stat().st_size >= 0 for entry in entries)

    def run(self, *command: str) -> str:
        """What a program prints, which must succeed."""
        environment = os.environ | {"HOME": "/tmp", "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ValueError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout


def _status(status: os.stat_result) -> dict[str, int]:
    return {
        "size": status.st_size,
        "inode": status.st_ino,
        "links": status.st_nlink,
        "mode": status.st_mode,
        "uid": status.st_uid,
        "changed": status.st_mtime_ns,
    }


def _flags(names: str) -> int:
    value = 0
    for name in names.split("|"):
        value |= getattr(os, name)
    return value


def _become(uid: int, folder: str) -> None:
    os.chdir(folder)  # the folders above may be root's alone
    if os.geteuid() == 0 and uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def main() -> int:
    """Serves until the test closes the connection, or is gone."""
    host, port, name, folder, uid = sys.argv[1:]
    os.umask(0o022)
    actor = FileActor()
    with (
        socket.create_connection((host, int(port))) as connection,
        connection.makefile("rw", encoding="utf-8") as lines,
    ):
        _become(int(uid), folder)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        lines.write(json.dumps([name, os.getpid()]) + "\n")
        lines.flush()
        for line in lines:
            operation, *arguments = json.loads(line)
            carry_out: Callable[..., Any] = getattr(actor, operation)
            try:
                answer: dict[str, Any] = {"is": carry_out(*arguments)}
            except OSError as error:
                answer = {"error": errno.errorcode.get(error.errno or 0, str(error))}
            except Exception as error:  # the test says what it makes of it
                answer = {"error": f"{type(error).__name__}: {error}"}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
