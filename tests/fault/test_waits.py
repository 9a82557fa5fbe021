# SPDX-License-Identifier: Apache-2.0
"""A stream tells who waits in it for what, and since when; it forgets them when they go on or are gone."""

from __future__ import annotations

import json
import signal
import time

from forebay.records import StreamWait, WaitKind
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.processes import PythonProcess

ADDRESS = "r/flow"


def waits(instance: Instance, kind: WaitKind, address: str = ADDRESS) -> list[StreamWait]:
    with instance.admin() as admin:
        _, _, name = address.partition("/")
        found = [info for info in admin.streams(address.split("/")[0]) if info.name == name]
        return [wait for info in found for wait in info.waits if wait.kind is kind]


def one_wait(instance: Instance, kind: WaitKind, address: str = ADDRESS) -> StreamWait:
    """Returns when there is exactly one of this kind."""
    found: list[StreamWait] = []

    def is_there() -> bool:
        found[:] = waits(instance, kind, address)
        return len(found) == 1

    until(is_there, f"one wait of the kind {kind}")
    return found[0]


def test_a_writer_that_a_consumer_blocks_is_told_with_the_consumer(instance: Instance) -> None:
    """A full reservation, whose retention waits for a consumer that is far behind."""
    began_ns = time.time_ns()
    instance.create("small", "16MiB")
    address = "small/flow"
    reader = instance.follow(address, consumer="viz", commands=True)
    writer = instance.write(
        address, steps=1000, retention="consumers:viz", elements=1 << 16, block_timeout_ms=-1, readers=1
    )
    reader.wait_for("opened")
    wait = one_wait(instance, WaitKind.SPACE, address)
    assert wait.pid == writer.pid
    assert wait.who == f"rank 0, process {writer.pid}"
    assert "of space" in wait.waits_for
    assert "consumer viz" in wait.waits_for
    assert "steps behind" in wait.waits_for
    assert began_ns <= wait.since_ns <= time.time_ns()
    for _ in range(4):
        reader.ask("next", "step")
        reader.ask("ack", "acknowledged")
    # It goes on, and waits again later.
    until(lambda: one_wait(instance, WaitKind.SPACE, address).since_ns > wait.since_ns, "another wait")
    writer.kill()
    until(lambda: not waits(instance, WaitKind.SPACE, address), "no wait of a writer that is gone")


def test_a_writer_that_waits_for_a_reader_is_told_with_the_reader(instance: Instance) -> None:
    """LagLimit; nobody is told of who does not wait any more."""
    (writer,) = instance.group(ADDRESS, 1, commands=True, lag_limit=1, block_timeout_ms=-1)
    reader = instance.follow(ADDRESS, consumer="viz", commands=True)
    reader.wait_for("opened")
    for _ in range(2):
        before = writer.command("step")
        writer.wait_for("committed", after=before)
    before = writer.command("begin")
    wait = one_wait(instance, WaitKind.READERS)
    assert wait.pid == writer.pid
    assert wait.waits_for.startswith(f'consumer "viz" of process {reader.pid}, which is 2 steps behind (LagLimit=1)')
    reader.kill()
    writer.wait_for("begun", after=before)
    assert waits(instance, WaitKind.READERS) == []


def test_ranks_that_wait_for_others_are_told(instance: Instance) -> None:
    """While a group forms, and while a step ends."""
    first = instance.write(ADDRESS, rank=0, ranks=2, commands=True)
    wait = one_wait(instance, WaitKind.GROUP)
    assert (wait.pid, wait.waits_for) == (first.pid, "rank 1 of 2 to open the stream")
    second = instance.write(ADDRESS, rank=1, ranks=2, commands=True)
    for writer in (first, second):
        writer.wait_for("opened")
    assert waits(instance, WaitKind.GROUP) == []
    first.command("step")
    wait = one_wait(instance, WaitKind.GROUP)
    assert (wait.pid, wait.waits_for) == (first.pid, "rank 1 to end step 0")
    second.command("step")
    until(lambda: not waits(instance, WaitKind.GROUP), "the end of the step")
    assert instance.stream(ADDRESS).committed == 0


OF_RUN = """
    import forebay
    forebay.open("r/flow", run="later", timeout=None)
"""


def test_readers_that_wait_are_told(current_instance: Instance) -> None:
    """For the next step, and for a writer of their run."""
    (writer,) = current_instance.group(ADDRESS, 1, commands=True)
    before = writer.command("step")
    writer.wait_for("committed", after=before)
    reader = current_instance.follow(ADDRESS, consumer="viz")
    wait = one_wait(current_instance, WaitKind.STEP)
    assert (wait.pid, wait.who, wait.waits_for) == (reader.pid, f'consumer "viz", process {reader.pid}', "step 1")
    with PythonProcess(OF_RUN) as other:
        wait = one_wait(current_instance, WaitKind.WRITER)
        assert (wait.pid, wait.waits_for) == (other.pid, 'a writer group of run "later"')
        reader.kill()
        other.send(signal.SIGKILL)
        until(lambda: current_instance.stream(ADDRESS).waits == (), "no wait of readers that are gone")


def test_bytes_count_from_the_start_of_the_server(instance: Instance) -> None:
    """Also of steps that retention has dropped."""
    instance.write(ADDRESS, steps=5, retention="last:1", elements=1000).succeed()
    info = instance.stream(ADDRESS)
    assert info.committed_bytes >= 5 * 8000 > info.size_bytes
    instance.kill()
    instance.start()
    assert instance.stream(ADDRESS).committed_bytes == 0


def test_readers_of_a_stream_that_nobody_has_made_are_told(instance: Instance) -> None:
    """Until somebody makes it."""

    def awaited() -> dict[str, list[tuple[WaitKind, int]]]:
        with instance.admin() as admin:
            return {
                stream.name: [(wait.kind, wait.pid) for wait in stream.waits] for stream in admin.awaited_streams("r")
            }

    assert awaited() == {}
    began_ns = time.time_ns()
    first, second = (instance.follow(ADDRESS) for _ in range(2))
    other = instance.follow("r/flow2")
    readers = {"flow": [first.pid, second.pid], "flow2": [other.pid]}
    until(lambda: {name: len(waits) for name, waits in awaited().items()} == {"flow": 2, "flow2": 1}, "they wait")
    assert {name: sorted(waits) for name, waits in awaited().items()} == {
        name: sorted((WaitKind.STREAM, pid) for pid in pids) for name, pids in readers.items()
    }
    with instance.admin() as admin:
        wait = admin.awaited_streams("r")[0].waits[0]
        assert wait.who.startswith("reader, process ")
        assert wait.waits_for == "a writer to make the stream"
        assert began_ns <= wait.since_ns <= time.time_ns()
        assert admin.streams("r") == []
    other.kill()
    until(lambda: list(awaited()) == ["flow"], "the wait ends with its reader")
    instance.write(ADDRESS, steps=1).succeed()
    assert awaited() == {}
    first.succeed()
    second.succeed()


def test_waits_are_json(instance: Instance) -> None:
    instance.write(ADDRESS, rank=0, ranks=2)
    wait = one_wait(instance, WaitKind.GROUP)
    assert json.loads(json.dumps(wait.as_dict()))["kind"] == "group"
