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
from tests.support.sweeps import SHARE_MIN, stride_max

#: Where a client may die over each message.
MESSAGE_PLACES = ["client.message.before_send", "client.message.after_send", "client.message.received"]


#: A run whose sweeps take the least share takes one in so many of the tests that sweep.
SWEEPING_TESTS_SHARE = 4


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves most of the tests that sweep to other seeds: each point of theirs is a life of a manager. Those that are
    asked for by name all run."""
    if stride_max() < SHARE_MIN or config.option.keyword or any("::" in argument for argument in config.args):
        return
    here = Path(__file__).parent
    sweeping = sorted(
        (item for item in items if here in item.path.parents and item.get_closest_marker("sweep")),
        key=lambda item: item.nodeid,
    )
    left_out = {item for number, item in enumerate(sweeping) if (number + TEST_SEED) % SWEEPING_TESTS_SHARE}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


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
