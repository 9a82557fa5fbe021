# SPDX-License-Identifier: Apache-2.0
"""The engine under ADIOS2's Python module: configuration, reading, writing, waits without Python's lock, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import adios2
import numpy as np
import pytest

import forebay
import forebay.adios2
from forebay.adios2.document import parameters_page
from tests.support.processes import PythonProcess
from tests.support.time_limits import seconds

READ = adios2.bindings.Mode.Read
WRITE = adios2.bindings.Mode.Write
STATUS = adios2.bindings.StepStatus


class Streams:
    """IOs of one ADIOS object, each under a name of its own."""

    def __init__(self) -> None:
        self._adios = adios2.Adios()
        self._count = 0

    def io(self, stream: str, **parameters: str | float | bool) -> Any:
        self._count += 1
        io = self._adios.declare_io(f"io{self._count}")
        forebay.adios2.configure(io, stream, **parameters)
        return io


@pytest.fixture
def streams() -> Streams:
    return Streams()


def write_steps(io: Any, count: int) -> None:
    """Steps with a small array and a number."""
    with adios2.Stream(io, "flow", "w") as stream:
        for number in range(count):
            stream.begin_step()
            stream.write("T", np.arange(12.0).reshape(3, 4) + 100 * number, [3, 4], [0, 0], [3, 4])
            stream.write("number", number)
            stream.write("title", f"step {number}")
            stream.write_attribute("unit", "K", "T")
            stream.end_step()


def test_stream_writes_and_reads(reservation: str, streams: Streams) -> None:
    write_steps(streams.io(f"{reservation}/flow"), 3)
    seen = []
    with adios2.Stream(streams.io(f"{reservation}/flow"), "flow", "r") as stream:
        for step in stream:
            number = int(step.read("number"))
            assert step.current_step() == number
            assert step.read("title") == f"step {number}"
            np.testing.assert_array_equal(step.read("T"), np.arange(12.0).reshape(3, 4) + 100 * number)
            np.testing.assert_array_equal(
                step.read("T", start=[1, 1], count=[2, 2]), np.array([[5, 6], [9, 10]]) + 100 * number
            )
            assert step.minmax("T") == (100 * number, 100 * number + 11)
            assert step.read_attribute("unit", "T") == "K"
            seen.append(number)
        assert stream.step_status() == STATUS.EndOfStream
    assert seen == [0, 1, 2]


def test_what_adios2_wrote_forebay_reads_and_the_other_way_round(reservation: str, streams: Streams) -> None:
    write_steps(streams.io(f"{reservation}/flow"), 2)
    with forebay.open(f"{reservation}/flow") as stream:
        step = stream[1]
        np.testing.assert_array_equal(step["T"][...], np.arange(12.0).reshape(3, 4) + 100)
        assert step["number"][...] == 1
        assert step["title"][...] == "step 1"
        assert step.attributes["T/unit"] == "K"
    with forebay.open(f"{reservation}/other", mode="w") as output, output.step() as written:
        written["p"] = np.ones((2, 2), np.float32)
        written["count"] = 5
    with adios2.Stream(streams.io(f"{reservation}/other"), "other", "r") as reader:
        reader.begin_step()
        np.testing.assert_array_equal(reader.read("p"), np.ones((2, 2), np.float32))
        assert reader.read("count") == 5
        reader.end_step()


def test_deferred_scalar_from_python_is_not_a_dangling_pointer(reservation: str, streams: Streams) -> None:
    io = streams.io(f"{reservation}/flow")
    value = io.define_variable("value", np.array([0.0]))
    element = io.define_variable("element", np.array([0.0]), [1], [0], [1])
    engine = io.open("flow", WRITE)
    engine.begin_step()
    engine.put(value, 2.5)
    engine.put(element, 3.5)
    engine.end_step()
    engine.close()
    with adios2.Stream(streams.io(f"{reservation}/flow"), "flow", "r") as stream:
        stream.begin_step()
        assert stream.read("value") == 2.5
        assert stream.read("element") == 3.5
        stream.end_step()


def test_random_access_reads_any_step(reservation: str, streams: Streams) -> None:
    write_steps(streams.io(f"{reservation}/flow"), 4)
    with adios2.FileReader(streams.io(f"{reservation}/flow", random_access=True), "flow") as file:
        assert file.num_steps() == 4
        assert set(file.available_variables()) == {"T", "number", "title"}
        np.testing.assert_array_equal(
            file.read("T", start=[0, 0], count=[1, 1], step_selection=[1, 3]).ravel(), [100, 200, 300]
        )
        assert file.read("number", step_selection=[3, 1]) == 3
        np.testing.assert_array_equal(file.read("number", step_selection=[0, 4]), [0, 1, 2, 3])


def test_adios2s_own_variables_are_left_alone_where_the_user_says_so(reservation: str, streams: Streams) -> None:
    write_steps(streams.io(f"{reservation}/flow"), 2)
    for with_facts, seen in ((True, (1, 100, 111)), (False, (0, 0, 0))):
        with adios2.Stream(streams.io(f"{reservation}/flow", variable_facts=with_facts), "flow", "r") as stream:
            for step in stream:
                facts = step.available_variables()["T"]
                last = step.read("T")[2, 3]
        assert tuple(float(facts[name]) for name in ("AvailableStepsCount", "Min", "Max")) == seen
        assert last == 111


def test_unchanged_attribute_takes_its_space_once(reservation: str, streams: Streams) -> None:
    def used_bytes() -> int:
        with forebay.Admin() as admin:
            return admin.reservation(reservation).used_bytes

    table = np.arange(2**17, dtype=np.float64)  # 1 MiB
    before = used_bytes()
    with adios2.Stream(streams.io(f"{reservation}/flow"), "flow", "w") as stream:
        for number in range(20):
            stream.begin_step()
            if number == 0:
                stream.write_attribute("table", table)
            if number == 10:
                stream.write_attribute("reached", 10)
            stream.write("a", number)
            stream.end_step()
    assert 2 * 2**20 <= used_bytes() - before < 2.5 * 2**20
    seen = []
    with adios2.Stream(streams.io(f"{reservation}/flow"), "flow", "r") as stream:
        for _ in stream.steps():
            np.testing.assert_array_equal(stream.read_attribute("table"), table)
            seen.append("reached" in stream.available_attributes())
    assert seen == [False] * 10 + [True] * 10


def test_local_blocks_of_different_sizes_stay_within_pythons_buffers(reservation: str, streams: Streams) -> None:
    io = streams.io(f"{reservation}/flow")
    local = io.define_variable("local", np.zeros(1), [], [], [2])
    engine = io.open("flow", WRITE)
    engine.begin_step()
    for size in (2, 5):
        local.set_selection([[], [size]])
        engine.put(local, np.full(size, float(size)), adios2.bindings.Mode.Sync)
    engine.end_step()
    engine.close()
    with adios2.Stream(streams.io(f"{reservation}/flow"), "flow", "r") as stream:
        stream.begin_step()
        np.testing.assert_array_equal(stream.read("local", block_id=1), np.full(5, 5.0))
        np.testing.assert_array_equal(stream.read("local", block_id=0), np.full(2, 2.0))
        np.testing.assert_array_equal(stream.read("local", start=[1], count=[3], block_id=1), np.full(3, 5.0))
        with pytest.raises(ValueError, match="out of bounds"):
            stream.read("local", block_id=2)
        stream.end_step()


def test_step_left_by_an_exception_is_not_published(reservation: str, streams: Streams) -> None:
    def diverge() -> None:
        with adios2.Stream(streams.io(f"{reservation}/flow", grace_secs=0), "flow", "w") as stream:
            for number in range(2):
                stream.begin_step()
                stream.write("a", number)
                if number == 1:
                    raise ZeroDivisionError
                stream.end_step()

    with pytest.raises(ZeroDivisionError):
        diverge()
    with forebay.Admin() as admin:
        assert [summary.number for summary in admin.steps(f"{reservation}/flow")] == [0]
        assert admin.stream(f"{reservation}/flow").status is forebay.StreamStatus.INTERRUPTED


def test_other_threads_run_while_begin_step_waits(reservation: str, streams: Streams) -> None:
    writer = streams.io(f"{reservation}/flow").open("flow", WRITE)
    reader = streams.io(f"{reservation}/flow").open("flow", READ)
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    status = reader.begin_step(adios2.bindings.StepMode.Read, 0.5)
    done.set()
    thread.join()
    assert status == STATUS.NotReady
    assert ticks > 3  # holding the lock, the other thread would come by before and behind the wait only
    reader.close()
    writer.close()


def test_python_threads_write_and_read_one_stream(reservation: str, streams: Streams) -> None:
    address = f"{reservation}/flow"
    writer_io, reader_io = streams.io(address), streams.io(address)
    seen: list[int] = []

    def read() -> None:
        with adios2.Stream(reader_io, "flow", "r") as stream:
            seen.extend(int(step.read("number")) for step in stream)

    thread = threading.Thread(target=read)
    thread.start()
    write_steps(writer_io, 20)
    thread.join()
    assert seen == list(range(20))


# Says that it waits from a thread, which runs only while the engine's wait leaves Python to others.
INTERRUPTED_WAIT = """
    import sys, threading, adios2, forebay.adios2
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, sys.argv[1])
    {before}
    main = threading.main_thread().ident
    def tell():
        while sys._current_frames()[main].f_code.co_name not in ("begin_step", "open"):
            pass
        print("waiting", flush=True)
    try:
        threading.Thread(target=tell).start()
        {call}
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
"""


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ('engine = io.open("flow", adios2.bindings.Mode.Read)', "engine.begin_step()"),
        ('stream = adios2.Stream(io, "flow", "r")', "next(stream)"),
    ],
)
def test_ctrl_c_ends_a_wait_with_keyboard_interrupt(reservation: str, streams: Streams, before: str, call: str) -> None:
    writer = streams.io(f"{reservation}/flow").open("flow", WRITE)
    with PythonProcess(INTERRUPTED_WAIT.format(before=before, call=call), f"{reservation}/flow") as process:
        assert process.line() == "waiting"
        begin = time.monotonic()
        process.send(signal.SIGINT)
        assert process.line() == "KeyboardInterrupt"
        assert time.monotonic() - begin < 5
        process.succeed()
    writer.close()


def test_ctrl_c_ends_open(reservation: str) -> None:
    call = 'io.open("flow", adios2.bindings.Mode.Read)'
    with PythonProcess(INTERRUPTED_WAIT.format(before="", call=call), f"{reservation}/none") as process:
        assert process.line() == "waiting"
        process.send(signal.SIGINT)
        status, _, errors = process.finish(timeout=seconds(10))
        assert status != 0
        assert f"{reservation}/none" in errors


INTERRUPTED_END_STEP = """
    import sys, threading, adios2, forebay.adios2
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, sys.argv[1], Rank=0, Ranks=2, Group="g")
    engine = io.open("flow", adios2.bindings.Mode.Write)
    main = threading.main_thread().ident
    def tell():
        while sys._current_frames()[main].f_code.co_name != "end_step":
            pass
        print("waiting", flush=True)
    engine.begin_step()
    try:
        threading.Thread(target=tell).start()
        engine.end_step()
    except KeyboardInterrupt:
        print("KeyboardInterrupt", flush=True)
    try:
        engine.begin_step()
    except RuntimeError as error:
        print(error, flush=True)
