# SPDX-License-Identifier: Apache-2.0
"""Couplings by name (``Run``) and by a living writer (``WaitForWriter``): readers take no step of an earlier run."""

from __future__ import annotations

import pickle
import signal
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path

import adios2
import pytest

import forebay
import forebay.adios2
from tests.support.adios2_programs import run as run_stock_program
from tests.support.processes import PythonProcess
from tests.support.time_limits import seconds

XML = """<adios-config><io name="flow"><engine type="Plugin">
<parameter key="PluginName" value="forebay"/>
<parameter key="PluginLibrary" value="forebay_adios2"/>
<parameter key="Stream" value="{address}"/>
{more}
</engine></io></adios-config>"""

# Programs that know nothing of Forebay: three steps of a value, and whoever reads them.
WRITER = """
    import sys, adios2
    with adios2.Stream(adios2.Adios(sys.argv[1]).declare_io("flow"), "flow", "w") as stream:
        for step in range(3):
            stream.begin_step()
            stream.write("n", int(sys.argv[2]) + step)
            stream.end_step()
"""
READER = """
    import sys, adios2
    with adios2.Stream(adios2.Adios(sys.argv[1]).declare_io("flow"), "flow", "r") as stream:
        print([int(step.read("n")) for step in stream])
"""


def configuration(folder: Path, name: str, address: str, **parameters: str) -> str:
    """An XML file of these engine parameters."""
    more = "\n".join(f'<parameter key="{key}" value="{value}"/>' for key, value in parameters.items())
    file = folder / name
    file.write_text(XML.format(address=address, more=more))
    return str(file)


@pytest.fixture
def plugin_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `forebay env` prints for the plugin."""
    for name, value in forebay.adios2.environment().items():
        monkeypatch.setenv(name, value)


def write(address: str, *values: int, run: str | None = None, mode: str = "a", readers: int = 0) -> None:
    """A writer of one rank, from Open to Close."""
    with forebay.open(address, mode=mode, run=run, rendezvous_readers=readers) as stream:  # type: ignore[call-overload]
        for value in values:
            with stream.step() as step:
                step["n"] = value


def values(follower: forebay.Follower) -> list[int]:
    """What it gives until its end."""
    return [int(step["n"]) for step in follower]


@pytest.mark.usefixtures("plugin_environment")
@pytest.mark.parametrize("by", ["Run", "WaitForWriter"])
@pytest.mark.parametrize("mode", ["replaced", "appended"])
def test_configured_programs_never_read_what_an_earlier_run_left(
    reservation: str, by: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four reader ranks start before their writer, over a finished stream."""
    address = f"{reservation}/flow"
    write(address, 100, 101, 102, 103, 104, run="monday")
    if by == "Run":
        monkeypatch.setenv("FOREBAY_RUN", "tuesday")
    if mode == "appended":
        monkeypatch.setenv("FOREBAY_APPEND_AFTER", "4")
    limit = {} if by == "Run" else {"WaitForWriter": "true"}
    reading = configuration(tmp_path, "reader.xml", address, **limit)
    writing = configuration(tmp_path, "writer.xml", address, RendezvousReaderCount="4")
    with ExitStack() as stack:
        readers = [stack.enter_context(PythonProcess(READER, reading)) for _ in range(4)]
        with PythonProcess(WRITER, writing, "0") as writer:
            writer.succeed()
        for reader in readers:
            status, output, errors = reader.finish()
            assert (status, output, errors) == (0, "[0, 1, 2]\n", "")


