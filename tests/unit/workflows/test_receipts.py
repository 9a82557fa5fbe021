# SPDX-License-Identifier: Apache-2.0
"""Receipts of stages: kept below the root, row by row, up to a size for each user."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import CorruptError, NoSpaceError, RefusedError
from forebay.manager.records import StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.stages.receipts import Receipts, StoredReceipt, find_receipt

OUT = {"kind": "files", "reservation": "run1", "path": "results", "outside": "/data/out", "inward": False}


def stage(number: int, uid: int = 1000, job: dict[str, Any] | None = None) -> StageRow:
    return StageRow(
        *(number, StageState.RUNNING, job or OUT, uid, uid, 0o22, False, 1, 5, 6, None, {}, ()),
        result=None,
        failure=None,
    )


def row(path: str) -> dict[str, Any]:
    return {"path": path, "size_bytes": 3, "mtime_ns": 4, "crc32c": "0a0b0c0d"}


@pytest.fixture
def receipts(tmp_path: Path) -> Receipts:
    made = Receipts(tmp_path / "receipts", 1 << 20)
    assert made.start() == 0
    return made


def keep(receipts: Receipts, of: StageRow, paths: list[str]) -> StoredReceipt:
    writer = receipts.begin(of)
    for path in paths:
        writer.add([row(path)])
    writer.end({"target": "/data/out"})
    writer.publish()
    writer.discard()
    return find_receipt(receipts, of.id, None)


def test_a_receipt_has_a_head_its_rows_and_an_end_with_their_checksum(receipts: Receipts, tmp_path: Path) -> None:
    kept = keep(receipts, stage(7), ["a", "b/\udcff"])
    assert kept.path == tmp_path / "receipts" / "1000" / "7"
    assert (tmp_path / "receipts").stat().st_mode & 0o777 == 0o700
    assert kept.path.stat().st_mode & 0o777 == 0o600
    *lines, last = kept.path.read_bytes().splitlines(keepends=True)
    head, *rows = map(json.loads, lines)
    assert (head["format"], head["version"], head["stage"], head["uid"]) == ("forebay.stage", 1, 7, 1000)
    assert rows == [row("a"), row("b/\udcff")]
    end = json.loads(last)
    assert (end["files"], end["size_bytes"], end["result"]) == (2, 6, {"target": "/data/out"})
    assert end["crc32c"] == f"{forebay.crc32c(b''.join(lines)):08x}"
    assert [found.row.stage for found in receipts.of(1000)] == [7]
    assert [*receipts.of(1001)] == []
    assert receipts.find(7, 1001) is None


def test_a_receipt_is_durable_before_it_has_its_name(receipts: Receipts, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def called(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(owner, name, called)

    watch(os, "fsync")
    watch(Path, "rename")
    keep(receipts, stage(7), ["a"])
    # Its user's folder is new; then the content, the name, and the folder with the name.
    assert calls == ["fsync", "fsync", "rename", "fsync"]


def test_a_sync_that_failed_is_not_tried_again(receipts: Receipts, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = receipts.begin(stage(7))
    writer.end({})

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", fail)
        with pytest.raises(NoSpaceError, match="disk of the receipts"):
            writer.publish()
    writer.discard()
    assert receipts.find(7, None) is None


def test_what_a_full_disk_refused_is_written_once(receipts: Receipts, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = receipts.begin(stage(7))
    writer.add([row("a")])

    class Full:
        """Takes half of what comes."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, data: Any) -> int:
            if len(data) < 20:
                raise OSError(errno.ENOSPC, "full")
            return int(self.file.write(data[: len(data) // 2]))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    with monkeypatch.context() as full:
        full.setattr(writer, "_file", Full(writer._file))
        with pytest.raises(NoSpaceError):
            writer.add([row("b")])
        full.undo()
    writer.add([row("b")])
    writer.end({})
    writer.publish()
    rows = [json.loads(line) for line in find_receipt(receipts, 7, None).path.read_bytes().splitlines()[1:-1]]
    assert rows == [row("a"), row("b")]


def test_one_users_receipts_have_a_limit_that_the_error_names(tmp_path: Path) -> None:
    receipts = Receipts(tmp_path / "receipts", 64 << 10)
    receipts.start()
    keep(receipts, stage(1), ["a"])
    writer = receipts.begin(stage(2))
    with pytest.raises(RefusedError, match=r"receipts of user 1000 take .* receipts_max allows 64 KiB"):
        writer.add([row("x" * 900)] * 1000)
    writer.discard()
    # Another user, and this one after the failure, have what is theirs.
    keep(receipts, stage(3, uid=1001), ["y" * 900] * 50)
    keep(receipts, stage(4), ["y" * 900] * 50)
    with pytest.raises(RefusedError):
        keep(receipts, stage(5), ["y" * 900] * 50)
    receipts.remove(find_receipt(receipts, 4, 1000))
    keep(receipts, stage(5), ["y" * 900] * 50)
    # The next manager counts what lies there.
    again = Receipts(tmp_path / "receipts", 64 << 10)
    assert again.start() == 5
    with pytest.raises(RefusedError):
        keep(again, stage(6), ["y" * 900] * 50)


def test_what_a_killed_manager_left_is_removed(receipts: Receipts, tmp_path: Path) -> None:
    keep(receipts, stage(1), ["a"])
    receipts.begin(stage(2)).add([row("a")])
    assert len([*(tmp_path / "receipts" / "1000").iterdir()]) == 2
    again = Receipts(tmp_path / "receipts", 1 << 20)
    assert again.start() == 1
    assert [path.name for path in (tmp_path / "receipts" / "1000").iterdir()] == ["1"]


def test_a_stage_that_runs_again_replaces_its_receipt(tmp_path: Path) -> None:
    receipts = Receipts(tmp_path / "receipts", 16 << 10)
    receipts.start()
    keep(receipts, stage(1), ["a", "b"])
    for _ in range(5):  # what it replaced is not counted any more
        assert keep(receipts, stage(1), ["c"]).row.files == 1


def test_a_file_that_is_no_receipt_is_refused_by_name(receipts: Receipts) -> None:
    kept = keep(receipts, stage(1), ["a"])
    for content in ("", "{}", '{"format": "forebay.receipt.files", "version": 1}\n', kept.path.read_text()[:-20]):
        kept.path.write_text(content)
        with pytest.raises(CorruptError, match="no receipt of a stage") as caught:
            receipts.find(1, None)
        assert caught.value.where == str(kept.path)


@pytest.mark.parametrize(
    ("place", "job", "covered"),
    [
        ("/data/out", OUT, True),
        ("/data/out/deep/file", OUT, True),
        ("/data/outside", OUT, False),
        ("/data", OUT, False),
        ("run1:results", OUT, True),
        ("run1:results/a", OUT, True),
        ("run1:other", OUT, False),
        ("run1:any", {**OUT, "path": ""}, True),
        ("run10:any", {**OUT, "path": ""}, False),
        ("/pfs/s/flow.000001.bp", {"kind": "steps", "stream": "run1/flow", "destination": "/pfs/s"}, True),
    ],
)
def test_receipts_are_found_by_what_they_are_about(
    receipts: Receipts, place: str, job: dict[str, Any], covered: bool
) -> None:
    assert keep(receipts, stage(1, job=job), []).covers(place) is covered
