# SPDX-License-Identifier: Apache-2.0
"""Stage-out of steps against a real server: what is chosen, written, checked, marked, kept, replaced and refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.errors import (
    AlreadyExistsError,
    BusyError,
    CorruptError,
    DisconnectedError,
    InvalidArgumentError,
    NoSpaceError,
    PermissionDeniedError,
    StepGoneError,
    StepNotFoundError,
    StreamInterruptedError,
    StreamNotFoundError,
    UnsupportedError,
    VariableNotFoundError,
)
from forebay.manager.jobs import StepsJob
from forebay.workflows.staging.publication import destination_lock
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.support.load import until
from tests.support.mounted import mounted
from tests.support.staged_output import check_destination, read_bp5, receipt_entries, stray_names
from tests.support.staging_server import StagingServer

ELEMENTS = 4096


def field(number: int, round_number: int = 0) -> NDArray[np.float64]:
    """What the tests write into step `number`."""
    return np.arange(ELEMENTS, dtype=np.float64) * 1e-3 + number + 1000 * round_number


def write_steps(stream: forebay.WritableStream, count: int, round_number: int = 0) -> None:
    for _ in range(count):
        with stream.step() as step:
            step["T"] = field(stream.next_step, round_number)
            step["time"] = float(stream.next_step)


def stage(job: StepsJob) -> dict[str, Any]:
    return stage_steps(job, JsonReporter(StringIO()))


def staged_numbers(address: str) -> list[int]:
    with forebay.Admin() as admin:
        return [step.number for step in admin.steps(address) if step.staged]


@pytest.fixture
def address(reservation: str) -> str:
    """An ended stream of 25 steps, every tenth precious."""
    address = f"{reservation}/flow"
    with forebay.open(address, "w", retention="precious:10") as stream:
        write_steps(stream, 25)
    return address


@pytest.fixture
def job(address: str, tmp_path: Path) -> StepsJob:
    return StepsJob(address, str(tmp_path / "out"), every=10)


def test_every_tenth_step_is_written_checked_and_marked(address: str, job: StepsJob, tmp_path: Path) -> None:
    result = stage(job)
    out = tmp_path / "out"
    assert result == {"receipt": str(out / "receipt.json"), "staged": [0, 10, 20], "kept": [], "lost": []}
    assert sorted(path.name for path in out.iterdir()) == [
        "flow.000000.bp",
        "flow.000010.bp",
        "flow.000020.bp",
        "receipt.json",
    ]
    for number in (0, 10, 20):
        np.testing.assert_array_equal(read_bp5(out / f"flow.{number:06d}.bp", "T"), field(number))
    check_destination(out)
    assert staged_numbers(address) == [0, 10, 20]
    with forebay.Admin() as admin:
        assert not any(step.precious for step in admin.steps(address))


def test_no_profile_of_adios2_is_left_in_the_temporary_folder(reservation: str, tmp_path: Path) -> None:
    """ADIOS2 leaves one for each file that is read, as reading it without Forebay shows."""
    name = f"unprofiled{os.getpid()}"

    def profiles() -> list[Path]:
        return list(Path("/tmp").glob(f"*{name}*profiling.json"))

    with forebay.open(f"{reservation}/{name}", "w") as stream:
        write_steps(stream, 1)
    stage(StepsJob(f"{reservation}/{name}", str(tmp_path / "out")))
    assert profiles() == []
    # Nor where what was read is not what it should be.
    data = tmp_path / "out" / f"{name}.000000.bp" / "data.0"
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    assert stage(StepsJob(f"{reservation}/{name}", str(tmp_path / "out")))["staged"] == [0]
    assert profiles() == []
    read_bp5(tmp_path / "out" / f"{name}.000000.bp", "T")
    left = profiles()
    for profile in left:
        profile.unlink()
    assert len(left) == 1


def test_a_second_run_checks_and_keeps(job: StepsJob, tmp_path: Path) -> None:
    stage(job)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    result = stage(job)
    assert (result["staged"], result["kept"]) == ([], [0, 10, 20])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_a_damaged_output_is_staged_out_again(job: StepsJob, tmp_path: Path) -> None:
    stage(job)
    data = tmp_path / "out" / "flow.000010.bp" / "data.0"
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    shutil.rmtree(tmp_path / "out" / "flow.000020.bp")
    result = stage(job)
    assert (result["staged"], result["kept"]) == ([10, 20], [0])
    check_destination(tmp_path / "out")


def test_hdf5_has_the_same_values(job: StepsJob, tmp_path: Path) -> None:
    stage(replace(job, format="hdf5"))
    with h5py.File(tmp_path / "out" / "flow.000010.h5") as file:
        np.testing.assert_array_equal(file["T"][...], field(10))
        assert file["time"][()] == 10.0
    check_destination(tmp_path / "out")


def test_chosen_variables_do_not_make_a_step_staged(address: str, job: StepsJob, tmp_path: Path) -> None:
    stage(replace(job, variables=("time",)))
    assert staged_numbers(address) == []
    assert receipt_entries(tmp_path / "out")[10]["complete"] is False
    stage(replace(job, variables=("time",), mark_partial=True))
    assert staged_numbers(address) == [0, 10, 20]
    # All of them are more than what lies there.
    assert stage(job)["staged"] == [0, 10, 20]
    assert receipt_entries(tmp_path / "out")[10]["complete"] is True
    with pytest.raises(VariableNotFoundError, match="'p'"):
        stage(replace(job, variables=("T", "p")))


def test_a_step_that_was_asked_for_by_number_must_be_there(job: StepsJob) -> None:
    assert stage(replace(job, every=None, steps="3,7:9"))["staged"] == [3, 7, 8]
    with pytest.raises(StepNotFoundError, match=r"no step 99 \(it keeps 0 to 24\)"):
        stage(replace(job, every=None, steps="3,99"))
    assert stage(replace(job, every=None, steps="90:100"))["staged"] == []


def test_stage_that_chooses_no_step_leaves_an_empty_receipt(job: StepsJob, tmp_path: Path) -> None:
    result = stage(replace(job, every=None, steps="90:100"))
    assert result["staged"] == []
    assert result["receipt"] == str(tmp_path / "out" / "receipt.json")
    assert receipt_entries(tmp_path / "out") == {}
    stage(job)
    stage(replace(job, every=None, steps="90:100"))
    assert sorted(receipt_entries(tmp_path / "out")) == [0, 10, 20]


def test_withdrawn_and_rewritten_steps_are_replaced(address: str, job: StepsJob, tmp_path: Path) -> None:
    stage(job)
    with forebay.open(address, "a", append_after=10) as stream:
        write_steps(stream, 20, round_number=1)
    result = stage(job)
    assert (result["staged"], result["kept"]) == ([20, 30], [0, 10])
    out = tmp_path / "out"
    np.testing.assert_array_equal(read_bp5(out / "flow.000020.bp", "T"), field(20, round_number=1))
    entries = receipt_entries(out)
    assert entries[20]["epoch"] > entries[10]["epoch"]
    check_destination(out)
    assert stray_names(out) == set()


def test_outputs_of_another_stream_are_not_replaced_unasked(reservation: str, job: StepsJob, tmp_path: Path) -> None:
    stage(job)
    with forebay.Admin() as admin:
        admin.remove_stream(f"{reservation}/flow", force=True)
    with forebay.open(f"{reservation}/flow", "w") as stream:
        write_steps(stream, 1, round_number=2)
    with pytest.raises(AlreadyExistsError, match="--replace"):
        stage(job)
    np.testing.assert_array_equal(read_bp5(tmp_path / "out" / "flow.000000.bp", "T"), field(0))
    assert stage(replace(job, replace=True))["staged"] == [0]
    np.testing.assert_array_equal(read_bp5(tmp_path / "out" / "flow.000000.bp", "T"), field(0, round_number=2))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "flow.000000.bp").write_text("somebody's")
    with pytest.raises(AlreadyExistsError, match="in no receipt"):
        stage(replace(job, destination=str(tmp_path / "other")))


def test_two_streams_share_a_destination(reservation: str, job: StepsJob, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/more", "w") as stream:
        write_steps(stream, 1)
    stage(job)
    stage(replace(job, stream=f"{reservation}/more"))
    document = json.loads((tmp_path / "out" / "receipt.json").read_text())
    assert [entry["output"] for entry in document["steps"]] == [
        "flow.000000.bp",
        "flow.000010.bp",
        "flow.000020.bp",
        "more.000000.bp",
    ]


def test_steps_without_checksums_need_consent(reservation: str, job: StepsJob, tmp_path: Path) -> None:
    address = f"{reservation}/bare"
    with forebay.open(address, "w", checksums=False) as stream:
        write_steps(stream, 1)
    bare = replace(job, stream=address)
    with pytest.raises(UnsupportedError, match="'T' was written without checksums"):
        stage(bare)
    assert stage(replace(bare, accept_unchecked=True))["staged"] == [0]
    assert receipt_entries(tmp_path / "out")[0]["verified"] == "read"


@pytest.mark.parametrize("output_format", ["bp5", "hdf5"])
def test_damaged_segments_are_told_and_the_other_steps_saved(
    server: Any, reservation: str, job: StepsJob, tmp_path: Path, output_format: str
) -> None:
    job = replace(job, format=output_format)
    needle = field(10).tobytes()
    hits = 0
    with forebay.Admin() as admin:
        files = Path(admin.reservation(reservation).files_path)
    for segment in (files.parent / "segments").iterdir():
        content = segment.read_bytes()
        place = content.find(needle)
        if place >= 0:
            with segment.open("r+b") as file:
                file.seek(place + 777)
                file.write(bytes([content[place + 777] ^ 0x40]))
            hits += 1
    assert hits == 1
    with pytest.raises(CorruptError, match=r"damaged.*all other chosen steps are staged out"):
        stage(job)
    assert sorted(receipt_entries(tmp_path / "out")) == [0, 20]
    assert staged_numbers(job.stream) == [0, 20]


def test_a_segment_that_is_too_short_costs_only_its_steps(
    server: Any, reservation: str, job: StepsJob, tmp_path: Path
) -> None:
    with forebay.Admin() as admin:
        segments = Path(admin.reservation(reservation).files_path).parent / "segments"
    needle = field(10).tobytes()
    (segment,) = [path for path in segments.iterdir() if needle in path.read_bytes()]
    os.truncate(segment, segment.read_bytes().find(needle) + 777)
    # Metadata lies behind the data: steps 10 and 20 cannot even be opened.
    with pytest.raises(CorruptError, match=r"1 more steps.*all other chosen steps are staged out"):
        stage(job)
    assert sorted(receipt_entries(tmp_path / "out")) == [0]


def test_following_goes_on_behind_a_step_whose_metadata_is_damaged(
    server: Any, reservation: str, tmp_path: Path
) -> None:
    job = StepsJob(f"{reservation}/flow", str(tmp_path / "out"), every=2, follow=True)
    with forebay.Admin() as admin:
        segments = Path(admin.reservation(reservation).files_path).parent / "segments"
    with forebay.open(job.stream, "w") as stream:
        for number in range(7):
            with stream.step() as step:
                step.attributes["mark"] = f"metadata of step {number}"
                step["T"] = field(number)
    for number in (3, 4):
        needle = f"metadata of step {number}".encode()
        (segment,) = [path for path in segments.iterdir() if needle in path.read_bytes()]
        with segment.open("r+b") as file:
            file.seek(segment.read_bytes().find(needle))
            file.write(b"M")
    with pytest.raises(CorruptError, match=r"damaged.*all other chosen steps are staged out") as raised:
        stage(job)
    assert "step 4" in str(raised.value)
    assert "more steps" not in str(raised.value)
    assert sorted(receipt_entries(tmp_path / "out")) == [0, 2, 6]
    assert staged_numbers(job.stream) == [0, 2, 6]


def test_following_a_stream_that_cannot_be_read_any_more_ends_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = StepsJob("run/flow", str(tmp_path / "out"), follow=True)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            stage(job)
        except BaseException as error:
            failures.append(error)

    with StagingServer(tmp_path / "root", capacity="256MiB") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("run", "64MiB")
            folder = Path(admin.reservation("run").files_path).parent
        stream = forebay.open(job.stream, "w")
        write_steps(stream, 3)
        staging = threading.Thread(target=run)
        staging.start()
        until(lambda: staged_numbers(job.stream) == [0, 1, 2], "all steps are staged")
        server.kill()
        (journal,) = (path for path in folder.rglob("journal.*") if "flow" in str(path))
        with journal.open("r+b") as file:
            file.write(b"\xff" * 64)
        server.start()
        staging.join(90)
        assert not staging.is_alive()
        stream.abandon()
    (failure,) = failures
    assert isinstance(failure, CorruptError)
    assert "step" not in str(failure).split("flow")[0]
    assert sorted(receipt_entries(tmp_path / "out")) == [0, 1, 2]


@pytest.mark.parametrize("failing", ["mark", "acknowledge"])
def test_an_output_stays_if_its_mark_fails(
    reservation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    job = StepsJob(f"{reservation}/flow", str(tmp_path / "out"), follow=True, consumer="archive")
    with forebay.open(job.stream, "w") as stream:
        write_steps(stream, 5)

    def fail(*_: Any) -> None:
        raise DisconnectedError("the server is away")

    with monkeypatch.context() as patch:
        if failing == "mark":
            patch.setattr("forebay.Admin.mark_staged", fail)
        else:
            patch.setattr(forebay.Step, "ack", fail)
        with pytest.raises(DisconnectedError):
            stage(job)
    assert sorted(receipt_entries(tmp_path / "out")) == [0]
    check_destination(tmp_path / "out")
    assert stray_names(tmp_path / "out") == set()
    result = stage(job)
    assert (result["kept"], result["staged"]) == ([0], [1, 2, 3, 4])
    assert staged_numbers(job.stream) == [0, 1, 2, 3, 4]


def test_following_stages_each_step_as_it_becomes_durable(reservation: str, tmp_path: Path) -> None:
    job = StepsJob(f"{reservation}/live", str(tmp_path / "out"), every=10, follow=True)
    results: list[dict[str, Any]] = []
    staging = threading.Thread(target=lambda: results.append(stage(job)))
    staging.start()
    # It waits for the stream, and every tenth step is kept until it has been staged.
    with forebay.open(job.stream, "w", retention="last:1,precious:10") as stream:
        write_steps(stream, 41)
    staging.join(60)
    (result,) = results
    assert result["staged"] == [0, 10, 20, 30, 40]
    assert result["lost"] == []
    check_destination(tmp_path / "out")


def test_following_a_run_takes_no_other_runs_steps(reservation: str, tmp_path: Path) -> None:
    job = StepsJob(f"{reservation}/live", str(tmp_path / "out"), follow=True, run="tuesday")
    with forebay.open(job.stream, "w", run="monday") as stream:
        write_steps(stream, 3)
    assert stage(replace(job, run="monday"))["staged"] == [0, 1, 2]
    results: list[dict[str, Any]] = []
    staging = threading.Thread(target=lambda: results.append(stage(job)))
    staging.start()
    # It waits for the run, and is there before its first step.
    with forebay.open(job.stream, "a", run="monday") as stream:
        write_steps(stream, 2)
    with forebay.open(job.stream, "a", run="tuesday", rendezvous_readers=1) as stream:
        write_steps(stream, 2)
    with forebay.open(job.stream, "a", run="wednesday") as stream:
        write_steps(stream, 1)
    staging.join(60)
    (result,) = results
    assert (result["staged"], result["lost"]) == ([5, 6], [])
    # Taken up again it goes on with the same run.
    again = stage(job)
    assert (again["staged"], again["kept"], again["lost"]) == ([], [5, 6], [])


def test_following_ends_when_the_last_chosen_step_is_there(reservation: str, tmp_path: Path) -> None:
    job = StepsJob(f"{reservation}/live", str(tmp_path / "out"), steps="1,3", follow=True)
    with forebay.open(job.stream, "w") as stream:
        write_steps(stream, 5)
        assert stage(job)["staged"] == [1, 3]


def test_following_an_interrupted_stream_ends_with_that(reservation: str, tmp_path: Path) -> None:
    job = StepsJob(f"{reservation}/live", str(tmp_path / "out"), every=2, follow=True)
    stream = forebay.open(job.stream, "w", grace=0.2)
    write_steps(stream, 3)
    stream.abandon()
    with pytest.raises(StreamInterruptedError):
        stage(job)
    assert sorted(receipt_entries(tmp_path / "out")) == [0, 2]


def test_what_follows_a_stream_that_goes_on_says_so_without_a_reason(reservation: str, tmp_path: Path) -> None:
    job = StepsJob(f"{reservation}/live", str(tmp_path / "out"), follow=True)
    stream = forebay.open(job.stream, "w", grace=60)
    write_steps(stream, 3)
    out = StringIO()
    with ThreadPoolExecutor(1) as background:
        staging = background.submit(stage_steps, job, JsonReporter(out))
        until(lambda: '"event": "files"' in out.getvalue(), "the stage follows")
        stream.abandon()
        until(lambda: "the stream is interrupted: " in out.getvalue(), "the stage is told")
        with forebay.open(job.stream, "a") as stream:
            until(lambda: "the stream is live" in out.getvalue(), "the stage is told again")
        assert staging.result(60)["staged"] == [0, 1, 2]
    notes = [line["text"] for line in map(json.loads, out.getvalue().splitlines()) if line["event"] == "note"]
    assert notes[-1] == "the stream is live"


def test_a_step_that_was_dropped_between_two_runs_is_told(reservation: str, tmp_path: Path) -> None:
    job = StepsJob(f"{reservation}/live", str(tmp_path / "out"), every=2, follow=True)
    stream = forebay.open(job.stream, "w", grace=0.1)
    write_steps(stream, 3)
    stream.abandon()
    with pytest.raises(StreamInterruptedError):
        stage(job)
    with forebay.open(job.stream, "a", retention="last:2") as stream:
        write_steps(stream, 6)
    with pytest.raises(StepGoneError, match="4, 6"):
        stage(job)
    assert stage(replace(job, accept_gaps=True))["kept"] == [8]
    assert sorted(receipt_entries(tmp_path / "out")) == [0, 2, 8]


def test_a_consumer_makes_retention_wait_for_the_stage(reservation: str, tmp_path: Path) -> None:
    job = StepsJob(f"{reservation}/live", str(tmp_path / "out"), every=5, follow=True, consumer="archive")
    results: list[dict[str, Any]] = []
    staging = threading.Thread(target=lambda: results.append(stage(job)))
    staging.start()
    with forebay.open(job.stream, "w", retention="consumers:archive") as stream:
        write_steps(stream, 21)
    staging.join(60)
    assert results[0]["staged"] == [0, 5, 10, 15, 20]
    with forebay.Admin() as admin:
        (archive,) = admin.stream(job.stream).consumers
    assert archive.lag_steps == 0


def test_another_stage_in_the_same_destination_is_refused(job: StepsJob, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with destination_lock(tmp_path / "out"), pytest.raises(BusyError, match="another stage is writing"):
        stage(job)
    assert stage(job)["staged"] == [0, 10, 20]


def test_destinations_that_cannot_be_written_are_told(job: StepsJob, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="is a file"):
        stage(replace(job, destination=str(tmp_path / "file")))
    with pytest.raises((PermissionDeniedError, forebay.StorageError)):
        stage(replace(job, destination="/proc/forebay"))
    with pytest.raises(StreamNotFoundError):
        stage(replace(job, stream=job.stream + "x"))


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    with mounted(tmp_path / "small", 1) as place:
        yield place


def test_outputs_are_replaced_where_there_is_room_for_one_more(reservation: str, small_file_system: Path) -> None:
    job = StepsJob(f"{reservation}/big", str(small_file_system / "out"), replace=True)
    for round_number in (0, 2):
        with forebay.open(job.stream, "w") as stream:
            for number in range(2):
                with stream.step() as step:
                    step["T"] = np.random.default_rng(round_number + number).random(40_000)
        assert stage(job)["staged"] == [0, 1]
        check_destination(small_file_system / "out")


@pytest.mark.parametrize("output_format", ["bp5", "hdf5"])
def test_a_full_destination_is_told_and_taken_up_when_there_is_room(
    reservation: str, small_file_system: Path, output_format: str
) -> None:
    address = f"{reservation}/big"
    with forebay.open(address, "w") as stream:
        for number in range(4):
            with stream.step() as step:
                step["T"] = np.random.default_rng(number).random(40_000)
    job = StepsJob(address, str(small_file_system / "out"), format=output_format)
    with pytest.raises(NoSpaceError, match="make room and run the same command again"):
        stage(job)
    out = small_file_system / "out"
    assert sorted(receipt_entries(out)) == [0, 1, 2]
    check_destination(out)
    assert stray_names(out) == set()
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_file_system)], check=True)
    result = stage(job)
    assert (result["staged"], result["kept"]) == ([3], [0, 1, 2])
