# SPDX-License-Identifier: Apache-2.0
"""Runs one command of `forebay follow` as a child that ends with this process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence

__all__ = ["ChildCommand"]

_PR_SET_PDEATHSIG = 1
_END_SECONDS_MAX = 10.0
_PLACE = re.compile(r"\{(\w+)\}")
#: What no shell takes for anything but itself, quoted or not.
_HARMLESS = re.compile(r"[\w@%+=:,./~-]*")


class ChildCommand:
    """A command with places in its words, run once for each step or file.

    Parameters
    ----------
    words : sequence of str
        The command; ``{name}`` in a word stands for a value that each run gets.
    environment : mapping
        What it runs with.
    output : int, optional
        File descriptor of its standard output; not given: this process's.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], output: int | None = None) -> None:
        self._words = words
        self._environment = dict(environment)
        self._output = output
        self._die_with_parent = _dying_with_parent()

    async def run(self, values: Mapping[str, str]) -> str:
        """Why it failed; empty: it did not. If the task is cancelled, the command is ended."""
        for word in self._words:
            if unsafe := _unsafe(word, values):
                return (
                    f"{unsafe!r} stands inside the word {word!r}, and has characters that mean something to a shell; "
                    "give the place a word of its own, as in sh -c 'COMMAND \"$1\"' sh {path}"
                )
        words = [_filled(word, values) for word in self._words]
        try:
            child = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._output,
                env=self._environment,
                preexec_fn=self._die_with_parent,
            )
        except OSError as error:
            return f"{words[0]} cannot be run: {error.strerror or error}"
        try:
            status = await child.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), _END_SECONDS_MAX)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
            raise
        if status < 0:
            return f"{words[0]} was killed by {signal.Signals(-status).name}"
        return f"{words[0]} ended with status {status}" if status else ""


def _unsafe(word: str, values: Mapping[str, str]) -> str:
    """A value that is not to stand inside this word, which a shell may read: others choose names of files."""
    if _PLACE.fullmatch(word):
        return ""
    inside = (values.get(place[1], "") for place in _PLACE.finditer(word))
    return next((value for value in inside if not _HARMLESS.fullmatch(value)), "")


def _filled(word: str, values: Mapping[str, str]) -> str:
    """In one pass: a file may have any name, `{number}` as well."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), word)


def _dying_with_parent() -> Callable[[], None]:
    """What a child does first, so that no command goes on, and writes, beside the one of the follower's successor."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return die_with_parent
