# SPDX-License-Identifier: Apache-2.0
"""What the fault tests share: the seed and the number of rounds, and servers of their own that may be killed."""

from __future__ import annotations

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


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of the test's own, which depend on the seed and the test's name alone."""
    print(f"FOREBAY_TEST_SEED={TEST_SEED}")
    return random.Random(TEST_SEED ^ zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def rounds() -> Callable[[int], int]:
    """How often to do it: ``$FOREBAY_TEST_COUNT``, else the number given."""
    return times


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
