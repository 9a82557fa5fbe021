# SPDX-License-Identifier: Apache-2.0
"""Stage-out of many steps into one output: BP5 with steps, HDF5 with a dimension of steps."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import adios2
import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.errors import (
    AlreadyExistsError,
    CorruptError,
    InvalidArgumentError,
    NoSpaceError,
    StepGoneError,
    StreamInterruptedError,
    UnsupportedError,
)
from forebay.manager.jobs import StepsJob
from forebay.workflows.staging import merged, publication
from forebay.workflows.staging.merged import stage_into_one
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.support.mounted import mounted
from tests.support.other_user import as_user
from tests.support.staged_output import check_destination, receipt_entries, stray_names

NAMES = ("run1.bp", "run1.h5")


def field(number: int) -> NDArray[np.float64]:
    return np.arange(600, dtype=np.float64).reshape(20, 30) + number


def write(address: str, numbers: Sequence[int], mode: str = "w", **options: Any) -> None:
    with forebay.open(address, mode, **options) as stream:  # type: ignore[call-overload]
        for number in numbers:
            with stream.step() as step:
                step["T"] = field(number)
                step["time"] = 0.5 * number
                step["name"] = f"step {number}"
                step.attributes["T/units"] = "K"
                step.attributes["round"] = number


def stage(job: StepsJob) -> tuple[dict[str, Any], str]:
    """Result, and all that was reported."""
    out = StringIO()
    return stage_into_one(job, JsonReporter(out)), out.getvalue()


def fields(path: Path) -> tuple[list[int], NDArray[np.float64], list[float]]:
    """Numbers of the steps, T of all of them, and time, as plain ADIOS2 and h5py read them."""
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            assert file["T"].dims[0].label == "step"
            assert file["T"].dims[0]["step"] == file["forebay_step"]
            return list(file["forebay_step"][()]), file["T"][()], list(file["time"][()])
    arrays, times = [], []
    with adios2.Stream(str(path), "r") as stream:
        for step in stream.steps():
            arrays.append(np.asarray(step.read("T")))
            times.append(float(np.asarray(step.read("time")).item()))
    with adios2.FileReader(str(path)) as reader:
        numbers = [int(number) for number in reader.read_attribute("forebay/steps")]
    return numbers, np.array(arrays), times


def check(out: Path, name: str, numbers: Sequence[int]) -> None:
    """The output has these steps, the receipt says so, and nothing else lies there."""
    found, arrays, times = fields(out / name)
    assert found == list(numbers)
    np.testing.assert_array_equal(arrays, np.array([field(number) for number in numbers]))
    assert times == [0.5 * number for number in numbers]
    (entry,) = receipt_entries(out).values()
    assert (entry["output"], entry["complete"], entry["verified"]) == (name, True, "checksums")
    assert [number for number, _ in entry["steps"]] == list(numbers)
    check_destination(out)
    assert stray_names(out) == set()


@pytest.fixture
def address(reservation: str) -> str:
    """An ended stream of six steps."""
    address = f"{reservation}/flow"
    write(address, range(6), retention="precious:1")
    return address


@pytest.mark.parametrize("name", NAMES)
def test_all_steps_go_into_one_output(address: str, tmp_path: Path, name: str) -> None:
    """They are marked as staged, with the receipt that stays; staged again, all is there."""
    job = StepsJob(address, str(tmp_path / "out"), into=name)
    result, told = stage(job)
    assert result["staged"] == list(range(6))
    check(tmp_path / "out", name, range(6))
    assert "attributes that differ from step to step have the value of the last one: round" in told
    with forebay.Admin() as admin:
        assert all(step.staged and not step.precious for step in admin.steps(address))
    before = (tmp_path / "out" / name).stat().st_ino
    result, _ = stage(job)
    assert (result["staged"], result["kept"]) == ([], list(range(6)))
    assert (tmp_path / "out" / name).stat().st_ino == before


@pytest.mark.parametrize("name", NAMES)
def test_texts_attributes_and_types_are_those_of_the_stream(address: str, tmp_path: Path, name: str) -> None:
    stage(StepsJob(address, str(tmp_path), into=name, steps="1,3"))
    if name.endswith(".h5"):
        with h5py.File(tmp_path / name) as file:
            assert list(file["name"].asstr()[()]) == ["step 1", "step 3"]
            assert file["T"].dtype == np.float64
            assert (file["T"].attrs["units"], file.attrs["round"]) == ("K", 3)
    else:
        with adios2.Stream(str(tmp_path / name), "r") as stream:
            assert [step.read("name") for step in stream.steps()] == ["step 1", "step 3"]
        with adios2.FileReader(str(tmp_path / name)) as reader:
            assert reader.read_attribute("T/units") == "K"
    check(tmp_path, name, (1, 3))


@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_ranks_are_kept(reservation: str, tmp_path: Path, name: str) -> None:
    """A decomposition that changes, a local array, and a variable of one value for each rank."""
    address = f"{reservation}/blocks"
    with forebay.open(address, "w") as stream:
        for number in range(3):
            cut = 5 + number
            with stream.step() as step:
                step.write("T", field(number)[:cut], shape=(20, 30), start=(0, 0))
                step.write("T", field(number)[cut:], shape=(20, 30), start=(cut, 0))
                step.write("particles", np.full(7, number, np.int32), kind="local_array")
    stage(StepsJob(address, str(tmp_path), into=name))
    if name.endswith(".h5"):
        with h5py.File(tmp_path / name) as file:
            np.testing.assert_array_equal(file["T"][()], [field(number) for number in range(3)])
            np.testing.assert_array_equal(file["particles/block_000000"][:, 0], range(3))
        return
    with adios2.Stream(str(tmp_path / name), "r") as stream:
        for number, step in enumerate(stream.steps()):
            np.testing.assert_array_equal(step.read("T"), field(number))
            variable = stream.inquire_variable("T")
            blocks = stream.engine.blocks_info("T", number)
            assert [block["Start"] for block in blocks] == ["0,0", f"{5 + number},0"]
            assert variable.shape() == [20, 30]


def test_what_hdf5_cannot_hold_is_refused_and_bp5_holds_it(reservation: str, tmp_path: Path) -> None:
    """Steps that differ in shape or variables."""
    address = f"{reservation}/growing"
    with forebay.open(address, "w") as stream:
        for number in range(3):
            with stream.step() as step:
                step["T"] = np.arange(number + 2)
                if number == 2:
                    step["late"] = 1
    with pytest.raises(UnsupportedError, match=r"step 1 has variable 'T' with shape \(3,\)"):
        stage(StepsJob(address, str(tmp_path), into="run1.h5"))
    late = f"{reservation}/late"
    for number, variables in enumerate((("T",), ("T", "late"))):
        with forebay.open(late, "a" if number else "w") as stream, stream.step() as step:
            for variable in variables:
                step[variable] = 1
    with pytest.raises(UnsupportedError, match="step 1 has a variable 'late', unlike step 0"):
        stage(StepsJob(late, str(tmp_path), into="run1.h5"))
    assert not (tmp_path / "run1.h5").exists()
    stage(StepsJob(address, str(tmp_path), into="run1.bp"))
    with adios2.Stream(str(tmp_path / "run1.bp"), "r") as stream:
        assert [list(step.read("T")) for step in stream.steps()] == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_what_is_refused_leaves_nothing_at_the_destination(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/crossed"
    with forebay.open(address, "w") as stream, stream.step() as step:
        step["a"] = np.arange(4.0)
        step["a/b"] = np.arange(4.0)
    with pytest.raises(UnsupportedError):
        stage(StepsJob(address, str(tmp_path), into="run1.h5"))
    assert [path.name for path in tmp_path.iterdir() if "run1.h5" in path.name] == []


@pytest.mark.parametrize("name", NAMES)
def test_steps_that_the_stream_drops_meanwhile_are_in_the_output(reservation: str, tmp_path: Path, name: str) -> None:
    """A stage that was killed between has them; the stream need not keep them."""
    address = f"{reservation}/flow"
    job = StepsJob(address, str(tmp_path), into=name)
    with forebay.open(address, "w", retention="last:2,precious:1") as stream:
        for number in range(6):
            if number == 3:
                _stage_and_die(job)
            with stream.step() as step:
                step["T"] = field(number)
                step["time"] = 0.5 * number
    with forebay.Admin() as admin:
        assert admin.steps(address)[0].number > 0
    stage(job)
    check(tmp_path, name, range(6))


def test_a_new_run_that_would_lose_steps_is_refused(reservation: str, tmp_path: Path) -> None:
    """They are in the output alone."""
    address = f"{reservation}/flow"
    job = StepsJob(address, str(tmp_path), into="run1.bp")
    write(address, range(4), retention="last:2")
    with forebay.Admin() as admin:
        admin.set_retention(address, "last:2")
    stage(job)
    check(tmp_path, "run1.bp", (2, 3))
    with forebay.open(address, "a") as stream:
        for number in (4, 5):
            with stream.step() as step:
                step["T"] = field(number)
                step["time"] = 0.5 * number
    with pytest.raises(AlreadyExistsError, match=r"2 steps, from 2 on, .* would be lost"):
        stage(job)
    assert fields(tmp_path / "run1.bp")[0] == [2, 3]
    stage(replace(job, replace=True))
    check(tmp_path, "run1.bp", (4, 5))


def test_a_longer_stream_makes_a_longer_output(address: str, tmp_path: Path) -> None:
    job = StepsJob(address, str(tmp_path), into="run1.h5")
    stage(job)
    write(address, range(6, 8), "a")
    stage(job)
    check(tmp_path, "run1.h5", range(8))


def test_an_output_of_another_stream_is_not_replaced(address: str, reservation: str, tmp_path: Path) -> None:
    job = StepsJob(address, str(tmp_path), into="run1.bp")
    stage(job)
    other = f"{reservation}/other"
    write(other, range(2))
    with pytest.raises(AlreadyExistsError, match="another stream"):
        stage(replace(job, stream=other))
    stage(replace(job, stream=other, replace=True))
    check(tmp_path, "run1.bp", range(2))


def test_steps_that_were_withdrawn_are_not_in_it(address: str, tmp_path: Path) -> None:
    """The stage had them when it was killed; the stream has rewritten them since."""
    job = StepsJob(address, str(tmp_path), into="run1.bp")
    _stage_and_die(job)
    write(address, range(4, 5), "a", append_after=3, force=True)
    stage(job)
    check(tmp_path, "run1.bp", range(5))


def test_one_output_of_a_stream_that_is_followed(reservation: str, tmp_path: Path) -> None:
    """Made when it ends; where it is interrupted, the same without --follow makes it."""
    address = f"{reservation}/flow"
    write(address, range(3))
    stage(StepsJob(address, str(tmp_path / "ended"), into="run1.bp", follow=True))
    check(tmp_path / "ended", "run1.bp", range(3))
    stream = forebay.open(address, "a", grace=0.0)
    with stream.step() as step:
        step["T"] = field(3)
        step["time"] = 1.5
        step["name"] = "step 3"
    del step, stream
    job = StepsJob(address, str(tmp_path / "cut"), into="run1.bp", follow=True)
    with pytest.raises(StreamInterruptedError):
        stage(job)
    assert not (tmp_path / "cut" / "run1.bp").exists()
    stage(replace(job, follow=False))
    check(tmp_path / "cut", "run1.bp", range(4))


@pytest.mark.parametrize("name", NAMES)
def test_damage_at_the_destination_is_noticed(
    address: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads back otherwise gets no name, and the steps stay safe."""
    real = publication.sync_tree

    def damaging(path: Path) -> None:
        if not path.name.startswith(f".{name}.partial"):
            real(path)
            return
        file = path / "data.0" if path.is_dir() else path
        content = bytearray(file.read_bytes())
        place = content.rindex(field(5).tobytes()[-64:])
        content[place] ^= 1
        file.write_bytes(content)
        real(path)

    monkeypatch.setattr(publication, "sync_tree", damaging)
    with pytest.raises(CorruptError, match="variable 'T' of step 5"):
        stage(StepsJob(address, str(tmp_path), into=name))
    assert not (tmp_path / name).exists()
    monkeypatch.undo()
    stage(StepsJob(address, str(tmp_path), into=name))
    check(tmp_path, name, range(6))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("name", NAMES)
