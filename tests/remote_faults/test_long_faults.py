# SPDX-License-Identifier: Apache-2.0
"""Links that are cut for longer than connections last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from forebay.records import StreamStatus
from tests.remote.nodes import Nodes
from tests.remote.programs import Programs, both_transports, finish
from tests.remote.test_remote_faults import check_clean, committed
from tests.support.load import until
from tests.support.staging_server import StagingServer

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("nodes")]

TokenMaker = Callable[..., Path]
#: README and docs/operations/remote.md say about 25 s.
_NOTICED_SECONDS_MAX = 60.0


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
        finish(again)
    assert committed(server) == 2
    check_clean(server)


# crash-matrix: read a step from another node | the reader's link, cut for longer than connections last | its cursor and the steps; it reconnects when the link is back
@both_transports
def test_reader_that_is_cut_off_for_long_comes_back(
    programs: Programs, token: TokenMaker, server: StagingServer, nodes: Nodes
) -> None:
    with programs.writer(3, token("write"), Retention="consumers:render") as writer:
        finish(writer)
    with programs.python_reader(token("read")) as reader:
        assert reader.line() == "0"
        nodes.cut_off("consumer")
        reader.tell()

        def given_up() -> bool:
            with forebay.Admin(server.root) as admin:
                return not any(consumer.connected for consumer in admin.stream("run1/flow").consumers)

        until(given_up, "the server gives the reader up", _NOTICED_SECONDS_MAX)
        nodes.bring_back("consumer")
        assert reader.line() == "1"
        reader.tell()
        assert reader.line() == "2"
        reader.tell()
        assert reader.line() == "end"
        finish(reader)
