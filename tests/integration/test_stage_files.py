# SPDX-License-Identifier: Apache-2.0
"""Staging of files and trees: what is kept of them, where they may go, and what is refused."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import (
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    NotFoundError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from forebay.manager.jobs import FilesJob
from forebay.workflows.staging.files import stage_files
from forebay.workflows.staging.reporting import JsonReporter
from tests.support.mounted import mounted


def stage(job: FilesJob) -> dict[str, Any]:
    return stage_files(job, JsonReporter(StringIO()))


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the manager gives it to a stage that is asked for again."""
    monkeypatch.setenv("FOREBAY_STAGE_SECRET", "5e" * 32)


@pytest.fixture
def files(reservation: str) -> Path:
    """Where the reservation's files lie."""
    with forebay.Admin() as admin:
        return Path(admin.reservation(reservation).files_path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", "data"), ("there", "there"), ("folder/", "folder/data"), ("deep/er/there", "deep/er/there")],
)
def test_where_a_file_goes(reservation: str, files: Path, tmp_path: Path, path: str, expected: str) -> None:
    (tmp_path / "data").write_text("content")
    result = stage(FilesJob(reservation, path, str(tmp_path / "data"), inward=True))
    assert result["target"] == str(files / expected)
    assert (files / expected).read_text() == "content"
    # A file goes into a directory that is there, so that running it again is the same.
    (files / "known").mkdir()
    for _ in range(2):
        assert stage(FilesJob(reservation, "known", str(tmp_path / "data"), inward=True))["target"] == str(
            files / "known" / "data"
        )


def test_all_files_of_a_reservation_can_be_staged_out(reservation: str, files: Path, tmp_path: Path) -> None:
    (files / "a").mkdir()
    (files / "a" / "b").write_text("b")
    stage(FilesJob(reservation, "", str(tmp_path / "all"), inward=False))
    assert (tmp_path / "all" / "a" / "b").read_text() == "b"
    stage(FilesJob(reservation, "", f"{tmp_path}/into/", inward=False))
    assert (tmp_path / "into" / reservation / "a" / "b").read_text() == "b"


def test_what_is_kept_of_a_tree(reservation: str, files: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o754)
    (source / "dangling").symlink_to("nowhere/at/all")
    with (source / "sparse").open("wb") as sparse:
        sparse.truncate(64 << 20)
        sparse.seek(32 << 20)
        sparse.write(b"middle")
    (source / "sub" / "nëme with spaces").write_text("")
    os.utime(source / "sub", ns=(1, 2_000_000_123))
    (source / "sub").chmod(0o555)
    for _ in range(2):
        told = StringIO()
        result = stage_files(FilesJob(reservation, "tree", str(source), inward=True), JsonReporter(told))
    assert (result["copied"], result["kept"]) == (0, 3)
    target = files / "tree"
    # The list that marks what was made in a reservation of root's server gives others nothing.
    others = 0 if "system.posix_acl_default" in os.listxattr(files) else 0o7
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o750 | 0o754 & others
    assert (target / "dangling").readlink() == Path("nowhere/at/all")
    assert (target / "sparse").read_bytes() == (source / "sparse").read_bytes()
    assert (target / "sparse").stat().st_blocks * 512 < 8 << 20
    assert (target / "sub").stat().st_mtime_ns == 2_000_000_123
    assert (target / "sub").stat().st_mode & 0o777 == 0o550 | 0o555 & others
    events = map(json.loads, told.getvalue().splitlines())
    rows = [row for event in events if event["event"] == "files" for row in event["files"]]
    assert [row["path"] for row in rows] == ["run.sh", "sparse", "sub/nëme with spaces"]
    assert rows[1]["crc32c"] == f"{forebay.crc32c((source / 'sparse').read_bytes()):08x}"