def test_a_destination_without_room_for_both_says_so(address: str, tmp_path: Path, name: str) -> None:
    """The single steps fit, and stay; with room the same command goes on from there."""
    singly = tmp_path / "singly"
    stage_steps(
        StepsJob(address, str(singly), format="hdf5" if name.endswith(".h5") else "bp5"), JsonReporter(StringIO())
    )
    singly_bytes = sum(file.stat().st_blocks * 512 for file in singly.rglob("*"))
    with mounted(tmp_path / "small", 16, "tmpfs") as folder:
        usage = os.statvfs(folder)
        # Room for a log, a receipt and folders as well.
        (folder / "filler").write_bytes(bytes(usage.f_bavail * usage.f_frsize - singly_bytes - (24 << 10)))
        job = StepsJob(address, str(folder / "out"), into=name)
        with pytest.raises(NoSpaceError, match="is full: it has no room for one output with all steps"):
            stage(job)
        assert list((folder / "out").glob("run1*")) == []
        (folder / "filler").unlink()
        result, _ = stage(job)
        assert result["kept"] == list(range(6))
        check(folder / "out", name, range(6))


def test_lost_steps_are_told_before_anything_is_made(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    write(address, range(3))
    job = StepsJob(address, str(tmp_path), into="run1.bp", follow=True)
    _stage_and_die(replace(job, follow=False))
    write(address, range(3, 6), "a", retention="last:1")
    with pytest.raises(StepGoneError, match="accept-gaps"):
        stage(job)
    assert not (tmp_path / "run1.bp").exists()
    stage(replace(job, accept_gaps=True))
    check(tmp_path, "run1.bp", (0, 1, 2, 5))


@pytest.mark.parametrize("name", ["run1", "run1.txt", ".bp", "sub/run1.bp", "../run1.bp", ".run1.bp"])
def test_a_name_that_is_no_output_is_refused(address: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"ends with \.bp or \.h5"):
        stage(StepsJob(address, str(tmp_path), into=name))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_who_may_only_read_stages_out_for_themselves(address: str, reservation: str) -> None:
    """To a directory of theirs; the steps do not count as staged."""
    reader = 64322
    with forebay.Admin() as admin:
        admin.share(reservation, "read", user=reader)
        socket = (Path(admin.server().root) / "endpoint").read_text().strip()
    with tempfile.TemporaryDirectory(prefix="reader-") as name:
        folder = Path(name)
        os.chown(folder, reader, reader)
        job = StepsJob(address, str(folder / "out"), into="run1.bp")

        def act() -> str:
            out = StringIO()
            stage_into_one(job, JsonReporter(out), socket)
            return out.getvalue()

        told = as_user(reader, act)
        assert "you may only read this stream" in told
        check(folder / "out", "run1.bp", range(6))
    with forebay.Admin() as admin:
        assert not any(step.staged for step in admin.steps(address))


def _stage_and_die(job: StepsJob) -> None:
    """A stage that dies when all single steps are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged._OneOutput, "_merge", _die)
        with pytest.raises(_Death):
            stage(job)


class _Death(BaseException):
    pass


def _die(*_: object) -> None:
    raise _Death
