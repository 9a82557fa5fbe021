# SPDX-License-Identifier: Apache-2.0
"""An ADIOS2 program dies at each message that its engine exchanges with the server; run again, it ends as without."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from tests.fault.conftest import MESSAGE_PLACES
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.processes import PythonProcess
from tests.support.sweeps import Sweep

STEPS = 5
#: So many messages a writer or reader of these has at least.
MESSAGES_MIN = 9

# Appends up to a number of steps, or replaces what there is.
WRITER = """
    import sys, numpy as np, adios2, forebay.adios2
    address, mode, first, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5])
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, address)
    with adios2.Stream(io, "flow", mode) as stream:
        for number in range(first, steps):
            stream.begin_step()
            assert stream.current_step() == number, (stream.current_step(), number)
            stream.write("T", np.arange(2000.0) + number, [2000], [0], [2000])
            stream.end_step()
"""

# Tells of each step that it has read, before it lets go of it.
READER = """
    import sys, numpy as np, adios2, forebay.adios2
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, sys.argv[1], **dict(argument.split("=") for argument in sys.argv[2:]))
    with adios2.Stream(io, "flow", "r") as stream:
        for step in stream:
            number = step.current_step()
            np.testing.assert_array_equal(step.read("T"), np.arange(2000.0) + number)
            print(number)
"""


def field(number: int) -> NDArray[np.float64]:
    return np.arange(2000.0) + number


def run_armed(fail_point: str, program: str, *arguments: str) -> tuple[bool, str]:
    """Whether the program died there, and what it had printed."""
    with pytest.MonkeyPatch.context() as armed:
        armed.setenv("FOREBAY_FAIL_POINT", f"{fail_point}=kill")
        process = PythonProcess(program, *arguments)
    with process:
        status, printed, errors = process.finish()
    assert status in (0, -signal.SIGKILL), errors
    return status != 0, printed


def run(program: str, *arguments: str) -> str:
    """What the program prints, which must end well."""
    with PythonProcess(program, *arguments) as process:
        return process.succeed()


def check_steps(instance: Instance, address: str) -> int:
    """Each kept step is whole, and there is no gap; their number."""
    try:
        kept = [summary.number for summary in instance.steps(address)]
    except forebay.NotFoundError:
        return 0
    assert kept == list(range(len(kept)))
    with forebay.open(address) as stream:
        for number in kept:
            np.testing.assert_array_equal(stream[number]["T"][...], field(number))
    return len(kept)


@pytest.mark.parametrize("mode", ["a", "w"])
@pytest.mark.parametrize("place", [*MESSAGE_PLACES, "client.part.before_send"])
# crash-matrix: every message of a program | an ADIOS2 writer, at `client.message.before_send` | the committed steps, whole; run again, it appends or replaces them
# crash-matrix: every message of a program | an ADIOS2 writer, at `client.message.after_send` | the committed steps, whole; run again, it appends or replaces them
# crash-matrix: every message of a program | an ADIOS2 writer, at `client.message.received` | the committed steps, whole; run again, it appends or replaces them
# crash-matrix: every message of a program | an ADIOS2 writer, its data written, at `client.part.before_send` | the committed steps, whole; run again, it appends or replaces them
@pytest.mark.timeout(600)
def test_a_writer_that_dies_anywhere_can_be_run_again(
    current_instance: Instance, sweep: Sweep, place: str, mode: str
) -> None:
    for number in sweep.numbers(STEPS if place == "client.part.before_send" else MESSAGES_MIN):
        print(f"{place}:{number}")
        address = f"r/flow{number}"
        died, _ = run_armed(f"{place}:{number}", WRITER, address, "w", "0", str(STEPS))
        committed = check_steps(current_instance, address)
        if not died:
            assert committed == STEPS
        elif place == "client.part.before_send":
            assert committed == number - 1
        run(WRITER, address, mode, str(committed if mode == "a" else 0), str(STEPS))
        assert check_steps(current_instance, address) == STEPS
        assert str(current_instance.stream(address).status) == "ended"
        assert current_instance.problems() == []
        if not died:
            sweep.ends_at(number)
            return


@pytest.mark.parametrize("consumer", ["", "render"])
@pytest.mark.parametrize("place", MESSAGE_PLACES)
# crash-matrix: every message of a program | an ADIOS2 reader, also as a consumer, at `client.message.before_send` | run again, it reads every step; a consumer goes on with those that it has not let go of; nothing stays held
# crash-matrix: every message of a program | an ADIOS2 reader, also as a consumer, at `client.message.after_send` | run again, it reads every step; a consumer goes on with those that it has not let go of; nothing stays held
# crash-matrix: every message of a program | an ADIOS2 reader, also as a consumer, at `client.message.received` | run again, it reads every step; a consumer goes on with those that it has not let go of; nothing stays held
@pytest.mark.timeout(600)
def test_a_reader_that_dies_anywhere_can_be_run_again(
    current_instance: Instance, sweep: Sweep, place: str, consumer: str
) -> None:
    parameters = (f"consumer={consumer}",) if consumer else ()
    for number in sweep.numbers(MESSAGES_MIN):
        print(f"{place}:{number}")
        address = f"r/flow{number}"
        with forebay.open(address, "w") as stream:
            for _ in range(STEPS):
                with stream.step() as step:
                    step["T"] = field(stream.next_step)
        died, printed = run_armed(f"{place}:{number}", READER, address, *parameters)
        before = [int(line) for line in printed.split()]
        after = [int(line) for line in run(READER, address, *parameters).split()]
        assert before == list(range(len(before)))
        if consumer:
            # One that it had told of and not let go of comes again.
            assert after in (list(range(len(before), STEPS)), list(range(max(len(before) - 1, 0), STEPS)))
        else:
            assert after == list(range(STEPS))
        until(lambda: not any(step.pins for step in current_instance.steps(address)), "nothing is held")  # noqa: B023
        assert current_instance.problems() == []
        if not died:
            assert before == list(range(STEPS))
            sweep.ends_at(number)
            return
