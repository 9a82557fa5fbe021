# SPDX-License-Identifier: Apache-2.0
"""The server dies while segments make room for journals, or are taken back from them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

import pytest

from forebay.errors import DisconnectedError
from tests.fault.instance import Instance
from tests.support.load import LoadProcess, until

Instances = Callable[..., Instance]

#: Their journals need more than the megabyte that is kept for them.
STREAMS = [f"r/s{number}" for number in range(14)]
STEPS = 3


def lent_segments(instance: Instance) -> int:
    """How many segments have given their space back."""
    segments = [path.stat() for path in instance.root.glob("reservations/*/segments/*")]
    return sum(status.st_blocks * 512 < status.st_size for status in segments)


def one_has_ended(writer: LoadProcess, instance: Instance) -> bool:
    """The writer, well or not, or the server."""
    return not (writer.running() and instance.running())


@pytest.mark.parametrize("place", ["server.lend.after_free", "server.lend.after_take_back"])
# crash-matrix: making room for journals | server, when a segment has given its space back, at `server.lend.after_free` | every step; the capacity holds, and the segment is data's again when the journals leave it
# crash-matrix: making room for journals | server, when a segment has its space again, at `server.lend.after_take_back` | every step; the capacity holds, and the segment is data's again
def test_a_segment_between_journals_and_data_is_not_lost(instances: Instances, place: str) -> None:
    """Killed in between, the next server goes by what the file system says, and the whole reservation can be used."""
    instance = instances()
    instance.create("r", "64MiB")
    instance.restart(f"{place}=kill")
    died = False

    def go_on() -> None:
        nonlocal died
        assert instance.wait() == -signal.SIGKILL
        assert not died
        died = True
        instance.start()

    for address in STREAMS:
        writer = instance.write(address, steps=STEPS, elements=10)
        until(partial(one_has_ended, writer, instance), "the writer has ended, or the server has died")
        if not instance.running():
            go_on()
        writer.succeed()
        instance.check_disk_use("r")
    assert lent_segments(instance) > 0
    for address in STREAMS:
        assert sorted(instance.check(address)) == list(range(STEPS))

    for address in STREAMS:
        try:
            with instance.admin() as admin:
                admin.remove_stream(address, force=True)
        except DisconnectedError:
            go_on()
            with instance.admin() as admin:
                admin.remove_stream(address, force=True)
        instance.check_disk_use("r")
    assert died
    assert lent_segments(instance) == 0
    instance.write("r/large", steps=1, variables=1, elements=7_500_000).succeed()
    instance.check_disk_use("r")
    assert instance.problems() == []
