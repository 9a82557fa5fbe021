# SPDX-License-Identifier: Apache-2.0
"""What the snapshot has of each session. There may be ten thousand, of which a call changes one: they lie in a fixed
number of parts, a file each, and only the part with the change is written again.
"""

from __future__ import annotations

import json
import zlib

from forebay.workflows.slurm.sessions import Session

__all__ = ["PARTS", "Entry", "SnapshotSections", "part_name", "part_of_job"]

#: How many parts there are; the head of the snapshot says so to whoever reads it.
PARTS = 64


def part_name(number: int) -> str:
    """Of a part's file, beside the snapshot."""
    return f"snapshot.{number}"


def part_of_job(token: str, parts: int) -> int:
    """The part that has the job: whoever wants its variables reads no other one."""
    return int(token) % parts


class Entry:
    """A session with its lines. Slurm turns each apostrophe into a quotation mark; names here have none."""

    def __init__(self, session: Session, paths: str = "") -> None:
        number = session.id
        self.session = session
        self.paths = paths  #: its section of variables; "" if there are none yet
        self.line = json.dumps(
            {"id": number, "token": session.token, "owner": session.owner_uid, "created": session.created_seconds}
        )
        self.instance = self.configuration = ""
        if session.files_bytes:
            instance = {"id": number, "capacity": {"bytes": session.files_bytes}, "links": {"session": number}}
            self.instance = json.dumps(instance)
            self.configuration = json.dumps({"id": number, "links": {"instance": number}})


class SnapshotSections:
    """All sessions, by the number of the job or the name of the persistent reservation."""

    def __init__(self) -> None:
        self._parts: list[dict[int | str, Entry]] = [{} for _ in range(PARTS)]
        self._places: dict[int | str, int] = {}  # the part of each
        #: Parts to be written; whoever has written one takes it out.
        self.changed: set[int] = set(range(PARTS))

    def put(self, key: int | str, entry: Entry | None) -> None:
        """Enters or replaces one; None removes it."""
        number = self._places.get(key)
        if entry is not None:
            if number is None:
                if isinstance(key, str):
                    number = zlib.crc32(key.encode()) % PARTS
                else:
                    number = part_of_job(entry.session.token, PARTS)
                self._places[key] = number
            self._parts[number][key] = entry
        elif number is not None:
            del self._parts[number][key], self._places[key]
        if number is not None:
            self.changed.add(number)

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self._parts))

    def sessions(self) -> list[Session]:
        """All of them: jobs by number, then persistent reservations by name."""
        entries = [item for part in self._parts for item in part.items()]
        entries.sort(key=lambda item: (isinstance(item[0], str), item[0]))
        return [entry.session for _, entry in entries]

    def texts(self, number: int) -> list[str]:
        """The sections of a part: of each list its items, in one line, then the variables of jobs."""
        entries = self._parts[number].values()
        return [
            _items("sessions", [entry.line for entry in entries]),
            _items("instances", [entry.instance for entry in entries if entry.instance]),
            _items("configurations", [entry.configuration for entry in entries if entry.configuration]),
            *(entry.paths for entry in entries),
        ]


def _items(name: str, items: list[str]) -> str:
    return f"== {name}\n{', '.join(items)}\n"
