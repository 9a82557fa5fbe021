# SPDX-License-Identifier: Apache-2.0
"""What the directives of a job script ask for, as the manager keeps it. `directive_parsing` reads scripts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "IGNORED",
    "CreatePersistent",
    "Directives",
    "FileStage",
    "MatchedStage",
    "StreamStage",
]

#: What is said of lines that stand where Slurm reads none.
IGNORED = "ignored by Slurm, for which directives end at the first command; move such lines above it"

_LINES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FileStage:
    """A `#DW stage_in` or `stage_out`: what is moved between a reservation and a file system."""

    inside: str  #: below the reservation's files; "" is all of them
    outside: str  #: absolute path; a target that ends with a slash is a folder, into which the file goes
    inward: bool
    kind: str  #: "file"; "directory": its contents; "list": `outside` is a file that names what to move
    persistent: str = ""  #: the persistent reservation; "": the job's own


@dataclass(frozen=True, slots=True)
class StreamStage:
    """A `#FB stage_out`: chosen steps of a stream that outlive the job."""

    stream: str  #: of the job's reservation; with a slash, of the persistent one before it
    destination: str
    every: int | None
    steps: str
    format: str


@dataclass(frozen=True, slots=True)
class MatchedStage:
    """A `#FB stage_out` with `match=`: chosen files and folders, taken while the job runs, each when it is complete."""

    inside: str  #: folder below the reservation's files; "" is all of them
    destination: str
    match: str
    every: int | None
    multiple_of: int | None
    exclude: str  #: one pattern; "": nothing
    complete: str  #: "rename", "marker=NAME" or "closed"
    persistent: str = ""  #: the persistent reservation; "": the job's own


@dataclass(frozen=True, slots=True)
class CreatePersistent:
    """A `#BB create_persistent`."""

    name: str
    capacity_bytes: int
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Directives:
    """What a job asks for."""

    capacity_bytes: int = 0  #: of all `jobdw` lines together
    pool: str = ""  #: that they name
    private: bool = False  #: one of them asks for access_mode=private
    persistents: tuple[str, ...] = ()  #: reservations that it uses
    files: tuple[FileStage, ...] = ()
    streams: tuple[StreamStage, ...] = ()
    matched: tuple[MatchedStage, ...] = ()
    creates: tuple[CreatePersistent, ...] = ()
    destroys: tuple[str, ...] = ()
    ignored: tuple[int, ...] = ()  #: lines that look like directives, and stand where Slurm reads none

    @property
    def note(self) -> str:
        """What the job's user should know, although the job runs; "" without anything."""
        if not self.ignored:
            return ""
        several = len(self.ignored) > 1
        shown = ", ".join(map(str, self.ignored[:_LINES_SHOWN])) + (" …" if len(self.ignored) > _LINES_SHOWN else "")
        return f"{'lines' if several else 'line'} {shown} of the script {'are' if several else 'is'} {IGNORED}"

    @property
    def keeps(self) -> bool:
        """Something is to outlive the job."""
        return bool(self.streams or self.matched) or any(not stage.inward for stage in self.files)

    def as_json(self) -> dict[str, Any]:
        """For the manager's books."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Directives:
        """Out of the manager's books."""
        return cls(
            capacity_bytes=document["capacity_bytes"],
            pool=document.get("pool", ""),
            private=document.get("private", False),
            persistents=tuple(document.get("persistents", ())),
            files=tuple(_file_stage_from_json(stage) for stage in document["files"]),
            streams=tuple(StreamStage(**stage) for stage in document["streams"]),
            matched=tuple(MatchedStage(**stage) for stage in document.get("matched", ())),
            creates=tuple(CreatePersistent(**request) for request in document.get("creates", ())),
            destroys=tuple(document.get("destroys", ())),
            ignored=tuple(document.get("ignored", ())),
        )


def _file_stage_from_json(document: dict[str, Any]) -> FileStage:
    return FileStage(
        document["inside"],
        document["outside"],
        document["inward"],
        document.get("kind") or ("directory" if document["is_directory"] else "file"),
        document.get("persistent", ""),
    )
