# SPDX-License-Identifier: Apache-2.0
"""Real users of a test's own: ids that no other test has, an entry in the machine's lists of users, and a home."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from tests.support import other_user
from tests.support.processes import processes_where
from tests.support.time_limits import seconds

__all__ = ["BLOCK_IDS", "FIRST_ID", "User", "Users", "claimed_ids"]

#: Nobody else gives out these (https://systemd.io/UIDS-GIDS: 1879048192 to 2147483647 are unassigned).
FIRST_ID = 1_900_000_000
#: So many ids belong to one test.
BLOCK_IDS = 32
_BLOCKS = 4096
_COMMAND_SECONDS_MAX = seconds(120)
_LOCKS = Path(tempfile.gettempdir()) / "forebay-test-users"


@dataclass(frozen=True)
class User:
    """A user of the machine, whose own group has the same number."""

    uid: int
    name: str
    home: Path
    #: What programs of this user find in their environment, and nothing else.
    environment: Mapping[str, str]

    @property
    def gid(self) -> int:
        """Of the user's own group."""
        return self.uid

    def run(
        self,
        command: Sequence[str | Path],
        *,
        groups: Sequence[int] = (),
        timeout: float = _COMMAND_SECONDS_MAX,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program as this user, in the home, whatever comes of it. ``groups`` are the supplementary ones."""
        return subprocess.run(
            [str(word) for word in command],
            **self._identity(groups, environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(
        self, command: Sequence[str | Path], *, groups: Sequence[int] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """Starts a program as this user, with pipes to it and from it. It ends with the test."""
        return subprocess.Popen(
            [str(word) for word in command],
            **self._identity(groups, environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, function: Callable[[], Any], *, groups: Sequence[int] = ()) -> Any:
        """What a function returns in a forked process of this user. A ForebayError that it raises is raised here."""
        return other_user.as_user(self.uid, function, groups=groups)

    def child(self, function: Callable[[Callable[[Any], None]], Any]) -> other_user.Child:
        """A function in a process of this user that goes on beside the test: see :class:`other_user.Child`."""
        return other_user.Child(self.uid, function)

    def _identity(self, groups: Sequence[int], environment: Mapping[str, str]) -> dict[str, Any]:
        return {
            "user": self.uid,
            "group": self.gid,
            "extra_groups": list(groups),
            "env": {**self.environment, **environment},
            "cwd": self.home,
        }


class Users:
    """Makes users with the ids of a block. A context manager: at its end their processes and entries are gone."""

    def __init__(self, ids: range, homes: Path, environment: Mapping[str, str]) -> None:
        self._ids = ids
        self._homes = homes
        self._environment = environment
        self._made = 0

    def __call__(self, name: str, *, group: int | None = None) -> User:
        """Another user, with ``name`` in the name of the account. Members of each other's groups they are not.

        ``group``: a number of which a group is made that has this user as its member.
        """
        uid = self.number()
        account = f"fb{uid - FIRST_ID}-{name}"
        home = self._homes / name
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
        with _accounts_locked():
            _append(Path("/etc/passwd"), f"{account}:x:{uid}:{uid}:test of Forebay:{home}:/bin/sh")
            _append(Path("/etc/group"), f"{account}:x:{uid}:")
            if group is not None:
                _append(Path("/etc/group"), f"{account}-team:x:{group}:{account}")
        paths = {"HOME": str(home), "USER": account, "LOGNAME": account}
        return User(uid, account, home, {**self._environment, **paths})

    def without_account(self, uid: int) -> User:
        """Somebody whom the machine knows by a number alone, as users of other machines are. The home is `/`."""
        return User(uid, str(uid), Path("/"), {**self._environment, "HOME": "/"})

    def number(self) -> int:
        """An id that is nobody's: of a group that users may be in, or of a user whom the machine does not know."""
        assert self._made < len(self._ids), "a test has no more ids"
        self._made += 1
        return self._ids[self._made - 1]

    def __enter__(self) -> Self:
        self._remove_entries()
        return self

    def __exit__(self, *_: object) -> None:
        for pid in _processes_of(self._ids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._remove_entries()

    def _remove_entries(self) -> None:
        """Also those that a killed run left."""
        with _accounts_locked():
            for path in (Path("/etc/passwd"), Path("/etc/group")):
                lines = path.read_text().splitlines(keepends=True)
                kept = [line for line in lines if not self._is_ours(line)]
                if kept != lines:
                    _replace(path, "".join(kept))

    def _is_ours(self, line: str) -> bool:
        fields = line.split(":")
        return len(fields) > 2 and fields[2].isdecimal() and int(fields[2]) in self._ids


@contextlib.contextmanager
def claimed_ids() -> Iterator[range]:
    """Ids that no other test on this machine has until the end. Begins where few other tests look."""
    _LOCKS.mkdir(mode=0o700, exist_ok=True)
    for offset in range(_BLOCKS):
        block = (os.getpid() + offset) % _BLOCKS
        with contextlib.ExitStack() as stack:
            file = stack.enter_context((_LOCKS / str(block)).open("w"))
            if not _lock_if_free(file):
                continue
            first = FIRST_ID + block * BLOCK_IDS
            yield range(first, first + BLOCK_IDS)
            return
    raise AssertionError("other tests have all ids")


def _lock_if_free(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _accounts_locked() -> Iterator[None]:
    """The lock of lckpwdf(3), which useradd and others respect."""
    with open(os.open("/etc/.pwd.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _append(path: Path, line: str) -> None:
    text = path.read_text()
    _replace(path, text + ("" if text.endswith("\n") else "\n") + line + "\n")


def _replace(path: Path, text: str) -> None:
    """Whole, for whoever reads it meanwhile."""
    status = path.stat()
    new = path.with_name(f"{path.name}.forebay-test")
    new.write_text(text)
    os.chown(new, status.st_uid, status.st_gid)
    new.chmod(status.st_mode & 0o7777)
    new.replace(path)


def _processes_of(ids: range) -> list[int]:
    return processes_where(lambda process: process.stat().st_uid in ids or _real_uid(process) in ids)


def _real_uid(process: Path) -> int:
    """A program that is not dumpable belongs to root in /proc."""
    (line,) = (line for line in (process / "status").read_text().splitlines() if line.startswith("Uid:"))
    return int(line.split()[1])
