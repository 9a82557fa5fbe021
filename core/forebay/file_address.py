# SPDX-License-Identifier: Apache-2.0
"""Addresses of files in a reservation: ``RES:PATH``, or ``forebay://RES/files/PATH``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from forebay.errors import InvalidArgumentError
from forebay.names import NAME_PATTERN
from forebay.records import Record

__all__ = ["FileAddress"]

_NAME = rf"(?P<reservation>{NAME_PATTERN})"
_SHORT = re.compile(rf"{_NAME}:(?!//)(?P<path>.*)", re.DOTALL)
_LONG = re.compile(rf"forebay://{_NAME}/files(?:/(?P<path>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FileAddress(Record):
    """A file or folder below a reservation's ``files/``; an empty path is all of it."""

    reservation: str
    path: str

    @classmethod
    def find(cls, text: str) -> Self | None:
        """The address that the text is; None if it is something else, a stream's address for example."""
        match = _LONG.fullmatch(text) or _SHORT.fullmatch(text)
        return None if match is None else cls(match["reservation"], match["path"] or "")

    @classmethod
    def parse(cls, text: str) -> Self:
        """As :meth:`find`; InvalidArgumentError if it is something else."""
        found = cls.find(text)
        if found is None:
            raise InvalidArgumentError(
                f"{text!r} is not a place in a reservation; write RES:PATH, for example run1:inputs"
            )
        return found

    def __str__(self) -> str:
        return f"{self.reservation}:{self.path}"
