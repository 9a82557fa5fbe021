# SPDX-License-Identifier: Apache-2.0
"""What a stage is to do; the manager keeps it as JSON and hands it to the process that does it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

from forebay.errors import InvalidArgumentError

__all__ = ["FilesJob", "Job", "MatchedFilesJob", "StepsJob", "job_from_json", "job_to_json"]

_SHOWN_CHARACTERS = 80  # of what is wrong
_SECONDS_MAX = 366 * 86400


@dataclass(frozen=True, slots=True)
class StepsJob:
    """Stage chosen steps of a stream out to a directory."""

    stream: str  #: RESERVATION/STREAM
    destination: str  #: absolute path of a directory
    every: int | None = None
    steps: str = ""  #: numbers and ranges; empty: all
    variables: tuple[str, ...] = ()  #: empty: all
    follow: bool = False  #: continue until the stream ends
    format: str = "bp5"
    consumer: str = ""  #: follow under this name, so that retention can wait for the stage
    run: str = ""  #: with `follow`: wait for the writers that name this run, and take no other run's steps
    accept_unchecked: bool = False  #: also take steps whose writer took no checksums
    accept_gaps: bool = False  #: chosen steps that retention dropped before they could be read are no failure
    mark_partial: bool = False  #: steps count as staged even if only some of their variables were taken
    replace: bool = False  #: outputs of other streams, or of nobody known, may be replaced
    into: str = (
        ""  #: name of one output in the directory that is to have all steps; empty: each step has one of its own
    )

    kind = "steps"


@dataclass(frozen=True, slots=True)
class FilesJob:
    """Copy a file or a tree into or out of a reservation.

    A target that ends with a slash is a directory to copy into.
    """

    reservation: str
    path: str  #: relative to the reservation's files; empty: all of them
    outside: str  #: absolute path outside of the reservation
    inward: bool  #: into the reservation
    #: "file" or "directory": what the source must be, or be a link to, which is followed; "": whatever it is
    only: str = ""
    as_root: bool = False  #: the outside end is opened with root's rights; only root may ask for it
    owner: int | None = None  #: with `as_root`, out of a reservation: user to whom belongs what is made
    group: int | None = None  #: likewise, the group
    acls: bool = False  #: access lists of files of whom the stage runs as are carried
    wait_closed_seconds: float = 60.0  #: for a file that a program has open for writing
    #: of a Slurm job: nodes that were fenced before they had written out their files, of which something may be missing
    unclean_nodes: tuple[str, ...] = ()

    kind = "files"


@dataclass(frozen=True, slots=True)
class MatchedFilesJob:
    """Copy files and folders that match out of a reservation, each when it is complete: docs/design/file-follow.md."""

    reservation: str
    path: str  #: folder below the reservation's files; empty: these themselves
    destination: str  #: absolute path of a folder
    match: str  #: pattern of the names
    exclude: tuple[str, ...] = ()  #: patterns of names that are left out
    complete: str = "rename"  #: or "marker=NAME" or "closed"
    every: int | None = None  #: of the names in the order in which they appear; None: all
    multiple_of: int | None = None  #: instead: those with a number that this one divides
    follow: bool = False  #: take what appears until the end
    until: str = ""  #: pattern of a name that ends the following
    wait_closed_seconds: float = 60.0  #: at the end, for a file that a program has open for writing
    accept_gaps: bool = False  #: chosen names that went before they could be taken are no failure
    replace: bool = False  #: what somebody else put into the destination may be replaced
    acls: bool = False  #: as of `FilesJob`
    unclean_nodes: tuple[str, ...] = ()  #: as of `FilesJob`

    kind = "matched-files"


Job = StepsJob | FilesJob | MatchedFilesJob
_JOBS: tuple[type[Job], ...] = (StepsJob, FilesJob, MatchedFilesJob)


def job_to_json(job: Job) -> dict[str, Any]:
    """The job as a JSON object."""
    return {"kind": job.kind, **asdict(job)}


def job_from_json(document: dict[str, Any]) -> Job:
    """The job of a JSON object; InvalidArgumentError if it is none, or a field of it has another type or no value that
    a program could be given.
    """
    fields = dict(document)
    kind = fields.pop("kind", None)
    found = next((job for job in _JOBS if job.kind == kind), None)
    if found is None:
        raise InvalidArgumentError(f"there is no stage of kind {str(kind)[:_SHOWN_CHARACTERS]!r}")
    types = get_type_hints(found)
    for name, value in fields.items():
        if name not in types:
            raise InvalidArgumentError(f"this is no stage: {kind} has no {name[:_SHOWN_CHARACTERS]!r}")
        expected = _FIELD_TYPES[types[name]]
        if not expected.fits(value):
            raise InvalidArgumentError(
                f"this is no stage: {name} is {expected.what}, not {str(value)[:_SHOWN_CHARACTERS]!r}"
            )
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    try:
        return found(**values)
    except TypeError as error:  # something is missing
        raise InvalidArgumentError(f"this is no stage: {error}") from None


def _is_text(value: Any) -> bool:
    """As an argument of a program, and a file's name: any bytes but NUL, those that are no UTF-8 as Python has them."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _is_time(value: Any) -> bool:
    is_number = _is_number(value) or isinstance(value, float)
    return is_number and math.isfinite(value) and 0 <= value <= _SECONDS_MAX


@dataclass(frozen=True, slots=True)
class _FieldType:
    what: str  #: for people
    fits: Callable[[Any], bool]


_FIELD_TYPES: dict[Any, _FieldType] = {
    str: _FieldType("a text without NUL", _is_text),
    bool: _FieldType("true or false", lambda value: isinstance(value, bool)),
    float: _FieldType(f"a number of seconds up to {_SECONDS_MAX}", _is_time),
    int | None: _FieldType("a whole number of 64 bits or null", lambda value: value is None or _is_number(value)),
    tuple[str, ...]: _FieldType(
        "a list of texts without NUL",
        lambda value: isinstance(value, (list, tuple)) and all(_is_text(element) for element in value),
    ),
}