"""


def test_after_ctrl_c_in_end_step_the_steps_fate_is_unknown(reservation: str) -> None:
    with PythonProcess(INTERRUPTED_END_STEP, f"{reservation}/flow") as process:
        # The other rank never ends its step.
        other = forebay.open(f"{reservation}/flow", mode="w", rank=1, ranks=2, group="g")
        assert process.line() == "waiting"
        process.send(signal.SIGINT)
        assert process.line() == "KeyboardInterrupt"
        assert "is unknown" in process.line()
        other.abandon()


XML = """<adios-config><io name="sim"><engine type="Plugin">
<parameter key="PluginName" value="forebay"/>
<parameter key="PluginLibrary" value="forebay_adios2"/>
{stream}
</engine></io></adios-config>"""

YAML = """- IO: sim
  Engine:
    Type: Plugin
    PluginName: forebay
    PluginLibrary: forebay_adios2
    Stream: {address}
"""

CONFIGURED = """
    import sys, adios2
    with adios2.Stream(adios2.Adios(sys.argv[1]).declare_io("sim"), "any name", sys.argv[2]) as stream:
        stream.begin_step()
        if sys.argv[2] == "w":
            stream.write("x", 7)
        else:
            print(stream.read("x"))
        stream.end_step()
"""


@pytest.mark.parametrize("kind", ["xml", "yaml", "environment"])
def test_configuration_file_is_all_that_a_program_needs(
    reservation: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{reservation}/{kind}"
    for name, value in forebay.adios2.environment().items():
        monkeypatch.setenv(name, value)
    file = tmp_path / ("adios2.yaml" if kind == "yaml" else "adios2.xml")
    if kind == "yaml":
        file.write_text(YAML.format(address=address))
    elif kind == "xml":
        file.write_text(XML.format(stream=f'<parameter key="Stream" value="{address}"/>'))
    else:
        file.write_text(XML.format(stream=""))
        monkeypatch.setenv("FOREBAY_STREAM", address)
    for mode, output in (("w", ""), ("r", "7\n")):
        with PythonProcess(CONFIGURED, str(file), mode) as process:
            assert process.succeed() == output


def test_configure_copes_with_a_plugin_path_that_lacks_ours(
    reservation: str, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADIOS2_PLUGIN_PATH", "/nowhere")
    program = """
        import os, sys, adios2, forebay.adios2
        io = adios2.Adios().declare_io("sim")
        forebay.adios2.configure(io, sys.argv[1])
        io.open("x", adios2.bindings.Mode.Write).close()
        print(os.environ["ADIOS2_PLUGIN_PATH"])
    """
    with PythonProcess(program, f"{reservation}/flow") as process:
        folders = process.succeed().strip().split(os.pathsep)
    assert folders == [str(forebay.adios2.plugin_library().parent), "/nowhere"]


def test_configure_takes_parameters_in_either_spelling(reservation: str, streams: Streams) -> None:
    io = streams.io(f"{reservation}/flow", always_provide_latest_timestep=True, OpenTimeoutSecs=0.5)
    parameters = io.parameters()
    assert parameters["AlwaysProvideLatestTimestep"] == "true"
    assert parameters["OpenTimeoutSecs"] == "0.5"
    assert parameters["Stream"] == f"{reservation}/flow"
    with pytest.raises(ValueError, match="flow"):
        streams.io("flow")


def test_errors_are_pythons_own(reservation: str, streams: Streams) -> None:
    with pytest.raises(ValueError, match=r"QueueLimt \(did you mean QueueLimit"):
        streams.io(f"{reservation}/flow", QueueLimt=3).open("flow", WRITE)
    with pytest.raises(RuntimeError, match=f"{reservation}/none"):
        streams.io(f"{reservation}/none", open_timeout_secs=0).open("none", READ)
    with pytest.raises(RuntimeError, match="nowhere"):
        streams.io("nowhere/flow").open("flow", WRITE)


def test_parameter_page_is_what_the_engine_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "adios2-parameters.md"
    assert page.read_text() == parameters_page(), "regenerate it: python -m forebay.adios2 > docs/adios2-parameters.md"
