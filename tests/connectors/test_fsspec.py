# SPDX-License-Identifier: Apache-2.0
"""fsspec, found by the scheme, on the files of a real reservation."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    assert sorted(files.ls("results", detail=False)) == ["results/a.txt", "results/b.txt"]
    assert files.glob("**/*.txt") == ["results/a.txt", "results/b.txt"]
    assert [opened.path for opened in fsspec.open_files(f"forebay://{reservation}/files/results/*.txt")] == [
        "results/a.txt",
        "results/b.txt",
    ]


def test_url_of_a_path_names_the_reservation(reservation: str) -> None:
    files, path = fsspec.url_to_fs(f"forebay://{reservation}/files/a/b")
    assert path == "a/b"
    assert files.unstrip_protocol(path) == f"forebay://{reservation}/files/a/b"


def test_pickle_opens_the_same_files(reservation: str) -> None:
    files, _ = fsspec.url_to_fs(f"forebay://{reservation}/files/")
    files.pipe_file("x", b"12")
    assert pickle.loads(pickle.dumps(files)).cat_file("x") == b"12"


def test_other_libraries_take_the_url(reservation: str) -> None:
    files, _ = fsspec.url_to_fs(f"forebay://{reservation}/files/")
    table = pa.table({"a": [1, 2, 3]})
    pq.write_table(table, "tables/t.parquet", filesystem=files)
    assert pq.read_table("tables/t.parquet", filesystem=files) == table


@pytest.mark.parametrize("path", ["../../secret", "a/../../b", ".."])
def test_paths_do_not_leave_the_files(reservation: str, path: str) -> None:
    files, _ = fsspec.url_to_fs(f"forebay://{reservation}/files/")
    with pytest.raises(forebay.InvalidArgumentError, match="lies inside files/"):
        files.cat_file(path)
    with pytest.raises(forebay.InvalidArgumentError, match="lies inside files/"):
        files.pipe_file(path, b"1")


def test_reservation_made_anew_has_its_own_files(reservation: str) -> None:
    url = f"forebay://{reservation}/files/x"
    with fsspec.open(url, "w") as file:
        file.write("old")
    with forebay.Admin() as admin:
        admin.destroy(reservation)
        admin.create(reservation, "64MiB")
    files, path = fsspec.url_to_fs(url)
    assert not files.exists(path)


def test_address_of_a_stream_is_told_apart(reservation: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="forebay://RESERVATION/files/PATH"):
        fsspec.open(f"forebay://{reservation}/flow").open()
    with pytest.raises(forebay.NotFoundError):
        fsspec.open("forebay://nowhere/files/x").open()
