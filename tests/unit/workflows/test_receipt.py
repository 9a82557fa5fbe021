# SPDX-License-Identifier: Apache-2.0
"""Receipts and how outputs appear."""

from __future__ import annotations

import json
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.errors import BusyError, CorruptError
from forebay.workflows.staging import publication
from forebay.workflows.staging.receipt import (
    FileEntry,
    Receipt,
    StepEntry,
    VariableEntry,
    describe_files,
    files_match,
)
from forebay.workflows.staging.receipt_log import LOG_NAME, ReceiptLog


def entry(directory: Path, output: str, step: int = 40) -> StepEntry:
    return StepEntry(
        stream="run1/flow",
        uuid="u",
        epoch=1,
        step=step,
        committed_ns=1,
        staged_ns=2,
        format="bp5",
        output=output,
        complete=True,
        verified="checksums",
        variables=(VariableEntry("T", "float64", "global_array", (4, 4), 2),),
        files=describe_files(directory / output),
        forebay="0",
    )


@pytest.fixture
def output(tmp_path: Path) -> str:
    folder = tmp_path / "flow.000040.bp"
    (folder / "deep").mkdir(parents=True)
    (folder / "data.0").write_bytes(b"123456789")
    (folder / "deep" / "md").write_bytes(b"")
    return folder.name


def test_a_receipt_reads_back_as_it_was_saved(tmp_path: Path, output: str) -> None:
    receipt = Receipt.load(tmp_path)
    assert receipt.entries == {}
    receipt.entries[output] = entry(tmp_path, output)
    receipt.save()
    assert Receipt.load(tmp_path).entries == receipt.entries
    assert [path.name for path in tmp_path.glob(".*")] == []


def announced(directory: Path, output: str, steps: range) -> Receipt:
    """A receipt that a run has got so far, and the log on disk. (All entries are of the same output's files.)"""
    receipt = Receipt.load(directory)
    for step in steps:
        receipt.announce(entry(directory, output, step))
        receipt.entries[output] = entry(directory, output, step)
    return receipt


def test_a_log_counts_as_the_receipt_until_that_is_saved(tmp_path: Path, output: str) -> None:
    receipt = announced(tmp_path, output, range(3))
    assert not receipt.path.exists()
    receipt.close()
    read = Receipt.load(tmp_path)
    assert read.entries == receipt.entries
    assert read.unsure == (entry(tmp_path, output, 2), entry(tmp_path, output, 1))
    assert read.has_log
    read.save()
    assert Receipt.load(tmp_path).entries == receipt.entries
    assert {path.name for path in tmp_path.iterdir()} == {output, "receipt.json"}


def test_an_announced_entry_costs_one_line_however_many_there_are(tmp_path: Path, output: str) -> None:
    receipt = announced(tmp_path, output, range(10, 20))
    sizes = []
    for step in range(20, 90):
        before = (tmp_path / LOG_NAME).stat().st_size
        receipt.announce(entry(tmp_path, output, step))
        sizes.append((tmp_path / LOG_NAME).stat().st_size - before)
    assert len(set(sizes)) == 1
    receipt.close()


def test_what_was_not_written_whole_at_the_end_of_a_log_is_ignored(tmp_path: Path, output: str) -> None:
    announced(tmp_path, output, range(3)).close()
    log = tmp_path / LOG_NAME
    whole = log.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole)):
        log.write_bytes(whole[:end])
        assert Receipt.load(tmp_path).entries[output].step == 1
    # A disk that lost its power may have the length without the content.
    log.write_bytes(whole[:last] + bytes(len(whole) - last - 1) + b"\n")
    assert Receipt.load(tmp_path).entries[output].step == 1
    for end in range(whole.index(b"\n") + 1):
        log.write_bytes(whole[:end])
        assert Receipt.load(tmp_path).entries == {}


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_log_that_is_damaged_before_its_end_is_refused(tmp_path: Path, output: str, line: int) -> None:
    announced(tmp_path, output, range(3)).close()
    log = tmp_path / LOG_NAME
    lines = log.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"1", b"2", 1)
    log.write_bytes(b"".join(lines))
    with pytest.raises(CorruptError, match="move it away"):
        Receipt.load(tmp_path)


def test_a_receipt_does_not_name_what_is_about_to_be_replaced(tmp_path: Path, output: str) -> None:
    first = announced(tmp_path, output, range(1))
    first.entries["flow.000041.bp"] = replace(entry(tmp_path, output, 41), output="flow.000041.bp")
    first.save()
    receipt = Receipt.load(tmp_path)
    receipt.announce(entry(tmp_path, output, 7))
    assert not receipt.path.exists()
    receipt.close()
    read = Receipt.load(tmp_path)
    assert {name: known.step for name, known in read.entries.items()} == {output: 7, "flow.000041.bp": 41}
    assert read.unsure == (entry(tmp_path, output, 7), entry(tmp_path, output, 0))


