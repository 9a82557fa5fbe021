# SPDX-License-Identifier: Apache-2.0
"""Writers with LagLimit wait for the readers that are connected, and for nobody else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.fault.instance import Instance
from tests.support.load import LoadProcess
from tests.support.processes import PythonProcess, wait_until_asleep

ADDRESS = "r/flow"


def step(writers: list[LoadProcess]) -> int:
    """All ranks write a step; its number."""
    before = [writer.command("step") for writer in writers]
    done = [writer.wait_for("committed", after=count) for writer, count in zip(writers, before, strict=True)]
    return int(done[0]["step"])


def test_ranks_wait_until_the_last_of_several_readers_is_near_enough(instance: Instance) -> None:
    """Two ranks, three readers: two with a name, one without."""
    writers = instance.group(ADDRESS, 2, commands=True, lag_limit=2, elements=100)
    readers = [
        instance.follow(ADDRESS, commands=True, **options)
        for options in ({}, {"consumer": "viz"}, {"consumer": "analysis"})
    ]
    for reader in readers:
        reader.wait_for("opened")
    assert [step(writers) for _ in range(3)] == [0, 1, 2]
    before = [writer.command("begin") for writer in writers]
    for reader in readers:
        assert not any(writer.events[count:] for writer, count in zip(writers, before, strict=True))
        assert reader.ask("next", "step")["step"] == 0
    for writer, count in zip(writers, before, strict=True):
        assert writer.wait_for("begun", after=count)["step"] == 3


def test_nobody_loses_a_step_or_waits_for_ever(instance: Instance) -> None:
    """Two ranks and three readers at full speed, one step apart at most."""
    writers = [
        instance.write(ADDRESS, rank=rank, ranks=2, lag_limit=1, readers=3, steps=200, elements=100, retention="last:4")
        for rank in range(2)
    ]
    readers = [instance.follow(ADDRESS, steps=200) for _ in range(3)]
    for process in [*writers, *readers]:
        process.succeed()
    for reader in readers:
        # The writers never were so far ahead that retention took a step from a reader.
        assert [event["step"] for event in reader.named("step")] == list(range(200))


def test_a_reader_that_is_asleep_is_named_at_the_deadline(instance: Instance) -> None:
    """The writer may ask again, and go on when the reader does."""
    (writer,) = instance.group(ADDRESS, 1, commands=True, lag_limit=1, block_timeout_ms=200)
    reader = instance.follow(ADDRESS, consumer="viz", commands=True)
    reader.wait_for("opened")
    reader.send(signal.SIGSTOP)
    for _ in range(2):
        step([writer])
    error = writer.ask("begin", "error")
    assert error["code"] == "timeout"
    assert f'consumer "viz" of process {reader.pid} is 2 steps behind' in error["what"]
    reader.send(signal.SIGCONT)
    assert reader.ask("next", "step")["step"] == 0
    assert step([writer]) == 2


# crash-matrix: writing with LagLimit | a reader, while a step waits for it | the step begins at once; the reader's cursor is where it was
def test_a_reader_that_is_killed_ends_the_wait(instance: Instance) -> None:
    """Named or not, killed or closed: it counts no longer."""
    (writer,) = instance.group(ADDRESS, 1, commands=True, lag_limit=1, block_timeout_ms=-1)
    for _ in range(2):
        step([writer])
    ends: tuple[Callable[[LoadProcess], object], ...] = (LoadProcess.kill, LoadProcess.finish)
    for number, end in enumerate(ends):
        reader = instance.follow(ADDRESS, consumer=f"viz{number}", commands=True)
        reader.wait_for("opened")
        before = writer.command("begin")
        wait_until_asleep(writer.pid)
        end(reader)
        assert writer.wait_for("begun", after=before)["step"] == 2 + number
        writer.ask("put", "put")
        writer.ask("end", "committed")
    assert {consumer.position for consumer in instance.stream(ADDRESS).consumers} == {0}


FORKED = """
    import os, sys, forebay
    with forebay.open("r/flow").follow("viz") as follower:
        child = os.fork()
        if child == 0:
            sys.stdin.readline()
            os._exit(0)
        print(child, flush=True)
        sys.stdin.readline()
"""


def test_a_child_that_outlives_a_killed_reader_holds_nobody_up(current_instance: Instance) -> None:
    """A forked child, as of a data loader, keeps the socket open; the reader is dead all the same."""
    (writer,) = current_instance.group(ADDRESS, 1, commands=True, lag_limit=1, block_timeout_ms=-1)
    with PythonProcess(FORKED) as reader:
        child = int(reader.line())
        for _ in range(2):
            step([writer])
        before = writer.command("begin")
        wait_until_asleep(writer.pid)
        reader.send(signal.SIGKILL)
        try:
            assert writer.wait_for("begun", after=before)["step"] == 2
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


# crash-matrix: writing with LagLimit | server, while a step waits for a reader (`server.lag.waiting`) | the step begins once the server is back, for the reader is not connected then; the reader continues where it was
def test_the_server_dies_while_a_step_waits(instances: Callable[..., Instance]) -> None:
    """The writer asks again; the reader has lost nothing when it comes back."""
    instance = instances()
    instance.create("r", "64MiB")
    instance.restart("server.lag.waiting=kill")
    (writer,) = instance.group(ADDRESS, 1, commands=True, lag_limit=1, block_timeout_ms=-1)
    reader = instance.follow(ADDRESS, commands=True)
    reader.wait_for("opened")
    for _ in range(2):
        step([writer])
    before = writer.command("begin")
    assert instance.wait() == -signal.SIGKILL
    instance.start()
    assert writer.wait_for("begun", after=before)["step"] == 2
    writer.ask("put", "put")
    writer.ask("end", "committed")
    assert [reader.ask("next", "step")["step"] for _ in range(3)] == [0, 1, 2]
    writer.ask("close", "closed")
    assert instance.problems() == []
