# SPDX-License-Identifier: Apache-2.0
"""Patterns of names, as in a shell: ``*``, ``?``, ``[a-z]`` and ``[!0-9]``. A match also tells what the wildcards stand
for, in time that grows with the product of both lengths, whatever somebody else calls a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from forebay.errors import InvalidArgumentError

__all__ = ["NamePattern"]

_CHARACTERS_MAX = 255
_DIGITS = re.compile(r"[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Token:
    """One character of a name, or with `takes` None any number of any characters."""

    is_wildcard: bool
    takes: Callable[[str], bool] | None


class NamePattern:
    """A parsed pattern."""

    def __init__(self, text: str, tokens: tuple[_Token, ...]) -> None:
        self.text = text
        self._tokens = tokens

    @classmethod
    def parse(cls, text: str, option: str) -> Self:
        """The pattern; InvalidArgumentError, which names the ``option``, if it is none."""
        if not text or len(text) > _CHARACTERS_MAX or "/" in text or "\0" in text:
            raise InvalidArgumentError(
                f"{option} {text[:80]!r} is no pattern of names: write 1 to {_CHARACTERS_MAX} characters without a "
                "slash, for example 'chk?????'; the folder goes before it, into RES:DIR"
            )
        tokens: list[_Token] = []
        place = 0
        while place < len(text):
            character = text[place]
            place += 1
            if character == "*":
                if not tokens or tokens[-1].takes is not None:
                    tokens.append(_Token(True, None))
            elif character == "?":
                tokens.append(_Token(True, lambda _: True))
            elif character == "[" and (end := text.find("]", place + 1 + text.startswith("!", place))) > 0:
                tokens.append(_Token(True, _set(text[place:end])))
                place = end + 1
            else:
                tokens.append(_Token(False, character.__eq__))
        return cls(text, tuple(tokens))

    def matches(self, name: str) -> bool:
        """True for a name that the pattern matches; one that begins with a dot needs a pattern that does."""
        return self._spans(name) is not None

    def number_in(self, name: str) -> int | None:
        """The number that the wildcards stand for; None if they stand for none, or the name does not match.

        Neighbouring wildcards stand for one text. The first such text that is all digits is the number, else the last
        digits of the last text that has some.
        """
        spans = self._spans(name)
        if spans is None:
            return None
        texts: list[str] = []
        before = False
        for token, (begin, end) in zip(self._tokens, spans, strict=True):
            if token.is_wildcard:
                texts = [*texts[:-1], texts[-1] + name[begin:end]] if before else [*texts, name[begin:end]]
            before = token.is_wildcard
        whole = [text for text in texts if _DIGITS.fullmatch(text)]
        parts = [found[-1] for text in texts if (found := _DIGITS.findall(text))]
        chosen = whole[0] if whole else parts[-1] if parts else None
        return None if chosen is None else int(chosen)

    def _spans(self, name: str) -> list[tuple[int, int]] | None:
        """Which part of the name each token takes; None if it does not match."""
        if name.startswith(".") and not self.text.startswith("."):
            return None
        spans: list[tuple[int, int]] = []
        place = 0
        star: int | None = None  # the last one, to which the search goes back: earlier ones need not take more
        while place < len(name) or len(spans) < len(self._tokens):
            token = self._tokens[len(spans)] if len(spans) < len(self._tokens) else None
            if token is not None and token.takes is None:
                star = len(spans)
                spans.append((place, place))
            elif token is not None and token.takes is not None and place < len(name) and token.takes(name[place]):
                spans.append((place, place + 1))
                place += 1
            elif star is not None and spans[star][1] < len(name):
                begin, end = spans[star]
                del spans[star:]
                spans.append((begin, end + 1))
                place = end + 1
            else:
                return None
        return spans


def _set(text: str) -> Callable[[str], bool]:
    """What ``[text]`` takes."""
    negated = text.startswith("!")
    text = text[negated:]
    ranges = []
    place = 0
    while place < len(text):
        is_range = text[place + 1 : place + 2] == "-" and place + 2 < len(text)
        ranges.append((text[place], text[place + 2] if is_range else text[place]))
        place += 3 if is_range else 1
    return lambda character: any(low <= character <= high for low, high in ranges) is not negated