def test_extended_attributes_are_kept_where_possible(reservation: str, files: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    try:
        os.setxattr(tmp_path / "data", "user.origin", b"beamline")
        os.setxattr(files, "user.probe", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes for users")
    stage(FilesJob(reservation, "data", str(tmp_path / "data"), inward=True))
    assert os.getxattr(files / "data", "user.origin") == b"beamline"


def test_access_lists_are_carried_only_if_asked_for(reservation: str, tmp_path: Path) -> None:
    source = tmp_path / "shared"
    source.write_text("x")
    # Version 2; owner rw-, user 12345 r--, group ---, mask r--, others ---: `setfacl -m u:12345:r shared`.
    entries = (
        (0x01, 6, 0xFFFFFFFF),
        (0x02, 4, 12345),
        (0x04, 0, 0xFFFFFFFF),
        (0x10, 4, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    )
    wanted = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(source, "system.posix_acl_access", wanted)
    except OSError:
        pytest.skip("this file system has no access lists")
    for acls in (True, False):
        name = f"acls-{acls}"
        stage(FilesJob(reservation, name, str(source), inward=True, acls=acls))
        stage(FilesJob(reservation, name, str(tmp_path / name), inward=False, acls=acls))
        assert ("system.posix_acl_access" in os.listxattr(tmp_path / name)) is acls
        if acls:
            assert os.getxattr(tmp_path / name, "system.posix_acl_access") == wanted


def test_a_changed_target_is_copied_again(reservation: str, files: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"right")
    job = FilesJob(reservation, "data", str(tmp_path / "data"), inward=True)
    stage(job)
    status = (files / "data").stat()
    (files / "data").write_bytes(b"wrong")
    os.utime(files / "data", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stage(job)["copied"] == 1
    assert (files / "data").read_bytes() == b"right"


@pytest.mark.parametrize("path", ["../escape", "a/../../escape", "/etc/escape", "link/escape"])
def test_no_path_leads_out_of_the_reservation(reservation: str, files: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "data").write_text("x")
    (files / "link").symlink_to(tmp_path)
    with pytest.raises(InvalidArgumentError, match="does not lead out"):
        stage(FilesJob(reservation, path, str(tmp_path / "data"), inward=True))
    assert not list(tmp_path.glob("escape"))


def test_what_cannot_be_staged_is_told(reservation: str, files: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        stage(FilesJob(reservation, "x", str(tmp_path / "nothing"), inward=True))
    with pytest.raises(NotFoundError):
        stage(FilesJob("no-such-reservation", "x", str(tmp_path), inward=True))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsupportedError, match="neither"):
        stage(FilesJob(reservation, "x", str(tmp_path), inward=True))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "name").mkdir()
    (files / "tree").mkdir()
    (files / "tree" / "name").write_text("a file")
    with pytest.raises(InvalidArgumentError, match="a directory where the destination has a file"):
        stage(FilesJob(reservation, "tree", str(tmp_path / "tree"), inward=True))
    with pytest.raises(InvalidArgumentError, match="contains the other"):
        stage(FilesJob(reservation, "tree", str(files / "tree" / "deeper"), inward=False))


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_pipe_or_device_is_not_replaced_by_a_file(reservation: str, files: Path, tmp_path: Path, name: str) -> None:
    (files / "data").write_text("content")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    before = os.lstat(tmp_path / name)
    with pytest.raises(InvalidArgumentError, match="is not replaced by a file; name another destination"):
        stage(FilesJob(reservation, "data", str(tmp_path / name), inward=False))
    assert os.lstat(tmp_path / name).st_ino == before.st_ino
    (files / "tree").mkdir()
    (files / "tree" / "pipe").write_text("content")
    (tmp_path / "link").unlink()
    with pytest.raises(InvalidArgumentError, match="is not replaced by a file"):
        stage(FilesJob(reservation, "tree", str(tmp_path), inward=False))
    assert (tmp_path / "pipe").is_fifo()


def test_a_full_destination_is_told_and_taken_up(reservation: str, files: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", 1) as small:
        for number in range(3):
            (files / f"part{number}").write_bytes(os.urandom(400_000))
        job = FilesJob(reservation, "", str(small / "out"), inward=False)
        with pytest.raises(NoSpaceError, match="make room"):
            stage(job)
        assert not (small / "out").exists()
        subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
        # Several are copied at once: how many were whole depends on their threads.
        assert stage(job)["kept"] <= 2
        for number in range(3):
            assert (small / "out" / f"part{number}").read_bytes() == (files / f"part{number}").read_bytes()


def test_a_tree_is_staged_into_projects_of_xfs(reservation: str, files: Path, tmp_path: Path) -> None:
    """No entry gets from one project to another by a new name: XFS refuses it as if it were another file system."""
    with mounted(tmp_path / "xfs", 512, "xfs") as place:
        for number, folder in enumerate(("group", "group/tree", "group/tree/deep"), start=7):
            (place / folder).mkdir()
            subprocess.run(["xfs_io", "-c", f"chproj {number}", "-c", "chattr +P", str(place / folder)], check=True)
        (place / "group" / "probe").touch()
        with pytest.raises(OSError, match="cross-device"):
            (place / "group" / "probe").rename(place / "group" / "tree" / "probe")
        (place / "group" / "probe").unlink()
        (files / "tree" / "deep").mkdir(parents=True)
        for name in ("one", "deep/two"):
            (files / "tree" / name).write_text(name)
        for _ in range(2):
            stage(FilesJob(reservation, "tree", f"{place}/group/", inward=False))
            stage(FilesJob(reservation, "tree/one", f"{place}/group/tree/deep/", inward=False))
        tree = place / "group" / "tree"
        assert [(tree / name).read_text() for name in ("one", "deep/two", "deep/one")] == ["one", "deep/two", "one"]
        assert sorted(os.listdir(place / "group")) == ["tree"]


def test_errors_are_forebay_errors(reservation: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(ForebayError):
        stage(FilesJob(reservation, "data/" + "n" * 300, str(tmp_path / "data"), inward=True))


@pytest.fixture
def small() -> Iterator[str]:
    """A reservation with 1 MiB for files."""
    with forebay.Admin() as admin:
        admin.create("small", 0, files="1MiB")
        yield "small"
        admin.destroy("small", force=True)


def test_a_stage_in_that_does_not_fit_copies_nothing(server: object, small: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(os.urandom(600 << 10))
    with pytest.raises(NoSpaceError, match=r"may take 1 MiB, of which 0 B are used: another 1\.17 MiB do not fit"):
        stage(FilesJob(small, "data", str(source), inward=True))
    (source / "b").unlink()
    for copied, kept in ((1, 0), (0, 1)):
        result = stage(FilesJob(small, "data", str(source), inward=True))
        assert (result["copied"], result["kept"]) == (copied, kept)
    # To be replaced when it is whole: until then both are there.
    (source / "a").write_bytes(os.urandom(601 << 10))
    with pytest.raises(NoSpaceError, match="create it with more --files"):
        stage(FilesJob(small, "data", str(source), inward=True))


def test_a_stage_in_ends_when_others_fill_the_files_meanwhile(server: object, small: str, tmp_path: Path) -> None:
    with forebay.Admin() as admin:
        files = Path(admin.reservation(small).files_path)
    (tmp_path / "data").write_bytes(os.urandom(700 << 10))

    class Filling(JsonReporter):
        """As soon as the copy is under way, a job writes as well."""

        def update(self, *, at_once: bool = False) -> None:
            if self.progress.item and not (files / "other").exists():
                (files / "other").write_bytes(os.urandom(600 << 10))

    with pytest.raises(NoSpaceError, match=r"of which 1\.\d+ MiB are used; remove some"):
        stage_files(FilesJob(small, "data", str(tmp_path / "data"), inward=True), Filling(StringIO()))
    assert [path.name for path in files.iterdir()] == ["other"]


def test_a_stage_in_learns_that_the_files_may_take_more_now(server: object, small: str, tmp_path: Path) -> None:
    with forebay.Admin() as admin:
        files = Path(admin.reservation(small).files_path)
    (tmp_path / "data").write_bytes(os.urandom(700 << 10))

    class Growing(JsonReporter):
        """A job writes as well, but the owner has given them room."""

        def update(self, *, at_once: bool = False) -> None:
            if self.progress.item and not (files / "other").exists():
                with forebay.Admin() as admin:
                    admin.change(small, files="2MiB")
                (files / "other").write_bytes(os.urandom(600 << 10))

    stage_files(FilesJob(small, "data", str(tmp_path / "data"), inward=True), Growing(StringIO()))
    assert (files / "data").read_bytes() == (tmp_path / "data").read_bytes()


def test_a_tree_that_is_staged_is_the_tree(reservation: str, files: Path, tmp_path: Path) -> None:
    """Nothing of ours lies in it, and nothing is left out for its name."""
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    for name in ("mesh", "mesh.receipt.json", ".forebay-receipt.json", "sub/a.receipt.json", "sub/receipt.json"):
        (source / name).write_text(f'{{\n "format": "forebay.receipt.files" {name}')
    stage(FilesJob(reservation, "all", str(source), inward=True))
    stage(FilesJob(reservation, "all", str(tmp_path / "out"), inward=False))
    stage(FilesJob(reservation, "all/mesh", str(tmp_path / "single" / "mesh"), inward=False))
    compared = subprocess.run(["diff", "-r", source, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert compared.stdout == ""
    assert [path.name for path in (tmp_path / "single").iterdir()] == ["mesh"]


def test_a_file_that_a_program_has_open_for_writing_is_refused_by_name(
    reservation: str, files: Path, tmp_path: Path
) -> None:
    """Once it was certified with what had been written so far."""
    with (files / "result").open("wb") as writing:
        writing.write(b"half")
        writing.flush()
        with pytest.raises(RefusedError, match="open for writing") as refused:
            stage(FilesJob(reservation, "result", str(tmp_path / "copy"), inward=False, wait_closed_seconds=0.05))
        assert refused.value.where == str(files / "result")
        writing.write(b" and whole")
    assert not (tmp_path / "copy").exists()
    stage(FilesJob(reservation, "result", str(tmp_path / "copy"), inward=False))
    assert (tmp_path / "copy").read_bytes() == b"half and whole"


def test_a_mover_that_dies_is_told(
    reservation: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_text("x")
    monkeypatch.setenv("FOREBAY_FAIL_POINT", "mover.batch.synced=kill")
    with pytest.raises(StorageError, match="died of signal 9"):
        stage(FilesJob(reservation, "data", str(tmp_path / "data"), inward=True))
    monkeypatch.delenv("FOREBAY_FAIL_POINT")
    stage(FilesJob(reservation, "data", str(tmp_path / "data"), inward=True))
    assert [path.name for path in files.iterdir()] == ["data"]
