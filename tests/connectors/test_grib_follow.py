# SPDX-License-Identifier: Apache-2.0
"""A model's GRIB files become steps while it runs, each once, through kills of whoever reads them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import forebay
from tests.support.example_programs import lines_of
from tests.support.grib_files import write_cycle
from tests.support.load import until
from tests.support.time_limits import seconds

STEPS = 6

# Dies by itself, at the N-th value that it decodes or after the N-th step; then its successor goes on.
FOLLOWER = """
import os, signal, sys
import forebay
from forebay.connectors import grib
from forebay.connectors.grib.messages import GribFiles

reservation, at, countdown = sys.argv[1], sys.argv[2], int(sys.argv[3])

def count(what):
    global countdown
    countdown -= what == at
    if countdown == 0 and what == at:
        os.kill(os.getpid(), signal.SIGKILL)

decode = GribFiles.read

def read(*arguments):
    decode(*arguments)
    count("value")

GribFiles.read = read
with forebay.follow_files(f"{reservation}:run", "fc???.grib2", "steps", until="end") as files:
    grib.ingest((file.path for file in files), f"{reservation}/fc", on_step=lambda done: count("step"))
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where positions are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def run(reservation: str) -> Path:
    """The folder that the model writes into."""
    with forebay.Admin() as admin:
        folder = Path(admin.reservation(reservation).files_path) / "run"
    folder.mkdir()
    return folder


def write(run: Path, step: int) -> Path:
    """A file as a model writes it: under another name first."""
    write_cycle(run / "part", step)
    return (run / "part").rename(run / f"fc{step:03d}.grib2")


def expect_all(reservation: str, run: Path) -> None:
    """Every step once, with the values of its file."""
    mine = xr.open_dataset(f"forebay://{reservation}/fc", engine="forebay", group="isobaricInhPa")
    assert mine["step"].values.tolist() == list(range(1, STEPS + 1))
    for step in range(1, STEPS + 1):
        theirs = xr.open_dataset(
            run / f"fc{step:03d}.grib2",
            engine="cfgrib",
            backend_kwargs={"indexpath": "", "filter_by_keys": {"typeOfLevel": "isobaricInhPa"}},
            decode_timedelta=False,
        )
        np.testing.assert_array_equal(mine["t"].sel(step=step).values, theirs["t"].values)


# crash-matrix: GRIB files followed into a stream | the reader is killed in a step, or between a step and its note | the file is given again, its step is written again or passed over: every step is there once
def test_every_step_is_there_once_through_kills_at_every_point(reservation: str, run: Path) -> None:
    for step in range(1, STEPS + 1):
        write(run, step)
    (run / "end").touch()
    deaths = [("value", 1), ("value", 5), ("step", 1), ("value", 7), ("step", 2), ("step", 1), ("value", 2)]
    for at, number in [*deaths, ("value", 0)]:
        done = subprocess.run(
            [sys.executable, "-c", FOLLOWER, reservation, at, str(number)],
            capture_output=True,
            text=True,
            timeout=seconds(100),
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if number else 0), done.stderr
    expect_all(reservation, run)


def test_a_killed_follow_command_goes_on_while_the_model_writes(reservation: str, run: Path) -> None:
    command = [sys.executable, "-m", "forebay"]
    line = [*command, "follow", f"{reservation}:run", "--match", "fc???.grib2", "--until", "end"]
    line += ["--exec", *command, "grib", "ingest", "{path}", f"{reservation}/fc"]

    def steps() -> int:
        with forebay.Admin() as admin:
            return next((stream.steps for stream in admin.streams(reservation) if stream.name == "fc"), 0)

    write(run, 1)
    write(run, 2)
    with subprocess.Popen(line, stdout=subprocess.DEVNULL) as following:
        try:
            until(lambda: steps() >= 1, "the first step")
        finally:
            following.kill()
    for step in range(3, STEPS + 1):
        write(run, step)
    (run / "end").touch()
    done = subprocess.run(line, capture_output=True, text=True, timeout=seconds(100), check=False)
    assert done.returncode == 0, done.stderr
    expect_all(reservation, run)


def test_the_example_follows_a_forecast_and_goes_back_to_grib(reservation: str) -> None:
    lines = lines_of("30_forecast.py", reservation)
    assert lines[0] == "steps [0, 1, 2, 3, 4, 5, 6], messages missing: 0"
    assert lines[1] == "2026-11-27T00:00: 289.50 K at 45.0 N, 5.0 E"
    assert lines[7] == "2026-11-27T06:00: 289.50 K at 45.0 N, 17.0 E"
    assert [line.partition(":")[0] for line in lines[8:]] == ["step 6 as simple", "step 6 as ieee"]
