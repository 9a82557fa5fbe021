# SPDX-License-Identifier: Apache-2.0
"""What `forebay advise` answers: a verdict, at most three actions, and the lines that carry them out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

__all__ = ["ACTIONS_MAX", "Action", "Advice", "ready_lines"]

ACTIONS_MAX = 3


@dataclass(frozen=True)
class Action:
    """One thing to do."""

    #: Of the rule that it follows from; docs/how-to/advise.md has the table.
    rule: int
    #: An imperative.
    what: str
    #: What was seen that asks for it.
    because: str
    #: What to expect, as far as anybody knows.
    effect: str
    #: Who says so.
    source: str
    #: What to type or paste.
    lines: tuple[str, ...] = ()
    #: For MPI-IO: a file, and `name=value`.
    hints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Advice:
    """The answer for one run or one stream."""

    #: Whether anything is worth doing.
    worthwhile: bool
    #: One or two sentences.
    verdict: str
    #: Share of the run time that input and output took at most, and so what can be gained: 0 to 1. None: unknown.
    gain_max: float | None
    #: All rules whose condition holds, also where it is not worthwhile.
    rules: tuple[int, ...]
    #: The weightiest first.
    actions: tuple[Action, ...]
    #: What limits the judgement.
    remarks: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What carries the actions out, ready to paste."""
        return ready_lines(self.actions)

    def as_json(self) -> dict[str, Any]:
        """A document of JSON."""
        return {
            "worthwhile": self.worthwhile,
            "verdict": self.verdict,
            "gain_max": self.gain_max,
            "rules": list(self.rules),
            "actions": [
                {
                    "rule": action.rule,
                    "what": action.what,
                    "because": action.because,
                    "effect": action.effect,
                    "source": action.source,
                    "lines": list(ready_lines([action])),
                }
                for action in self.actions
            ],
            "lines": list(self.lines),
            "remarks": list(self.remarks),
        }


def ready_lines(actions: Sequence[Action]) -> tuple[str, ...]:
    """The lines of all actions, each once, and one line with all hints for MPI-IO.

    Paths are quoted for the shell: logs come from others.
    """
    hints: dict[str, list[str]] = {}
    for action in actions:
        for path, hint in action.hints:
            # A path with the signs of this syntax cannot be named in it.
            hints.setdefault("*" if set(path) & set(":,") else path, []).append(hint)
    lines = [line for action in actions for line in action.lines]
    if hints:
        by_file = ",".join(":".join([path, *_once(found)]) for path, found in hints.items())
        lines.append(f"export MPICH_MPIIO_HINTS={quote(by_file)}")
    return tuple(_once(lines))


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
