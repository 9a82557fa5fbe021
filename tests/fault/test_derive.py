# SPDX-License-Identifier: Apache-2.0
"""`forebay derive` killed at any message, and its source rewound: each step is derived once, from what holds."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.fault.conftest import MESSAGE_PLACES
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.sweeps import Sweep
from tests.support.time_limits import seconds

SOURCE, OUTPUT = "r/flow", "r/derived"
LINE = [sys.executable, "-m", "forebay", "derive", SOURCE, OUTPUT, "--expr", "d = n * 2 + 1"]
STEPS = 3
#: So many messages a derivation of these steps sends or receives at least.
POINTS_MIN = 16


def write(values: dict[int, int], mode: str = "w", **options: object) -> None:
    with forebay.open(SOURCE, mode, **options) as stream:  # type: ignore[call-overload]
        for number, value in values.items():
            with stream.step(number) as step:
                step["n"] = np.full(2000, value)


def derived() -> list[tuple[int, int, int]]:
    """Number, value and the source's epoch of each step, all of whose bytes match."""
    with forebay.open(OUTPUT, timeout=0) as stream:
        found = []
        for step in stream:
            step.verify()
            [value] = set(step["d"][...].tolist())
            found.append((step.number, value, int(step.attributes["derived_source_epoch"])))
        return found


def expected(values: dict[int, int], epoch: int = 1) -> list[tuple[int, int, int]]:
    return [(number, 2 * value + 1, epoch) for number, value in values.items()]


@pytest.mark.parametrize("place", MESSAGE_PLACES)
# crash-matrix: `forebay derive` | the program, at `client.message.before_send` | started again, it derives each step once
# crash-matrix: `forebay derive` | the program, at `client.message.after_send` | started again, it derives each step once
# crash-matrix: `forebay derive` | the program, at `client.message.received` | started again, it derives each step once
@pytest.mark.timeout(1800)
def test_killed_anywhere_and_started_again_it_derives_each_step_once(
    sweep: Sweep, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {10 * number: number for number in range(STEPS)}
    for number in sweep.numbers(POINTS_MIN):
        before = f"{place}:{number}"
        print(before)
        with Instance(tmp_path / str(number)) as instance:
            instance.create("r", "64MiB")
            monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
            write(values)
            with monkeypatch.context() as armed:
                armed.setenv("FOREBAY_FAIL_POINT", f"{before}=kill")
                status = subprocess.run(LINE, timeout=seconds(120), check=False).returncode
            assert status in (0, -signal.SIGKILL), before
            done = derived() if committed() is not None else []
            assert done == expected(values)[: len(done)], before
            assert subprocess.run(LINE, timeout=seconds(120), check=False).returncode == 0, before
            assert derived() == expected(values), before
            assert instance.problems() == []
        if status == 0:
            sweep.ends_at(number)
            return


def streams() -> list[forebay.StreamInfo]:
    with forebay.Admin() as admin:
        return admin.streams("r")


def committed() -> int | None:
    return next((info.committed for info in streams() if info.name == "derived"), None)


# crash-matrix: `forebay derive` | the program, and its source is rewound before it is started again | steps of what was taken back are taken back
def test_a_source_that_is_rewound_while_nobody_derives_takes_derived_steps_back(current_instance: Instance) -> None:
    with forebay.open(SOURCE, "w") as stream, subprocess.Popen(LINE) as killed:
        for value in range(2 * STEPS):
            stream.write("n", np.full(2000, value))
        until(lambda: committed() == 2 * STEPS - 1, "all are derived")
        killed.kill()
    again = {number: 100 + number for number in range(STEPS, 2 * STEPS)}
    write(again, "a", append_after=STEPS - 1)
    assert subprocess.run(LINE, timeout=seconds(120), check=False).returncode == 0
    assert derived() == expected({number: number for number in range(STEPS)}) + expected(again, 2)
    assert current_instance.problems() == []


# crash-matrix: `forebay derive` | server, while steps are derived | it goes on when the server is back: each step is derived once
def test_it_rides_out_a_server_that_dies(current_instance: Instance) -> None:
    values = {3 * number: number for number in range(3 * STEPS)}
    with subprocess.Popen([*LINE, "--timeout", "100"]) as running:
        with forebay.open(SOURCE, "w") as stream:
            for number, value in values.items():
                if value in (STEPS, 2 * STEPS):
                    current_instance.kill()
                    current_instance.start()
                with stream.step(number) as step:
                    step["n"] = np.full(2000, value)
        assert running.wait(timeout=seconds(100)) == 0
    assert derived() == expected(values)
    assert current_instance.problems() == []
