# SPDX-License-Identifier: Apache-2.0
"""Addresses as Snakemake's rules write them: a stream, one of its steps, or a file of a reservation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

__all__ = ["Kind", "Query", "parse_query"]

_SCHEME = "forebay://"
_NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"
_STREAM = re.compile(rf"(?P<reservation>{_NAME})/(?P<stream>{_NAME})(@(?P<step>\d{{1,19}}))?")
_FILE = re.compile(rf"(?P<reservation>{_NAME})/files/(?P<path>[^\0]+)")
_WILDCARD = re.compile(r"\{[^{}]*(\{[^{}]*\}[^{}]*)*\}")


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

    @property
    def suffix(self) -> str:
        """A name of its own among all queries, for a local file or a cache."""
        if self.kind is Kind.FILE:
            return f"{self.reservation}/files/{self.path}"
        return f"{self.reservation}/{self.stream}" + (f"@{self.step}" if self.kind is Kind.STEP else "")


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
    match = _STREAM.fullmatch(rest)
    if match is None or match["stream"] == "files":
        raise ValueError(f"write {_SCHEME}RESERVATION/STREAM, …/STREAM@STEP, or {_SCHEME}RESERVATION/files/PATH")
    if match["step"] is None:
        return Query(Kind.STREAM, match["reservation"], match["stream"])
    return Query(Kind.STEP, match["reservation"], match["stream"], int(match["step"]))


def check_pattern(text: str) -> None:
    """The same for an address that may have wildcards, as ``forebay://run1/flow@{step}``; ValueError."""
    # A wildcard stands for a number behind @, and for a name elsewhere.
    head, at, tail = text.partition("@")
    whole = _WILDCARD.sub("x", head) + (at + _WILDCARD.sub("0", tail) if at else "")
    parse_query(_WILDCARD.sub("x", text) if "/files/" in text else whole)
