# SPDX-License-Identifier: Apache-2.0
"""History files become steps as their program finishes them, each record once, through kills of either part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import xarray as xr

import forebay
import forebay.connectors.xarray
from forebay.connectors import netcdf
from tests.connectors.test_netcdf import expect_same, opened, times_of
from tests.support.histories import mom_file, wrf_file
from tests.support.load import until
from tests.support.time_limits import seconds

FOREBAY = (sys.executable, "-m", "forebay")


@pytest.fixture
def run(reservation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is followed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with forebay.Admin() as admin:
        folder = Path(admin.reservation(reservation).files_path) / "run"
    folder.mkdir()
    return folder


def follow(reservation: str, **environment: str) -> subprocess.Popen[str]:
    """The line of docs/consumers/netcdf.md."""
    line = ("follow", f"{reservation}:run", "--match", "wrfout*", "--complete", "closed", "--until", "finished")
    return subprocess.Popen(
        [*FOREBAY, *line, "--exec", *FOREBAY, "netcdf", "ingest", "{path}", f"{reservation}/history"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def steps_of(address: str) -> int:
    with forebay.Admin() as admin:
        try:
            return admin.stream(address).steps
        except forebay.NotFoundError:
            return 0


@pytest.mark.timeout(300)
def test_the_command_takes_each_record_once_through_kills(reservation: str, run: Path) -> None:
    address = f"{reservation}/history"
    paths = [wrf_file(run / f"wrfout_d01_2026-11-01_{hour:02}:00:00", [hour, hour + 1]) for hour in (0, 2)]
    # The command dies as it commits the second record of the first file.
    with follow(reservation, FOREBAY_FAIL_POINT="client.part.before_send:2=kill") as broken:
        _, errors = broken.communicate(timeout=seconds(100))
    assert broken.returncode == 1, errors
    assert "the same line takes it again" in errors
    assert steps_of(address) == 1
    # The follower dies, and its command with it, somewhere in the second file or after it.
    with follow(reservation) as killed:
        until(lambda: steps_of(address) >= 3, "the first record of the second file")
        killed.send_signal(signal.SIGKILL)
    with forebay.Admin() as admin:
        until(lambda: admin.stream(address).status is not forebay.StreamStatus.LIVE, "the command has ended, too")
    paths.append(wrf_file(run / "wrfout_d01_2026-11-01_04:00:00", [4, 5]))
    (run / "finished").touch()
    with follow(reservation) as last:
        _, errors = last.communicate(timeout=seconds(100))
    assert last.returncode == 0, errors
    with xr.open_dataset(f"forebay://{address}", engine="forebay") as dataset:
        expect_same(dataset, opened(paths, "Time"), "Time")


def test_a_consumer_sees_one_stream_while_the_model_runs(reservation: str, run: Path) -> None:
    address = f"{reservation}/history"
    given: list[float] = []

    def consume() -> None:
        with forebay.open(address) as stream:
            given.extend(step["time"].item() for step in stream.follow(timeout=seconds(60)))

    consumer = threading.Thread(target=consume)
    consumer.start()
    mom_file(run / "ocean_0.nc", [0, 1])

    def finished_files() -> object:
        with forebay.follow_files(f"{reservation}:run", "ocean_*.nc", "history", until="finished") as files:
            for file in files:
                yield file.path
                # The next one appears by a rename when this one's steps are there.
                assert steps_of(address) == 2 * (file.number + 1)
                if file.number < 2:
                    number = file.number + 1
                    mom_file(run / "next", [2 * number, 2 * number + 1]).rename(run / f"ocean_{number}.nc")
                else:
                    (run / "finished").touch()

    assert netcdf.ingest(finished_files(), address) == 6  # type: ignore[arg-type]
    consumer.join(seconds(60))
    assert given == times_of(address) == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]


def test_a_file_that_is_being_written_is_not_taken(reservation: str, run: Path, tmp_path: Path) -> None:
    """The library refuses it, and so does the rule `closed` before."""
    whole = wrf_file(tmp_path / "wrfout", [0], "NETCDF3_CLASSIC").read_bytes()
    with (run / "wrfout_d01").open("wb") as file:
        file.write(whole[:-10])
        file.flush()
        with pytest.raises(forebay.CorruptError, match="10 bytes"):
            netcdf.ingest([run / "wrfout_d01"], f"{reservation}/history")
        with forebay.follow_files(f"{reservation}:run", "wrfout*", complete="closed", timeout=0) as files:
            with pytest.raises(forebay.DeadlineExceededError):
                next(files)
            file.write(whole[-10:])
            file.close()
            files.timeout = seconds(60)
            assert netcdf.ingest([next(files).path], f"{reservation}/history") == 1
