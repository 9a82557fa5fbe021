# SPDX-License-Identifier: Apache-2.0
"""Writers whose ranks write step by step, as a test tells them, and what a reader then has to find."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np

import forebay
from tests.support.time_limits import seconds

__all__ = ["LENGTH", "Ranks", "Start", "block", "check", "numbers", "start_here"]

#: Elements of a rank's block of 2 MB: more than what goes to the home.
LENGTH = 250_000

#: One rank, which writes a step for each line that it reads. The same from all ranks.
RANK = f"""
import sys, numpy as np, forebay
rank, ranks, address, options = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], eval(sys.argv[4])
stream = forebay.open(address, options.pop("mode", "w"), rank=rank, ranks=ranks, **options)
print("open", flush=True)
for line in sys.stdin:
    number = int(line)
    try:
        with stream.step() as step:
            block = np.arange({LENGTH}.0)[None] + 1e6 * number + rank
            step.write("T", block, shape=(ranks, {LENGTH}), start=(rank, 0))
            step.write("small", np.arange(8.0)[None] + number + rank, shape=(ranks, 8), start=(rank, 0))
    except forebay.ForebayError as error:
        print(error.code, error.what.replace("\\n", " "), flush=True)
    else:
        print("done", flush=True)
stream.close()
print("closed", flush=True)
"""


def block(number: int, rank: int) -> np.ndarray[Any, Any]:
    return np.arange(float(LENGTH)) + 1e6 * number + rank


#: Starts a rank's program, with pipes at its standard input and output.
Start = Callable[[int, list[str]], subprocess.Popen[str]]


def start_here(environment: dict[str, str]) -> Start:
    """All ranks are processes of this node with that environment."""

    def start(_: int, command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    return start


class Rank:
    """A writer's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def begin(self, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()

    def end(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.close()
        line = self.line()
        self._process.wait(seconds(60))
        return line

    def send(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(seconds(60))
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Ranks:
    """A writer group."""

    def __init__(self, start: Start, address: str, ranks: int = 2, **options: Any) -> None:
        rest = [str(ranks), address, repr(options)]
        self.ranks = [Rank(start(rank, [sys.executable, "-c", RANK, str(rank), *rest])) for rank in range(ranks)]
        assert [rank.line() for rank in self.ranks] == ["open"] * ranks

    def write(self, number: int) -> list[str]:
        """What each rank says of its step."""
        for rank in self.ranks:
            rank.begin(number)
        return [rank.line() for rank in self.ranks]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()


def check(stream: forebay.Stream, number: int, content: int | None = None, ranks: int = 2) -> None:
    """All bytes of the step are what was written when the ranks were told ``content``; None: its own number."""
    step = stream[number]
    told = number if content is None else content
    array = step["T"][...]
    for rank in range(ranks):
        assert np.array_equal(array[rank], block(told, rank)), (number, rank)
    assert np.array_equal(step["T"][ranks - 1, 1000:2000], block(told, ranks - 1)[1000:2000])
    assert np.array_equal(step["T"][0:ranks, 5:LENGTH:1000], array[:, 5:LENGTH:1000])
    assert np.array_equal(step["small"][0], np.arange(8.0) + told)


def numbers(stream: forebay.Stream) -> list[int]:
    """Of the steps that are kept."""
    return [step.number for step in stream.steps()]
