# SPDX-License-Identifier: Apache-2.0
"""Which names of a folder are followed, and which of them are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from forebay.errors import InvalidArgumentError
from forebay.files.name_pattern import NamePattern

__all__ = ["NameChoice"]


@dataclass(frozen=True, slots=True)
class NameChoice:
    """The rules of one follower."""

    match: NamePattern
    exclude: tuple[NamePattern, ...] = ()
    until: NamePattern | None = None  #: a name that ends the following
    every: int = 1
    multiple_of: int | None = None

    @classmethod
    def parse(
        cls,
        match: str,
        exclude: Sequence[str] = (),
        until: str = "",
        every: int | None = None,
        multiple_of: int | None = None,
    ) -> Self:
        """From what a user gives.

        Raises
        ------
        InvalidArgumentError
            A pattern or a number is none, or both ways to choose are given.
        """
        if every is not None and multiple_of is not None:
            raise InvalidArgumentError("--every counts names, --multiple-of looks at their numbers: give one of them")
        for option, number in (("--every", every), ("--multiple-of", multiple_of)):
            if number is not None and number < 1:
                raise InvalidArgumentError(f"{option} {number} is too small: give 1 or more")
        return cls(
            NamePattern.parse(match, "--match"),
            tuple(NamePattern.parse(text, "--exclude") for text in exclude),
            NamePattern.parse(until, "--until") if until else None,
            every or 1,
            multiple_of,
        )

    def is_followed(self, name: str) -> bool:
        """It matches, and is not excluded."""
        return self.match.matches(name) and not any(pattern.matches(name) for pattern in self.exclude)

    def ends(self, name: str) -> bool:
        """It is a name that ends the following."""
        return self.until is not None and self.until.matches(name)

    def is_chosen(self, name: str, number: int) -> bool:
        """Whether a followed name is wanted; ``number`` counts names in the order in which they appeared, from 0."""
        if self.multiple_of is None:
            return number % self.every == 0
        in_name = self.match.number_in(name)
        return in_name is not None and in_name % self.multiple_of == 0
