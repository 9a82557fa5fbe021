# SPDX-License-Identifier: Apache-2.0
"""What merging the outputs of single steps into one has in common for all formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from forebay.errors import CorruptError
from forebay.workflows.staging.outputs import Advance

__all__ = ["JoinedAttributes", "Merger", "SingleStep", "check_bytes"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SingleStep:
    """An output of one step, checked against its receipt."""

    number: int
    path: Path


class Merger(Protocol):
    """Makes one output of many; used once."""

    notes: list[str]  #: what the one output cannot hold as the many do, for people

    def write(self, steps: Sequence[SingleStep], path: Path, advance: Advance) -> None:
        """Writes all that the outputs have to a path that does not exist; UnsupportedError if the format cannot."""

    def compare(self, steps: Sequence[SingleStep], path: Path, advance: Advance) -> None:
        """Reads it back; CorruptError if it is not what `write` read from the single outputs."""


class JoinedAttributes(Generic[Value]):
    """Attributes of many steps, by name, in a file that has one set of them: the last value counts."""

    def __init__(self, is_same: Callable[[Value, Value], bool]) -> None:
        self.values: dict[str, Value] = {}
        self._is_same = is_same
        self._changing: set[str] = set()

    def add(self, values: Mapping[str, Value]) -> None:
        """Those of the next step."""
        for name, value in values.items():
            if name in self.values and not self._is_same(self.values[name], value):
                self._changing.add(name)
            self.values[name] = value

    def notes(self) -> list[str]:
        """What is lost by it."""
        if not self._changing:
            return []
        names = sorted(self._changing)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return [f"attributes that differ from step to step have the value of the last one: {shown}"]


def check_bytes(found: int, expected: int, path: Path, name: str, number: int) -> None:
    """CorruptError unless the checksums are equal."""
    if found != expected:
        raise CorruptError(
            f"variable {name!r} of step {number} reads back as something else; the destination's storage may be "
            "failing",
            str(path),
        )
