# SPDX-License-Identifier: Apache-2.0
"""What the fault tests share: the seed and the number of rounds, and servers of their own that may be killed."""

from __future__ import annotations

import itertools
import os
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fault.instance import Instance
from tests.support.randomness import TEST_SEED, times

#: Where a client may die over each message.
MESSAGE_PLACES = ["client.message.before_send", "client.message.after_send", "client.message.received"]


def pytest_report_header() -> str:
    """The seed, so that a failure can be replayed."""
    count = os.environ.get("FOREBAY_TEST_COUNT", "(default)")
    return f"fault tests: FOREBAY_TEST_SEED={TEST_SEED} FOREBAY_TEST_COUNT={count}"


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of the test's own, which depend on the seed and the test's name alone."""
    print(f"FOREBAY_TEST_SEED={TEST_SEED}")
    return random.Random(TEST_SEED ^ zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def rounds() -> Callable[[int], int]:
    """How often to do it: ``$FOREBAY_TEST_COUNT``, else the number given."""
    return times


def numbers(chance: random.Random, stride: int, rounds: Callable[[int], int]) -> Iterator[int]:
    """How often a place is passed before the accident: each ``stride``-th number, or all with eight rounds.

    It begins with one that chance chooses, and has no end.
    """
    step = 1 if rounds(1) >= 8 else max(1, stride // rounds(1))
    return itertools.count(chance.randint(1, step), step)


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    """Makes running instances, which end with the test."""
    with ExitStack() as ending:

        def make(name: str = "root", **options: object) -> Instance:
            return ending.enter_context(Instance(tmp_path / name, **options))  # type: ignore[arg-type]

        yield make


@pytest.fixture
def instance(instances: Callable[..., Instance]) -> Instance:
    """A running instance with a reservation "r" of 64 MiB."""
    made = instances()
    made.create("r", "64MiB")
    return made


@pytest.fixture
def current_instance(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Instance:
    """The same, which clients of this process and its children find."""
    monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
    return instance
