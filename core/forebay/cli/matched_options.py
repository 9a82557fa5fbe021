# SPDX-License-Identifier: Apache-2.0
"""Options of `forebay stage-out` and `forebay follow` for names that match, and the stage that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from forebay.durations import parse_duration
from forebay.errors import InvalidArgumentError
from forebay.file_address import FileAddress
from forebay.files.complete_rule import CompleteRule
from forebay.files.name_choice import NameChoice
from forebay.manager.jobs import MatchedFilesJob

__all__ = [
    "CompleteOption",
    "ExcludeOption",
    "MatchOption",
    "MatchedOptions",
    "MultipleOfOption",
    "UntilOption",
    "WaitClosedOption",
    "wait_closed_seconds",
]

_WAIT_CLOSED_SECONDS_MAX = 86400.0

MatchOption = Annotated[
    str,
    typer.Option(
        "--match",
        metavar="GLOB",
        help="Files: take each file or folder in RES:PATH whose name matches, such as 'chk?????'.",
    ),
]
ExcludeOption = Annotated[
    list[str], typer.Option("--exclude", metavar="GLOB", help="With --match: but none of these. May be repeated.")
]
CompleteOption = Annotated[
    str,
    typer.Option(
        "--complete",
        metavar="RULE",
        help="With --match: when a name is whole. rename: as soon as it is there. marker=NAME: when a folder has an "
        "entry NAME, or beside a file lies FILENAME followed by NAME. closed: when no program has the file open for "
        "writing.",
        show_default="rename",
    ),
]
MultipleOfOption = Annotated[
    int | None,
    typer.Option(
        "--multiple-of",
        min=1,
        metavar="N",
        help="With --match: only names with a number that N divides: the digits that the wildcards stand for.",
    ),
]
UntilOption = Annotated[
    str,
    typer.Option("--until", metavar="GLOB", help="With --match: follow until a name like this has appeared."),
]
WaitClosedOption = Annotated[
    str,
    typer.Option(
        "--wait-closed",
        metavar="TIME",
        help="So long, such as 90s, a file is waited for that a program has open for writing; then it is refused.",
        show_default="60s",
    ),
]


@dataclass(frozen=True, slots=True)
class MatchedOptions:
    """What was given; empty values were not."""

    match: str
    exclude: tuple[str, ...]
    complete: str
    multiple_of: int | None
    until: str

    @property
    def given(self) -> list[str]:
        """The options that need `--match`."""
        options = {
            "--exclude": self.exclude,
            "--complete": self.complete,
            "--multiple-of": self.multiple_of is not None,
            "--until": self.until,
        }
        return [name for name, is_given in options.items() if is_given]

    def job(
        self,
        place: FileAddress,
        destination: str,
        *,
        every: int | None,
        follow: bool,
        wait_closed: str,
        accept_gaps: bool,
        replace: bool,
        acls: bool,
    ) -> MatchedFilesJob:
        """The stage; InvalidArgumentError for what cannot be asked for."""
        NameChoice.parse(self.match, self.exclude, self.until, every, self.multiple_of)
        if self.until and not follow:
            raise InvalidArgumentError("--until goes with --follow")
        return MatchedFilesJob(
            reservation=place.reservation,
            path=place.path,
            destination=destination,
            match=self.match,
            exclude=self.exclude,
            complete=str(CompleteRule.parse(self.complete or "rename")),
            every=every,
            multiple_of=self.multiple_of,
            follow=follow,
            until=self.until,
            wait_closed_seconds=wait_closed_seconds(wait_closed),
            accept_gaps=accept_gaps,
            replace=replace,
            acls=acls,
        )


def wait_closed_seconds(text: str) -> float:
    """Of `--wait-closed`; without it a minute."""
    seconds = parse_duration(text or "60s")
    if seconds > _WAIT_CLOSED_SECONDS_MAX:
        raise InvalidArgumentError(f"--wait-closed {text} is too long: give at most 1d")
    return seconds
