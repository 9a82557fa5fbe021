# SPDX-License-Identifier: Apache-2.0
"""fsspec, found by the scheme, on the files of a real reservation."""

from __future__ import annotations

import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import forebay


def test_files_are_written_read_and_listed_by_url(reservation: str) -> None:
    url = f"forebay://{reservation}/files/results/a.txt"
    with fsspec.open(url, "w") as file:
        file.write("forty-two")
    with forebay.Admin() as admin:
        path = Path(admin.reservation(reservation).files_path)
    assert (path / "results/a.txt").read_text() == "forty-two"
    (path / "results/b.txt").write_text("one more")
    files, _ = fsspec.url_to_fs(url)
    expected = [f"{reservation}/files/results/a.txt", f"{reservation}/files/results/b.txt"]
    assert sorted(files.ls(f"{reservation}/files/results", detail=False)) == expected
    assert files.glob(f"{reservation}/files/**/*.txt") == expected
    assert [opened.path for opened in fsspec.open_files(f"forebay://{reservation}/files/results/*.txt")] == expected
    assert files.ls(f"{reservation}/files/results/a.txt", detail=False) == expected[:1]
    assert files.ls(reservation, detail=False) == [f"{reservation}/files"]
    assert files.ls("", detail=False) == [reservation]


def test_url_of_a_path_names_the_reservation(reservation: str) -> None:
    files, path = fsspec.url_to_fs(f"forebay://{reservation}/files/a/b")
    assert path == f"{reservation}/files/a/b"
    assert files.unstrip_protocol(path) == f"forebay://{reservation}/files/a/b"


def test_pickle_opens_the_same_files(reservation: str) -> None:
    files, _ = fsspec.url_to_fs(f"forebay://{reservation}/files/")
    files.pipe_file(f"{reservation}/files/x", b"12")
    assert pickle.loads(pickle.dumps(files)).cat_file(f"{reservation}/files/x") == b"12"


def test_other_libraries_take_the_url(reservation: str) -> None:
    files, _ = fsspec.url_to_fs(f"forebay://{reservation}/files/")
    table = pa.table({"a": [1, 2, 3]})
    pq.write_table(table, f"{reservation}/files/tables/t.parquet", filesystem=files)
    assert pq.read_table(f"{reservation}/files/tables/t.parquet", filesystem=files) == table


@pytest.mark.parametrize("path", ["../../secret", "a/../../b", ".."])
def test_paths_do_not_leave_the_files(reservation: str, path: str) -> None:
    files, _ = fsspec.url_to_fs(f"forebay://{reservation}/files/")
    with pytest.raises(forebay.InvalidArgumentError, match="lies inside files/"):
        files.cat_file(f"{reservation}/files/{path}")
    with pytest.raises(forebay.InvalidArgumentError, match="lies inside files/"):
        files.pipe_file(f"forebay://{reservation}/files/{path}", b"1")


def test_reservation_made_anew_has_its_own_files(reservation: str) -> None:
    url = f"forebay://{reservation}/files/x"
    with fsspec.open(url, "w") as file:
        file.write("old")
    with forebay.Admin() as admin:
        admin.destroy(reservation)
        admin.create(reservation, "64MiB")
    files, path = fsspec.url_to_fs(url)
    assert not files.exists(path)


def test_file_system_that_knew_a_reservation_follows_one_made_anew(reservation: str) -> None:
    files, path = fsspec.url_to_fs(f"forebay://{reservation}/files/x")
    files.pipe_file(path, b"old")
    with forebay.Admin() as admin:
        admin.destroy(reservation)
        admin.create(reservation, "64MiB")
    assert not files.exists(path)
    files.pipe_file(path, b"new")
    assert files.cat_file(path) == b"new"


@pytest.fixture
def other(reservation: str) -> str:
    """A second reservation; both have a file ``y``."""
    with forebay.Admin() as admin:
        admin.create("other", "64MiB")
    for name in (reservation, "other"):
        with fsspec.open(f"forebay://{name}/files/y", "w") as file:
            file.write(name)
    return "other"


def test_url_of_another_reservation_is_that_reservations(reservation: str, other: str) -> None:
    files, path = fsspec.url_to_fs(f"forebay://{reservation}/files/y")
    assert files.cat_file(f"forebay://{other}/files/y") == other.encode()
    assert files.cat([path, f"forebay://{other}/files/y"]) == {
        path: reservation.encode(),
        f"{other}/files/y": other.encode(),
    }
    files.rm(f"forebay://{other}/files/y")
    assert files.exists(path)
    assert not files.exists(f"{other}/files/y")


