# SPDX-License-Identifier: Apache-2.0
"""Cuts that are longer than connections last, and clients that never take what they asked for."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.records import StreamStatus
from tests.remote.blocks import small, temperature
from tests.remote.nodes import Nodes
from tests.remote.programs import Programs, both_transports
from tests.remote.test_remote_faults import check_clean, committed
from tests.support.load import until
from tests.support.processes import is_stopped
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("nodes")]

TokenMaker = Callable[..., Path]
#: docs/operations/remote.md says about 25 s.
_NOTICED_SECONDS_MAX = seconds(60)
_READERS = 100


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


# crash-matrix: write a step from another node | the writer's link, cut for longer than connections last | the committed steps, whole; its group is interrupted, and a new one goes on
@both_transports
def test_writer_that_is_cut_off_for_long_is_given_up(
    programs: Programs, token: TokenMaker, server: StagingServer, nodes: Nodes
) -> None:
    with programs.slow_writer(1000, token("write")) as writer:
        assert writer.line() == "0"
        nodes.cut_off("producer")

        def given_up() -> bool:
            with forebay.Admin(server.root) as admin:
                return admin.stream("run1/flow").status is StreamStatus.INTERRUPTED

        until(given_up, "the server gives the writer up", _NOTICED_SECONDS_MAX)
        nodes.bring_back("producer")
        status, _, errors = writer.finish()
        assert status != 0
        assert "interrupted" in errors or "ended" in errors or "lost" in errors, errors
    assert committed(server) >= 1
    with programs.writer(2, token("write")) as again:
        again.succeed()
    assert committed(server) == 2
    check_clean(server)


def until_reader_is_given_up(server: StagingServer) -> None:
    def given_up() -> bool:
        with forebay.Admin(server.root) as admin:
            return not any(consumer.connected for consumer in admin.stream("run1/flow").consumers)

    until(given_up, "the server gives the reader up", _NOTICED_SECONDS_MAX)


# crash-matrix: read a step from another node | the reader's link, cut for longer than connections last | its cursor and the steps; it reconnects when the link is back
@both_transports
def test_reader_that_is_cut_off_for_long_comes_back(
    programs: Programs, token: TokenMaker, server: StagingServer, nodes: Nodes
) -> None:
    with programs.writer(3, token("write"), Retention="consumers:render") as writer:
        writer.succeed()
    with programs.python_reader(token("read")) as reader:
        assert reader.line() == "0"
        nodes.cut_off("consumer")
        reader.tell()
        until_reader_is_given_up(server)
        nodes.bring_back("consumer")
        assert reader.line() == "1"
        reader.tell()
        assert reader.line() == "2"
        reader.tell()
        assert reader.line() == "end"
        reader.succeed()


# crash-matrix: read a step from another node | the reader's link, cut for longer than connections last, while retention drops the step that it holds | the step, until its reader is back and lets go
def test_reader_that_is_cut_off_has_the_step_that_it_held(
    programs: Programs, token: TokenMaker, server: StagingServer, nodes: Nodes
) -> None:
    with forebay.open("run1/flow", "w", instance=server.root, retention="last:1") as stream:

        def write(number: int) -> None:
            with stream.step() as step:
                step["number"] = np.int64(number)
                step["T"] = temperature(number)
                step["small"] = small(number)

        write(0)
        with programs.python_reader(token("read")) as reader:
            assert reader.line() == "0"
            nodes.cut_off("consumer")
            for number in (1, 2):
                write(number)
            until_reader_is_given_up(server)
            nodes.bring_back("consumer")
            # It compares the step once more before it goes on.
            reader.tell()
            assert reader.line() == "2"
            reader.tell()
            stream.close()
            assert reader.line() == "end"
            reader.succeed()
    check_clean(server)


def test_a_hundred_clients_that_never_read_hold_nobody_up(
    programs: Programs, token: TokenMaker, server: StagingServer
) -> None:
    with programs.writer(1, token("write")) as writer:
        writer.succeed()
    before = memory_bytes(server.pid)
    with programs.many_readers(_READERS, token("read"), f"client.data.before_get:{_READERS}=stop") as many:
        assert many.line() == "open"
        many.tell()
        until(lambda: is_stopped(many.pid), "the readers stand still, and what they asked for is on its way")
        with programs.python_reader(token("read"), "other") as other:
            other.tell()
            assert other.succeed().split() == ["0", "end"]
        with programs.writer(2, token("write"), Stream="run1/second") as second:
            assert second.succeed().split() == ["0", "1"]
        # A buffer of a MiB for each path, and what lies in sockets is the kernel's.
        assert memory_bytes(server.pid) - before < (_READERS + 100) * 2**20
        many.send(signal.SIGCONT)
        assert many.succeed().split() == [str(_READERS)]
    check_clean(server)
