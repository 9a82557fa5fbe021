# SPDX-License-Identifier: Apache-2.0
"""The lines of a job script that hold directives, as Slurm finds them: up to the first line that is no comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forebay.errors import InvalidArgumentError

__all__ = ["KINDS", "DirectiveLine", "almost_directives", "directive_lines", "ignored_lines", "parse_slurm_size"]

#: Lines of DataWarp's jobs, of its persistent buffers, and our own, which Slurm takes for comments.
KINDS = ("#DW", "#BB", "#FB")

_UNITS: dict[str, int] = {"": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGTP", start=1)
    for unit, base in ((letter, 1024), (f"{letter}iB", 1024), (f"{letter}B", 1000))
}
_SIZE = re.compile(r"([0-9]{1,18})([A-Za-z]*)")
_LINE_CHARACTERS_MAX = 4096
_LINES_MAX = 1000
_BEGINNINGS = tuple(kind + blank for kind in KINDS for blank in " \t")
_DIRECTIVE = re.compile(rf"\s*(?:{'|'.join(KINDS)})\s")
#: A comment to Slurm that was surely meant as a directive.
_ALMOST = re.compile(r"#\s*(?:DW|BB|FB)\s+(?:jobdw|persistentdw|stage_in|stage_out|\w+_persistent)\b", re.IGNORECASE)
_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclass(frozen=True, slots=True)
class DirectiveLine:
    """One directive; it may have been continued over several lines."""

    number: int  #: of its first line
    text: str

    @property
    def words(self) -> list[str]:
        """Kind, verb, options. Blanks separate, however many."""
        return self.text.split()

    @property
    def kind(self) -> str:
        return self.text[:3]

    @property
    def verb(self) -> str:
        """The second word, "" without one."""
        return words[1] if len(words := self.words) > 1 else ""

    def has(self, key: str, value: str) -> bool:
        """The word ``key=value`` stands there."""
        return f"{key}={value}" in self.words

    def names(self, key: str) -> bool:
        """A word ``key=…`` stands there."""
        return any(word.startswith(f"{key}=") for word in self.words)

    def options(
        self, allowed: tuple[str, ...], *, needed: tuple[str, ...] = (), flags: tuple[str, ...] = ()
    ) -> dict[str, str]:
        """The words ``key=value``; a flag that stands there has the value "".

        Raises
        ------
        InvalidArgumentError
            A word is neither, is not known here, stands there twice, or is missing.
        """
        options: dict[str, str] = {}
        for word in self.words[2:]:
            key, equals, value = word.partition("=")
            if (not equals and key not in flags) or (equals and (not key or not value)):
                raise InvalidArgumentError(f'"{word[:80]}" is no key=value')
            if key not in (allowed if equals else flags):
                raise InvalidArgumentError(f"{key[:80]}= is not known here; known are {', '.join(allowed)}")
            if key in options:
                raise InvalidArgumentError(f"{key}= stands there twice")
            options[key] = value
        for key in needed:
            if key not in options:
                raise InvalidArgumentError(f"{key}= is missing")
        return options

    def error(self, reason: str) -> InvalidArgumentError:
        """A refusal of this line."""
        return InvalidArgumentError(f"line {self.number} of the script: {reason}", self.text[:200])


def directive_lines(script: bytes) -> Iterator[DirectiveLine]:
    """The directives. A backslash at the end continues a line; Slurm ends the script with a NUL.

    Raises
    ------
    InvalidArgumentError
        A line is too long, or there are too many.
    """
    whole, begun_at, count = "", 0, 0
    for number, text in enumerate(script.rstrip(b"\0").decode("utf-8", errors="replace").split("\n"), start=1):
        line = text.rstrip("\r")
        if not whole and line and not line.startswith("#"):
            return
        begun_at = begun_at if whole else number
        continues = line.endswith("\\") and bool(whole or line.startswith(KINDS))
        whole += line[:-1] + " " if continues else line
        is_directive = whole.startswith(_BEGINNINGS)
        if (is_directive or continues) and len(whole) > _LINE_CHARACTERS_MAX:
            raise InvalidArgumentError(
                f"line {begun_at} of the script is longer than {_LINE_CHARACTERS_MAX} characters"
            )
        if continues:
            continue
        if is_directive:
            count += 1
            if count > _LINES_MAX:
                raise InvalidArgumentError(
                    f"line {begun_at} of the script: more than {_LINES_MAX} directives; stage whole directories, or "
                    "use type=list"
                )
            yield DirectiveLine(begun_at, whole)
        whole = ""
    if whole:
        yield DirectiveLine(begun_at, whole)


def ignored_lines(script: bytes) -> Iterator[DirectiveLine]:
    """Lines behind the first command that look like directives. Those of a here-document are another script's."""
    is_behind, continues, here = False, False, ""
    for number, text in enumerate(script.rstrip(b"\0").decode("utf-8", errors="replace").split("\n"), start=1):
        line = text.rstrip("\r")
        if not is_behind:
            is_behind = not continues and bool(line) and not line.startswith("#")
            continues = line.endswith("\\") and (continues or line.startswith(KINDS))
        if not is_behind:
            continue
        if here:
            here = "" if line.strip() == here else here
        elif _DIRECTIVE.match(line):
            yield DirectiveLine(number, line.strip())
        elif (document := _HERE_DOCUMENT.search(line)) is not None:
            here = document[2]


def almost_directives(script: bytes) -> Iterator[DirectiveLine]:
    """Lines above the first command that Slurm takes for comments, and that differ from directives by a blank, or by
    small letters.
    """
    continues = False
    for number, text in enumerate(script.rstrip(b"\0").decode("utf-8", errors="replace").split("\n"), start=1):
        line = text.rstrip("\r")
        if not continues and line and not line.startswith("#"):
            return
        if not continues and not line.startswith(KINDS) and _ALMOST.match(line):
            yield DirectiveLine(number, line)
        continues = line.endswith("\\") and (continues or line.startswith(KINDS))


def parse_slurm_size(text: str) -> int:
    """A size as Slurm and `capacity=` write it (`10GiB`, `112MiB`, `0`): a whole number, and K to P or KiB to PiB for
    powers of 1024, or KB to PB for powers of 1000.

    Raises
    ------
    InvalidArgumentError
        It is none. Slurm would take `1.5GiB` for one byte.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise InvalidArgumentError(
            f"capacity={text[:80]} is no size; write a whole number and a unit, for example 1536MiB"
        )
    unit_bytes: int = _UNITS[match[2]]
    return int(match[1]) * unit_bytes
