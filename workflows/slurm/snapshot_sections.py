# SPDX-License-Identifier: Apache-2.0
"""The sections of the snapshot that have a line for each session. There may be ten thousand, of which a call changes
one: texts are kept in parts, and only the part with the change is made again.
"""

from __future__ import annotations

import json
import zlib

from forebay.workflows.slurm.sessions import Session

__all__ = ["Entry", "SnapshotSections"]

_PARTS = 64


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


class _Part:
    """Some of the sessions, with their texts put together."""

    def __init__(self) -> None:
        self.entries: dict[int | str, Entry] = {}
        self._texts: tuple[str, str, str, str] | None = None

    def put(self, key: int | str, entry: Entry | None) -> None:
        self._texts = None
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Lines of sessions, instances and configurations, and sections of variables."""
        if self._texts is None:
            entries = list(self.entries.values())
            held = [entry for entry in entries if entry.instance]
            self._texts = (
                ", ".join([entry.line for entry in entries]),
                ", ".join([entry.instance for entry in held]),
                ", ".join([entry.configuration for entry in held]),
                "".join([entry.paths for entry in entries]),
            )
        return self._texts


class SnapshotSections:
    """All sessions, by the number of the job or the name of the persistent reservation."""

    def __init__(self) -> None:
        self._parts = [_Part() for _ in range(_PARTS)]

    def put(self, key: int | str, entry: Entry | None) -> None:
        """Enters or replaces one; None removes it."""
        number = key if isinstance(key, int) else zlib.crc32(key.encode())
        self._parts[number % _PARTS].put(key, entry)

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(len(part.entries) for part in self._parts)

    def sessions(self) -> list[Session]:
        """All of them: jobs by number, then persistent reservations by name."""
        entries = [item for part in self._parts for item in part.entries.items()]
        entries.sort(key=lambda item: (isinstance(item[0], str), item[0]))
        return [entry.session for _, entry in entries]

    def texts(self) -> list[str]:
        """The sections, in pieces."""
        parts = [part.texts for part in self._parts]
        return [
            _list("sessions", [part[0] for part in parts]),
            _list("instances", [part[1] for part in parts]),
            _list("configurations", [part[2] for part in parts]),
            *(part[3] for part in parts),
        ]


def _list(name: str, parts: list[str]) -> str:
    return f'== show_{name}\n{{"{name}": [{", ".join(filter(None, parts))}]}}\n'