def test_a_log_ends_before_what_could_not_be_written(tmp_path: Path, output: str) -> None:
    receipt = announced(tmp_path, output, range(1))
    size = (tmp_path / LOG_NAME).stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            receipt.announce(entry(tmp_path, output, 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / LOG_NAME).stat().st_size == size
    receipt.announce(entry(tmp_path, output, 2))
    receipt.close()
    assert Receipt.load(tmp_path).entries[output].step == 2


def test_files_have_sizes_and_crc32c(tmp_path: Path, output: str) -> None:
    assert describe_files(tmp_path / output) == (
        FileEntry(f"{output}/data.0", 9, "e3069283"),
        FileEntry(f"{output}/deep/md", 0, "00000000"),
    )


@pytest.mark.parametrize("damage", ["content", "shorter", "missing", "more", "gone"])
def test_any_damage_is_seen(tmp_path: Path, output: str, damage: str) -> None:
    recorded = entry(tmp_path, output)
    assert files_match(tmp_path, recorded)
    data = tmp_path / output / "data.0"
    if damage == "content":
        data.write_bytes(b"123456780")
    elif damage == "shorter":
        data.write_bytes(b"1234")
    elif damage == "missing":
        data.unlink()
    elif damage == "more":
        (tmp_path / output / "extra").write_text("")
    else:
        publication.remove(tmp_path / output)
    assert not files_match(tmp_path, recorded)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "other", "version": 1, "steps": []}', "\x00", '{"format"']
)
def test_what_is_no_receipt_is_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "receipt.json").write_text(text)
    with pytest.raises(CorruptError, match="move it away"):
        Receipt.load(tmp_path)


def test_an_output_with_many_steps_has_their_numbers(tmp_path: Path, output: str) -> None:
    receipt = Receipt(tmp_path)
    receipt.entries[output] = entry(tmp_path, output)
    receipt.save()
    plain = json.loads(receipt.path.read_text())
    assert "steps" not in plain["steps"][0]
    receipt.entries[output] = replace(receipt.entries[output], steps=((0, 1), (40, 2)))
    receipt.save()
    many = json.loads(receipt.path.read_text())
    assert many["steps"][0]["steps"] == [[0, 1], [40, 2]]
    assert Receipt.load(tmp_path).entries == receipt.entries


def test_a_receipt_of_a_newer_kind_is_not_understood(tmp_path: Path) -> None:
    Receipt(tmp_path).save()
    document = json.loads((tmp_path / "receipt.json").read_text())
    (tmp_path / "receipt.json").write_text(json.dumps(document | {"version": 3}))
    with pytest.raises(CorruptError, match="version 3"):
        Receipt.load(tmp_path)


@pytest.mark.parametrize("output", ["../thesis", "/home/ada/thesis", "..", ".", "", "a/b"])
def test_a_receipt_names_what_lies_beside_it_and_nothing_else(tmp_path: Path, output: str) -> None:
    """Whoever may write there could have others remove what lies anywhere else."""
    (tmp_path / "flow.bp").touch()
    known = entry(tmp_path, "flow.bp")
    ReceiptLog.create(tmp_path).append([replace(known, output=output).as_json()])
    with pytest.raises(CorruptError, match="is no output beside the receipt"):
        Receipt.load(tmp_path)
    (tmp_path / LOG_NAME).unlink()
    document = known.as_json() | {"files": [{"path": "flow.bp/../../x", "size_bytes": 1, "crc32c": "00"}]}
    whole = {"format": "forebay.staged-steps", "version": 1, "steps": [document]}
    (tmp_path / "receipt.json").write_text(json.dumps(whole))
    with pytest.raises(CorruptError, match="is no output beside the receipt"):
        Receipt.load(tmp_path)


def test_publishing_replaces_a_directory(tmp_path: Path, output: str) -> None:
    partial = publication.partial_path(tmp_path / output)
    partial.mkdir()
    (partial / "data.0").write_text("new")
    publication.publish(partial, tmp_path / output)
    assert [path.name for path in (tmp_path / output).iterdir()] == ["data.0"]
    assert [path.name for path in tmp_path.iterdir()] == [output]


def test_only_leftovers_are_removed(tmp_path: Path) -> None:
    kept = ["data", ".hidden", ".a.partial-xyz", "a.partial-12345678", ".partial-123456789", ".b.partial-12345678"]
    for name in [*kept[:-1], ".a.bp.partial-12345678"]:
        (tmp_path / name).write_text("")
    (tmp_path / kept[-1]).mkdir()  # somebody has given it that name
    (tmp_path / kept[-1] / "precious").write_text("of mine")
    for inside in (".c.bp.partial-12345678", ".c.bp.replaced-12345678"):
        (tmp_path / ".c.bp.partial-12345678" / inside).mkdir(parents=True)
    publication.remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    assert (tmp_path / kept[-1] / "precious").exists()


def test_a_destination_has_one_stage_at_a_time(tmp_path: Path) -> None:
    with publication.destination_lock(tmp_path), pytest.raises(BusyError), publication.destination_lock(tmp_path):
        pass
    with publication.destination_lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_a_stage_follows_links_that_others_made(tmp_path: Path) -> None:
    """Another user who may write in the destination once had files of the stage's user emptied, or made elsewhere."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("of mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / LOG_NAME).symlink_to(mine / "precious")
    ReceiptLog.create(out).close()
    assert (mine / "precious").read_text() == "of mine"
    assert not (out / LOG_NAME).is_symlink()
    (out / publication.LOCK_NAME).symlink_to(mine / "lock")
    with pytest.raises(OSError, match="symbolic links"), publication.destination_lock(out):
        pass
    assert [path.name for path in mine.iterdir()] == ["precious"]


def test_what_is_made_stays_in_its_folder_whatever_comes_in_its_place(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    out.mkdir()
    partial = publication.partial_path(out / "flow.bp")
    (hidden,) = out.iterdir()
    assert hidden.stat().st_mode & 0o777 == 0o700
    hidden.rename(out / "away")
    hidden.symlink_to(mine)
    partial.mkdir()
    (partial / "data.0").write_text("whole")
    publication.publish(partial, out / "flow.bp")
    assert (out / "flow.bp" / "data.0").read_text() == "whole"
    assert list(mine.iterdir()) == []
