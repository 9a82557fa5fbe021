# SPDX-License-Identifier: Apache-2.0
"""Clean shutdown and restart under load: clients reconnect, learn what became of their step, and go on."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.fault.instance import Instance
from tests.fault.promises import Ledger

STEPS = 400


# crash-matrix: recovering | server, ended and started under load, several times | every step once, for writers and readers
def test_restarts_under_load_go_unnoticed(instances: Callable[..., Instance], rounds: Callable[[int], int]) -> None:
    """Ended and started again several times: every step once, every reader every step, nothing left behind."""
    instance = instances()
    instance.create("r", "128MiB")
    ledger = Ledger("r/flow")
    readers = [
        instance.follow(ledger.address, start="oldest", hold=4),
        instance.follow(ledger.address, consumer="render", ack=True),
        instance.follow(ledger.address, start="oldest", watermark="durable"),
    ]
    writers = instance.group(ledger.address, 3, steps=STEPS, readers=3, elements=1000, varying=True, pause_us=3000)
    for _ in range(rounds(3)):
        writers[0].wait_for("committed", after=writers[0].count())
        assert instance.stop(signal.SIGTERM) == 0
        instance.start()
    for writer in writers:
        writer.succeed()
        assert [event["step"] for event in writer.named("committed")] == list(range(STEPS))
    for reader in readers:
        reader.succeed()
        assert [event["step"] for event in reader.named("step")] == list(range(STEPS))
        assert reader.named("end")[0]["status"] == "ended"
    ledger.note_ended(writers)
    ledger.check(instance)
    assert instance.problems() == []


def test_a_clean_shutdown_makes_everything_durable(instances: Callable[..., Instance]) -> None:
    """What was only committed is durable when the server has ended by itself."""
    instance = instances(flush_interval_ms=-1)
    instance.create("r", "64MiB")
    (writer,) = instance.group("r/flow", 1, steps=5)
    writer.succeed()
    assert instance.stop(signal.SIGTERM) == 0
    instance.start()
    stream = instance.stream("r/flow")
    assert (stream.durable, stream.committed) == (4, 4)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
# crash-matrix: recovering | server, killed and not started again | clients end with an error that says what to do
def test_a_client_gives_up_when_the_server_stays_away(instance: Instance, sent: signal.Signals) -> None:
    """After the time that it was told to wait, it says what to do."""
    (writer,) = instance.group("r/flow", 1, steps=0, pause_us=1000, reconnect_timeout_ms=500)
    reader = instance.follow("r/flow", start="oldest", reconnect_timeout_ms=500)
    reader.wait_for("step")
    instance.stop(sent)
    for process in (writer, reader):
        assert "forebay up" in process.fail("disconnected")["what"]
