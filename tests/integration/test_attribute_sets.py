# SPDX-License-Identifier: Apache-2.0
"""Large attributes that do not change are written once, and every step has them, for every kind of reader."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from tests.support.load import until
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

MIB = 2**20
STEPS = 20


def table(number: int) -> NDArray[np.float64]:
    """1 MiB, each number another one."""
    return np.arange(MIB // 8, dtype=np.float64) + number * 1e6


def used_bytes(reservation: str) -> int:
    """What steps and journals hold."""
    with forebay.Admin() as admin:
        return admin.reservation(reservation).used_bytes


def check_clean(instance: Path | None = None) -> None:
    """An audit that reads everything finds nothing."""
    with forebay.Admin(instance) as admin:
        problems = [finding for finding in admin.audit(read_data=True) if finding.severity.name == "PROBLEM"]
    assert not problems


def write(stream: forebay.WritableStream, steps: int) -> None:
    """Small steps."""
    for _ in range(steps):
        with stream.step() as step:
            step["T"] = np.zeros(8)


def test_unchanged_attribute_takes_its_space_once(reservation: str) -> None:
    before = used_bytes(reservation)
    with forebay.open(f"{reservation}/flow", "w") as stream:
        stream.attributes["table"] = table(0)
        write(stream, STEPS)
        # A page or two for each step, and what the writer has for the next one.
        assert MIB <= used_bytes(reservation) - before < 1.5 * MIB
        with forebay.open(f"{reservation}/flow") as live:
            for step in itertools.islice(live.follow(timeout=seconds(60)), STEPS):
                assert (step.attributes["table"] == table(0)).all()
        check_clean()
    with forebay.open(f"{reservation}/flow") as late:
        numbers = [step.number for step in late.follow() if (step.attributes["table"] == table(0)).all()]
        assert numbers == list(range(STEPS))
        assert all((late[number].attributes["table"] == table(0)).all() for number in (17, 3, 11))
    check_clean()


def test_append_goes_on_with_them(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        stream.attributes["table"] = table(0)
        write(stream, 3)
        stream.attributes["table"] = table(1)
        write(stream, 3)
    with forebay.open(address, "a") as stream:
        write(stream, 3)
    with forebay.open(address, "a", append_after=1) as stream:
        write(stream, 1)
        check_clean()
    with forebay.open(address) as stream:
        assert [step.number for step in stream.follow()] == [0, 1, 2]
        assert all((stream[number].attributes["table"] == table(0)).all() for number in range(3))
    # What was withdrawn has its space until that is on the disk.
    until(lambda: used_bytes(reservation) < 3 * MIB, "the other set's space is free")
    check_clean()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[StagingServer]:
    """A server that may be killed, with a reservation ``run1``."""
    with StagingServer(tmp_path / "root") as made:
        with forebay.Admin(made.root) as admin:
            admin.create("run1", "64MiB")
        yield made


def test_killed_server_knows_who_refers_to_them(own_server: StagingServer) -> None:
    with (
        forebay.open("run1/flow", "w", instance=own_server.root, reconnect_timeout=60) as stream,
        forebay.Admin(own_server.root) as admin,
    ):
        stream.attributes["table"] = table(0)
        write(stream, 3)
        admin.drop_steps("run1/flow", [0, 1, 2])
        own_server.kill()
        own_server.start()
        write(stream, 2)
        with forebay.open("run1/flow", instance=own_server.root) as reading:
            held = reading[3]
            own_server.kill()
            own_server.start()
            assert (held.attributes["table"] == table(0)).all()
            assert (reading[4].attributes["table"] == table(0)).all()
        check_clean(own_server.root)
        stream.attributes["table"] = table(1)
        write(stream, 1)
    with forebay.open("run1/flow", instance=own_server.root) as stream:
        assert [stream[number].attributes["table"][0] for number in (3, 4, 5)] == [0.0, 0.0, 1e6]
    check_clean(own_server.root)
