# SPDX-License-Identifier: Apache-2.0
"""SST's `QueueLimit` with `QueueFullPolicy=Block` in an XML file: the writer waits for readers that are connected."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

import forebay
import forebay.adios2
from tests.support.processes import PythonProcess

CONFIGURATION = """<?xml version="1.0"?>
<adios-config>
    <io name="simulation">
        <engine type="Plugin">
            <parameter key="PluginName" value="forebay"/>
            <parameter key="PluginLibrary" value="forebay_adios2"/>
            <parameter key="Stream" value="{address}"/>
            <parameter key="QueueLimit" value="{limit}"/>
            <parameter key="QueueFullPolicy" value="Block"/>
            <parameter key="BlockTimeoutSecs" value="-1"/>
        </engine>
    </io>
    <io name="analysis">
        <engine type="Plugin">
            <parameter key="PluginName" value="forebay"/>
            <parameter key="PluginLibrary" value="forebay_adios2"/>
            <parameter key="Stream" value="{address}"/>
        </engine>
    </io>
</adios-config>
"""

# A rank: a step for each line that it gets, which it says twice: when it asks, and when the step is there.
WRITER = """
    import os, sys, numpy as np, adios2
    rank, ranks = int(sys.argv[2]), int(sys.argv[3])
    os.environ["FOREBAY_RANK"], os.environ["FOREBAY_RANKS"] = str(rank), str(ranks)
    io = adios2.Adios(sys.argv[1]).declare_io("simulation")
    with adios2.Stream(io, "flow", "w") as stream:
        print("open")
        for line in sys.stdin:
            if line.strip() == "close":
                break
            print("asks")
            stream.begin_step()
            stream.write("rank", np.array([rank]), [ranks], [rank], [1])
            stream.end_step()
            print("done")
"""
READER = """
    import sys, adios2
    io = adios2.Adios(sys.argv[1]).declare_io("analysis")
    with adios2.Stream(io, "flow", "r") as stream:
        print("open")
        for line in sys.stdin:
            if stream.begin_step() != adios2.bindings.StepStatus.OK:
                print("end")
                break
            print(stream.current_step(), *stream.read("rank"))
            stream.end_step()
"""


@pytest.fixture
def configuration(reservation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An XML file with a limit of two steps."""
    for name, value in forebay.adios2.environment().items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "adios2.xml"
    path.write_text(CONFIGURATION.format(address=f"{reservation}/flow", limit=2))
    return path


def start(stack: ExitStack, program: str, *arguments: object) -> PythonProcess:
    return stack.enter_context(PythonProcess(program, *map(str, arguments)))


def ask(writers: list[PythonProcess]) -> None:
    for writer in writers:
        writer.tell("step")
    for writer in writers:
        assert writer.line() == "asks"


def done(writers: list[PythonProcess]) -> None:
    for writer in writers:
        assert writer.line() == "done"


def test_with_no_reader_nothing_waits(configuration: Path) -> None:
    with ExitStack() as stack:
        writers = [start(stack, WRITER, configuration, 0, 1)]
        assert writers[0].line() == "open"
        for _ in range(6):
            ask(writers)
            done(writers)
        writers[0].tell("close")
        writers[0].succeed()


# crash-matrix: writing with QueueLimit and Block in an ADIOS2 program | a reader, while the ranks wait for it | the ranks go on at once
@pytest.mark.parametrize(("ranks", "readers"), [(1, 1), (2, 3)])
def test_writers_wait_for_the_slowest_reader_until_it_reads_or_dies(
    configuration: Path, reservation: str, ranks: int, readers: int
) -> None:
    with ExitStack() as stack:
        writers = [start(stack, WRITER, configuration, rank, ranks) for rank in range(ranks)]
        for writer in writers:
            assert writer.line() == "open"
        reading = [start(stack, READER, configuration) for _ in range(readers)]
        for reader in reading:
            assert reader.line() == "open"
        slowest, others = reading[0], reading[1:]
        for number in range(3):
            ask(writers)
            done(writers)
            for reader in others:
                reader.tell()
                assert reader.line().split() == [str(number), *map(str, range(ranks))]
        # Three steps are there that the slowest has not: one more than the limit.
        ask(writers)
        for writer in writers:
            writer.wait_until_asleep()
        with forebay.Admin() as admin:
            assert admin.stream(f"{reservation}/flow").committed == 2
        slowest.tell()
        assert slowest.line().split()[0] == "0"
        done(writers)
        ask(writers)
        for writer in writers:
            writer.wait_until_asleep()
        with forebay.Admin() as admin:
            assert admin.stream(f"{reservation}/flow").committed == 3
        slowest.send(signal.SIGKILL)
        done(writers)
        for writer in writers:
            writer.tell("close")
        for writer in writers:
            writer.succeed()
        for reader in others:
            for number in (3, 4):
                reader.tell()
                assert reader.line().split()[0] == str(number)
            reader.tell()
            assert reader.line() == "end"