@pytest.mark.usefixtures("plugin_environment")
def test_reader_of_a_finished_stream_says_so_once(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    write(address, 100, 101, run="monday")
    for parameters, tells in (
        ({}, True),
        ({"Consumer": "analysis"}, True),
        ({"Run": "monday"}, False),
        ({"Follow": "false"}, False),
        ({"Rank": "1"}, False),
    ):
        file = configuration(tmp_path, "reader.xml", address, **parameters)
        with PythonProcess(READER, file) as reader:
            status, output, errors = reader.finish()
        assert (status, output) == (0, "[100, 101]\n"), errors
        if tells:
            assert errors.count("\n") == 1
            assert f"stream {address} had no writer when this reader opened it (status ended)" in errors
            assert "WaitForWriter=true" in errors
        else:
            assert errors == ""


@pytest.mark.parametrize("by", ["Run", "WaitForWriter"])
def test_neither_shows_variables_before_the_first_step(reservation: str, by: str) -> None:
    address = f"{reservation}/flow"
    with ExitStack() as stack:
        write(address, 1, run="monday")
        if by == "WaitForWriter":
            writer = stack.enter_context(forebay.open(address, mode="a"))
            with writer.step() as step:
                step["n"] = 2
        io = adios2.Adios().declare_io("reader")
        forebay.adios2.configure(io, address, **({"Run": "monday"} if by == "Run" else {"WaitForWriter": True}))
        with adios2.Stream(io, "flow", "r") as stream:
            assert stream.available_variables() == {}
            assert stream.begin_step() == adios2.bindings.StepStatus.OK
            assert stream.available_variables().keys() == {"n"}
            assert int(stream.read("n")) == (1 if by == "Run" else 2)
            stream.end_step()


def test_forebay_run_names_the_run(reservation: str, tmp_path: Path) -> None:
    writer = """
        import sys, adios2
        with adios2.Stream("flow.bp", "w") as stream:
            for step in range(3):
                stream.begin_step()
                stream.write("n", int(sys.argv[1]) + step)
                stream.end_step()
    """
    reader = """
        import adios2
        with adios2.Stream("flow.bp", "r") as stream:
            print([int(step.read("n")) for step in stream])
    """
    base = ["--reservation", reservation, "--engine-for", "flow.bp"]

    def program(text: str, *arguments: str) -> list[str]:
        return [sys.executable, "-c", textwrap.dedent(text), *arguments]

    done = run_stock_program([*base, "--run", "monday"], program(writer, "7"), tmp_path)
    assert done.returncode == 0, done.stderr
    with forebay.Admin() as admin:
        assert admin.stream(f"{reservation}/flow").run == "monday"
    # The run is over, and read at once.
    done = run_stock_program([*base, "--run", "monday"], program(reader), tmp_path)
    assert (done.returncode, done.stdout) == (0, "[7, 8, 9]\n"), done.stderr
    environment = {"FOREBAY_OPEN_TIMEOUT_SECS": "0.2", "FOREBAY_RUN": "monday"}
    done = run_stock_program([*base, "--run", "tuesday"], program(reader), tmp_path, environment)
    assert done.returncode == 1
    assert 'waited 0.2 s for a writer group of run "tuesday"' in done.stderr
    assert 'its last group was of run "monday" and is ended' in done.stderr
    done = run_stock_program([*base, "--run", ""], program(reader), tmp_path)
    assert "--run takes the name of a coupling" in done.stderr


def test_stream_opened_for_a_run_shows_no_other(reservation: str) -> None:
    address = f"{reservation}/flow"
    write(address, 0, 1, run="monday")
    write(address, 10, 11, 12, run="tuesday")
    with forebay.open(address, run="monday") as monday, forebay.open(address, run="tuesday") as tuesday:
        assert (len(monday), len(tuesday)) == (2, 3)
        assert [summary.number for summary in tuesday.steps()] == [2, 3, 4]
        assert [int(step["n"]) for step in tuesday] == [10, 11, 12]
        assert int(monday.latest["n"]) == 1
        assert values(monday.follow(timeout=seconds(10))) == [0, 1]
        assert values(tuesday.follow(timeout=seconds(10), start="latest")) == [12]
        assert 1 not in tuesday
        with pytest.raises(forebay.StepNotFoundError, match='not one of run "tuesday"'):
            tuesday[1]
        again = pickle.loads(pickle.dumps(tuesday))
        assert [summary.number for summary in again.steps()] == [2, 3, 4]
        again.close()
    with forebay.open(address) as stream:
        assert len(stream) == 5
    with pytest.raises(forebay.DeadlineExceededError, match='for a writer group of run "wednesday"'):
        forebay.open(address, run="wednesday", timeout=0.05)
    with pytest.raises(forebay.DeadlineExceededError, match='no writer of run "wednesday" made it'):
        forebay.open(f"{reservation}/none", run="wednesday", timeout=0.05)


def test_consumer_of_a_finished_stream_begins_with_the_next_run(reservation: str) -> None:
    """Its cursor stands at the end of the run before."""
    address = f"{reservation}/flow"
    write(address, 0, 1, run="monday")
    with forebay.open(address, run="monday") as stream:
        assert values(stream.follow("analysis", timeout=seconds(10))) == [0, 1]
    program = """
        import sys, forebay
        with forebay.open(sys.argv[1], run="tuesday") as stream:
            print([int(step["n"]) for step in stream.follow("analysis", timeout=60)])
    """
    for mode in ("w", "a"):
        with PythonProcess(program, address) as reader:
            write(address, 5, run="tuesday", mode=mode, readers=1)
            assert reader.succeed() == "[5]\n"
        write(address, 0, 1, run="wednesday", mode="w")


def test_waiting_for_a_writer_begins_with_its_first_step(reservation: str) -> None:
    address = f"{reservation}/flow"
    write(address, 0, 1)
    with pytest.raises(forebay.DeadlineExceededError, match="for a living writer group"):
        forebay.open(address, wait_for_writer=True, timeout=0.05)
    with forebay.open(address, mode="a") as writer:
        with writer.step() as step:
            step["n"] = 2
        stream = forebay.open(address, wait_for_writer=True, timeout=seconds(10))
        assert [summary.number for summary in stream.steps()] == [2]
    # What the handle found stays, though the writer has closed.
    assert values(stream.follow(timeout=seconds(10))) == [2]
    assert (len(stream), int(stream[-1]["n"])) == (1, 2)
    with pytest.raises(forebay.StepNotFoundError, match="older than the writer group"):
        stream[1]
    copied = pickle.loads(pickle.dumps(stream))
    assert values(copied.follow(timeout=seconds(10))) == [2]
    copied.close()
    stream.close()
    with pytest.raises(forebay.InvalidArgumentError, match="only mode 'r'"):
        forebay.open(address, mode="w", wait_for_writer=True)  # type: ignore[call-overload]
    with pytest.raises(forebay.ArgumentTypeError, match="wait_for_writer is True or False"):
        forebay.open(address, wait_for_writer="yes")  # type: ignore[call-overload]


# crash-matrix: writing | producer of a run, which is started again with the same run | its readers go on, and take no step of another run
def test_killed_writer_goes_on_with_its_run(reservation: str) -> None:
    address = f"{reservation}/flow"
    write(address, 0, 1, run="monday")
    writer = """
        import sys, forebay
        readers = int(sys.argv[2])
        with forebay.open(sys.argv[1], mode="a", run="tuesday", rendezvous_readers=readers, grace=120) as stream:
            for value in map(int, sys.argv[3:]):
                with stream.step() as step:
                    step["n"] = value
            print("written")
            sys.stdin.readline()
    """
    reader = """
        import sys, forebay
        with forebay.open(sys.argv[1], run="tuesday") as stream:
            for step in stream.follow(timeout=60):
                print(int(step["n"]))
    """
    with PythonProcess(reader, address) as follower:
        with PythonProcess(writer, address, "1", "10", "11") as first:
            assert [follower.line() for _ in range(2)] == ["10", "11"]
            assert first.line() == "written"
            first.send(signal.SIGKILL)
            first.finish()
        with PythonProcess(reader, address) as late, PythonProcess(writer, address, "2", "12") as second:
            assert [late.line() for _ in range(3)] == ["10", "11", "12"]
            assert follower.line() == "12"
            second.tell()
            second.succeed()
            assert late.succeed() == follower.succeed() == ""


def test_ranks_must_agree_on_the_run(reservation: str) -> None:
    program = """
        import sys, forebay
        try:
            forebay.open(sys.argv[1], mode="w", rank=int(sys.argv[2]), ranks=2, group="g", run=sys.argv[3])
        except forebay.InvalidArgumentError as error:
            print(error)
    """
    address = f"{reservation}/flow"
    with PythonProcess(program, address, "0", "monday") as one, PythonProcess(program, address, "1", "tuesday") as two:
        for process in (one, two):
            assert "ranks do not agree on the run" in process.succeed()
