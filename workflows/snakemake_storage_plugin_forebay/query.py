# SPDX-License-Identifier: Apache-2.0
"""Addresses as Snakemake's rules write them: a stream, one of its steps, or a file of a reservation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from forebay.names import NAME_PATTERN

__all__ = ["ENDINGS", "Kind", "Query", "check_pattern", "local_suffix", "parse_query"]

_SCHEME = "forebay://"
_STREAM = re.compile(rf"(?P<reservation>{NAME_PATTERN})/(?P<stream>{NAME_PATTERN})(@(?P<step>\d{{1,19}}))?")
_FORMAT = re.compile(r"\?format=(?P<format>h5|bp5)")
_FILE = re.compile(rf"(?P<reservation>{NAME_PATTERN})/files/(?P<path>[^\0]+)")
_WILDCARD = re.compile(r"\{[^{}]*(\{[^{}]*\}[^{}]*)*\}")


#: What a local file of a stream or step is called: a ticket, or a file in another format.
TICKET_ENDING = ".forebay"
ENDINGS = {"": TICKET_ENDING, "h5": ".h5", "bp5": ".bp"}


class Kind(Enum):
    """What an address names."""

    STREAM = "stream"
    STEP = "step"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Query:
    """One address without wildcards."""

    kind: Kind
    reservation: str
    stream: str = ""
    step: int = -1
    path: str = ""  #: relative to the reservation's files
    format: str = ""  #: of a step that is wanted as a file: "h5" or "bp5"

    @property
    def suffix(self) -> str:
        """A name of its own among all queries, for a local file or a cache."""
        if self.kind is Kind.FILE:
            return f"{self.reservation}/files/{self.path}"
        return f"{self.address}{ENDINGS[self.format]}"

    @property
    def address(self) -> str:
        """Of the stream or step: ``RES/STREAM`` or ``RES/STREAM@17``."""
        return f"{self.reservation}/{self.stream}" + (f"@{self.step}" if self.kind is Kind.STEP else "")


def local_suffix(text: str) -> str:
    """`Query.suffix`, also of an address with wildcards."""
    rest = text.removeprefix(_SCHEME)
    if "/files/" in rest:
        return rest
    match = _FORMAT.search(rest)
    return rest + TICKET_ENDING if match is None else rest[: match.start()] + ENDINGS[match["format"]]


def parse_query(text: str) -> Query:
    """The address.

    Raises
    ------
    ValueError
        It is none; the text says why.
    """
    if not text.startswith(_SCHEME):
        raise ValueError(f"an address begins with {_SCHEME}")
    rest = text[len(_SCHEME) :]
    if match := _FILE.fullmatch(rest):
        path = match["path"]
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError("a file's path has no empty part, '.' or '..'")
        return Query(Kind.FILE, match["reservation"], path=path)
    place, question, _ = rest.partition("?")
    wanted = _FORMAT.fullmatch(rest[len(place) :])
    match = _STREAM.fullmatch(place)
    if match is None or match["stream"] == "files" or (question and wanted is None):
        raise ValueError(
            f"write {_SCHEME}RESERVATION/STREAM, …/STREAM@STEP, …/STREAM@STEP?format=h5 (or bp5), or "
            f"{_SCHEME}RESERVATION/files/PATH"
        )
    if match["step"] is None:
        if wanted is not None:
            raise ValueError("a single step has a format, a stream does not: write …/STREAM@STEP?format=h5 (or bp5)")
        return Query(Kind.STREAM, match["reservation"], match["stream"])
    return Query(
        Kind.STEP,
        match["reservation"],
        match["stream"],
        int(match["step"]),
        format="" if wanted is None else wanted["format"],
    )


def check_pattern(text: str) -> None:
    """The same for an address that may have wildcards, as ``forebay://run1/flow@{step}``; ValueError."""
    # A wildcard stands for a number behind @, and for a name elsewhere.
    head, at, tail = text.partition("@")
    step, question, wanted = tail.partition("?")
    whole = _WILDCARD.sub("x", head) + (at + _WILDCARD.sub("0", step) + question + wanted if at else "")
    parse_query(_WILDCARD.sub("x", text) if "/files/" in text else whole)
