# SPDX-License-Identifier: Apache-2.0
"""Addresses of sealed views: ``RES/STREAM@STEP.FORMAT`` and ``RES/STREAM@STEP/VARIABLE.FORMAT``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from forebay.errors import InvalidArgumentError
from forebay.records import Address
from forebay.step import Step

__all__ = ["ViewAddress"]

_LATEST = "latest"
_STEP = re.compile(
    rf"(?P<stream>[^@]+)@(?P<step>[0-9]{{1,19}}|{_LATEST})(?:/(?P<variable>.+))?\.(?P<format>[A-Za-z0-9]+)", re.DOTALL
)
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9_.+-]")


@dataclass(frozen=True, slots=True)
class ViewAddress:
    """Which step, as which file."""

    stream: str  #: as `forebay.open` takes it
    step: int | None  #: None: the newest
    variable: str | None  #: None: all
    format: str  #: without the full stop: "h5"

    @classmethod
    def parse(cls, text: str) -> Self:
        """InvalidArgumentError if the text is no such address."""
        match = _STEP.fullmatch(text)
        if match is None:
            raise InvalidArgumentError(
                f"{text!r} is not a view of a step: write RES/STREAM@STEP.h5, or RES/STREAM@STEP/VARIABLE.npy; STEP is "
                f"a number or {_LATEST}"
            )
        Address.parse(match["stream"])
        step = None if match["step"] == _LATEST else int(match["step"])
        return cls(match["stream"], step, match["variable"], match["format"].lower())

    def file_name(self, step: Step) -> str:
        """What the file is called: ``flow@17.h5``, and ``flow@17-T.npy`` for one variable."""
        variable = "" if self.variable is None else "-" + _NO_FILE_NAME.sub("_", self.variable)[:100]
        return f"{step.address.stream}@{step.number}{variable}.{self.format}"