def test_list_of_urls_reads_each_reservation(reservation: str, other: str) -> None:
    urls = [f"forebay://{name}/files/y" for name in (reservation, other)]
    with fsspec.open_files(urls, "r") as opened:
        assert [file.read() for file in opened] == [reservation, other]


def test_copy_and_move_go_from_one_reservation_to_another(reservation: str, other: str) -> None:
    files = fsspec.filesystem("forebay")
    files.cp_file(f"{reservation}/files/y", f"{other}/files/copies/y")
    files.mv(f"forebay://{reservation}/files/y", f"forebay://{other}/files/moved")
    assert files.cat_file(f"{other}/files/copies/y") == files.cat_file(f"{other}/files/moved") == reservation.encode()
    assert not files.exists(f"{reservation}/files/y")


def test_copy_onto_itself_is_refused_and_empties_nothing(reservation: str, other: str) -> None:
    files = fsspec.filesystem("forebay")
    path = f"{reservation}/files/y"
    with forebay.Admin() as admin:
        folder = Path(admin.reservation(reservation).files_path)
    (folder / "link").symlink_to("y")
    for same in (path, f"forebay://{path}", f"{reservation}/files//y", f"{reservation}/files/link"):
        with pytest.raises(shutil.SameFileError):
            files.cp(path, same)
        assert files.cat_file(path) == reservation.encode()
    files.mv(path, path)
    assert files.cat_file(path) == reservation.encode()


@pytest.mark.parametrize("path", ["y", "", "{reservation}", "{reservation}/flow/y", "{reservation}/files"])
def test_what_names_no_file_is_not_removed(reservation: str, other: str, path: str) -> None:
    files = fsspec.filesystem("forebay")
    with pytest.raises(forebay.InvalidArgumentError, match="files"):
        files.rm(path.format(reservation=reservation), recursive=True)
    assert files.exists(f"{reservation}/files/y")


def test_transaction_shows_its_files_at_its_end(reservation: str) -> None:
    files = fsspec.filesystem("forebay")
    folder = f"{reservation}/files"
    files.pipe_file(f"{folder}/grows", b"1")
    with files.transaction:
        files.pipe_file(f"{folder}/new", b"new")
        with files.open(f"{folder}/grows", "ab") as file:
            file.write(b"2")
        with files.open(f"{folder}/text", "x") as file:
            file.write("text")
        assert not files.exists(f"{folder}/new")
        assert not files.exists(f"{folder}/text")
        assert files.cat_file(f"{folder}/grows") == b"1"
    assert files.cat([f"{folder}/new", f"{folder}/grows", f"{folder}/text"]) == {
        f"{folder}/new": b"new",
        f"{folder}/grows": b"12",
        f"{folder}/text": b"text",
    }
    assert len(files.ls(folder)) == 3


def test_transaction_that_fails_leaves_the_files_as_they_were(reservation: str) -> None:
    files = fsspec.filesystem("forebay")
    folder = f"{reservation}/files"
    files.pipe_file(f"{folder}/old", b"old")
    with suppress(RuntimeError), files.transaction:
        files.pipe_file(f"{folder}/old", b"other")
        files.pipe_file(f"{folder}/new", b"new")
        raise RuntimeError("half way")
    assert files.ls(folder, detail=False) == [f"{folder}/old"]
    assert files.cat_file(f"{folder}/old") == b"old"
    with pytest.raises(forebay.UnsupportedError, match="cannot take back"), files.transaction:
        files.open(f"{folder}/old", "r+b")


def test_file_system_is_synchronous_and_zarr_takes_its_urls(reservation: str) -> None:
    assert not fsspec.filesystem("forebay").async_impl
    url = f"forebay://{reservation}/files/store.zarr"
    written = zarr.create_array(url, shape=(4, 3), chunks=(2, 3), dtype="i4")
    written[:] = np.arange(12).reshape(4, 3)
    assert (zarr.open_array(url, mode="r")[:] == np.arange(12).reshape(4, 3)).all()
    assert fsspec.filesystem("forebay").isdir(f"{reservation}/files/store.zarr/c")


def test_address_of_a_stream_is_told_apart(reservation: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="forebay://RESERVATION/files/PATH"):
        fsspec.open(f"forebay://{reservation}/flow").open()
    with pytest.raises(forebay.NotFoundError):
        fsspec.open("forebay://nowhere/files/x").open()
