# SPDX-License-Identifier: Apache-2.0
"""What a follower of files remembers: numbers of names, and which version of each is done. Format:
docs/formats/receipt.md#followed-files.

One process writes it at a time. What it says is durable before anything is done by it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from forebay.errors import BusyError, CorruptError, PermissionDeniedError
from forebay.files.checked_lines import checked_line, document_of
from forebay.files.complete_rule import Version

__all__ = ["FollowLog", "InDoubt"]

Json = dict[str, Any]

_FORMAT = {"format": "forebay.follow.files.log", "version": 1}
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class InDoubt:
    """What a follower was about to finish when it was killed."""

    name: str
    version: Version
    rows: tuple[Json, ...]


class FollowLog:
    """An open log, locked."""

    def __init__(self, descriptor: int, where: str) -> None:
        self._descriptor = descriptor
        self._where = where
        self._size_bytes = 0
        self._numbers: dict[str, int] = {}
        self._done: dict[str, tuple[Version, int]] = {}  # with how many versions there were
        self._missed: dict[str, None] = {}
        self._taking: tuple[str, list[Json]] | None = None
        self._in_doubt: InDoubt | None = None

    @classmethod
    def open(cls, folder: int, name: str, subject: Json, where: str) -> FollowLog:
        """Opens or makes the log ``name`` in an open folder.

        Parameters
        ----------
        subject : dict
            What is followed; a log of something else is refused.
        where : str
            The log's path, for messages.

        Raises
        ------
        BusyError
            Another process writes it.
        PermissionDeniedError
            Somebody else has put something under its name.
        CorruptError
            It is damaged before its end, or about something else.
        OSError
            What the system says.
        """
        try:
            descriptor = os.open(name, _FLAGS, dir_fd=folder)
        except FileNotFoundError:
            descriptor = os.open(name, _FLAGS | os.O_CREAT, 0o600, dir_fd=folder)
            os.fsync(folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise PermissionDeniedError(_strange(), where) from None
            raise
        log = cls(descriptor, where)
        try:
            log._check_whose()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    "another process follows these names to this place, or for this consumer; wait for it, or end it",
                    where,
                ) from None
            log._read(_FORMAT | subject)
        except BaseException:
            os.close(descriptor)
            raise
        return log

    @classmethod
    def in_memory(cls, subject: Json) -> FollowLog:
        """A log that is forgotten when it is closed."""
        log = cls(os.memfd_create("forebay-follow", os.MFD_CLOEXEC), "memory")
        log._read(_FORMAT | subject)
        return log

    @property
    def names(self) -> Iterable[str]:
        """All that have appeared, in their order."""
        return self._numbers.keys()

    @property
    def in_doubt(self) -> InDoubt | None:
        """The last process was killed between `finishing` and `done`."""
        return self._in_doubt

    @property
    def done_names(self) -> list[str]:
        """Those of which a version is done."""
        return list(self._done)

    @property
    def missed(self) -> list[str]:
        """Those that went before they could be taken."""
        return list(self._missed)

    def number(self, name: str) -> int | None:
        """How many names appeared before it; None: it has not."""
        return self._numbers.get(name)

    def done_version(self, name: str) -> Version | None:
        """The newest version that is done."""
        done = self._done.get(name)
        return None if done is None else done[0]

    def versions(self, name: str) -> int:
        """How many versions of a name were done."""
        return self._done[name][1] if name in self._done else 0

    def add_names(self, names: Iterable[str]) -> None:
        """Numbers names that have appeared, in this order. Durable when this returns."""
        fresh = [name for name in names if name not in self._numbers]
        if fresh:
            first = len(self._numbers)
            self._append([{"appeared": name, "number": first + place} for place, name in enumerate(fresh)])

    def begin(self, name: str) -> None:
        """A version of this name is worked on; what was said of another attempt is forgotten."""
        self._append([{"taking": name}], durable=False)

    def add_rows(self, rows: list[Json]) -> None:
        """Files of what is worked on, for the receipt."""
        self._append([{"rows": rows}], durable=False)

    def finishing(self, name: str, version: Version) -> None:
        """All that is missing is its name. Durable when this returns."""
        self._append([{"finishing": name, "version": asdict(version)}])

    def done(self, name: str) -> None:
        """It has its name."""
        self._append([{"done": name}], durable=False)

    def passed(self, name: str, version: Version) -> None:
        """A version is done, and was never in doubt. Durable when this returns."""
        self._append([{"finishing": name, "version": asdict(version)}, {"done": name}])

    def undone(self, name: str) -> None:
        """It was in doubt, and has not got its name."""
        self._append([{"undone": name}])

    def add_missed(self, name: str) -> None:
        """It went before it could be taken. Durable when this returns."""
        if name not in self._missed:
            self._append([{"missed": name}])

    def rows(self) -> Iterator[tuple[str, list[Json]]]:
        """The rows of the newest version that is done, name by name."""
        last: dict[str, int] = {}
        for place, document in self._documents():
            if "done" in document:
                last[document["done"]] = place
        rows: list[Json] = []
        for place, document in self._documents():
            if "taking" in document:
                rows = []
            elif "rows" in document:
                rows.extend(document["rows"])
            elif "done" in document and last[document["done"]] == place:
                yield document["done"], rows

    def close(self) -> None:
        """Closes the file, which stays, and lets others write it."""
        os.close(self._descriptor)

    def _check_whose(self) -> None:
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
            raise PermissionDeniedError(_strange(), self._where)

    def _read(self, head: Json) -> None:
        size_bytes = os.fstat(self._descriptor).st_size
        documents = self._documents()
        self._size_bytes, first = next(documents, (0, None))
        if first is None:
            # New, or its maker was killed before it said what it is.
            os.ftruncate(self._descriptor, 0)
            self._append([head])
            return
        if first != head:
            raise CorruptError(
                "this is no log of these names, or of another version of Forebay; move it away to begin anew",
                self._where,
            )
        try:
            for self._size_bytes, document in documents:
                self._take(document)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(
                f"the log has an entry that is none ({error}); move it away to begin anew", self._where
            ) from None
        if self._size_bytes < size_bytes:
            os.ftruncate(self._descriptor, self._size_bytes)

    def _documents(self) -> Iterator[tuple[int, Json]]:
        """What the whole lines say, each with where it ends. An incomplete line at the end is left out."""
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            place, bad = 0, False
            for line in file:
                document = document_of(line[:-1]) if line.endswith(b"\n") else None
                if not isinstance(document, dict):
                    bad = True
                    continue
                if bad:
                    raise CorruptError("the log is damaged; move it away to begin anew", self._where)
                place += len(line)
                yield place, document

    def _append(self, documents: list[Json], *, durable: bool = True) -> None:
        lines = b"".join(map(checked_line, documents))
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            if durable:
                os.fsync(self._descriptor)
        except OSError:
            # What comes next must not come behind half a line.
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(lines)
        for document in documents:
            self._take(document)

    def _take(self, document: Json) -> None:
        """Changes what is known by what a line says."""
        if "appeared" in document:
            self._numbers[document["appeared"]] = int(document["number"])
        elif "taking" in document:
            self._taking = (document["taking"], [])
            self._in_doubt = None
        elif "rows" in document and self._taking is not None:
            self._taking[1].extend(document["rows"])
        elif "finishing" in document:
            rows = self._taking[1] if self._taking is not None else []
            self._in_doubt = InDoubt(document["finishing"], Version(**document["version"]), tuple(rows))
        elif "done" in document and self._in_doubt is not None:
            name = document["done"]
            self._done[name] = (self._in_doubt.version, self.versions(name) + 1)
            self._missed.pop(name, None)
            self._taking = self._in_doubt = None
        elif "undone" in document:
            self._taking = self._in_doubt = None
        elif "missed" in document:
            self._missed[document["missed"]] = None


def _strange() -> str:
    return "something that is not this follower's own log has its name; remove it, or let the log lie elsewhere"
