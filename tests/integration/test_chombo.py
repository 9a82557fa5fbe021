# SPDX-License-Identifier: Apache-2.0
"""Chombo's plot files become steps: every box a block of its level, bit by bit; others are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import forebay
from forebay.connectors import chombo
from forebay.errors import CorruptError, ForebayError, InvalidArgumentError, NotFoundError
from tests.integration.test_amrex import expect_levels
from tests.support.chombo_files import write_chombo_file


@pytest.fixture
def plots(reservation: str) -> str:
    return f"{reservation}/plots"


@pytest.mark.parametrize(
    "form",
    [{}, {"kind": ">f8"}, {"kind": "<f4"}, {"ghosts": (2, 1, 0)}, {"offsets": False}, {"low": 3}],
    ids=str,
)
def test_a_plot_file_becomes_a_step_bit_by_bit(plots: str, tmp_path: Path, form: dict[str, Any]) -> None:
    path = tmp_path / "plt000020.3d.hdf5"
    write_chombo_file(path, 20, **form)
    assert chombo.ingest([path], plots) == 1
    with forebay.open(plots, timeout=0) as stream:
        step = stream[20]
        expect_levels(step, 20, np.float32 if form.get("kind") == "<f4" else np.float64)
        assert step["time"].item() == 10.0
        assert step.attributes["levels"] == 2
        np.testing.assert_array_equal(step.attributes["spacing"], [0.125] * 3)
        np.testing.assert_array_equal(step.attributes["level_1/spacing"], [0.0625] * 3)
        np.testing.assert_array_equal(step.attributes["origin"], [0.125 * form.get("low", 0)] * 3)


def test_more_files_continue_the_stream(plots: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"run.{number:04d}.{ending}" for number, ending in ((0, "3d.hdf5"), (10, "hdf5"), (20, "h5"))]
    for number, path in zip((0, 10, 20), paths, strict=True):
        write_chombo_file(path, number)
    assert chombo.ingest(paths[:2], plots, fields=["density"]) == 2
    assert chombo.ingest(paths, plots, fields=["density"]) == 1
    with forebay.open(plots, timeout=0) as stream:
        assert [step.number for step in stream] == [0, 10, 20]
        assert stream[20].variables == ["time", "level_0/density", "level_1/density"]


def test_what_is_not_whole_or_not_of_chombo_is_refused_by_name(plots: str, tmp_path: Path) -> None:
    def damaged(name: str, change: Callable[[h5py.File], object]) -> Path:
        path = tmp_path / f"{name}.hdf5"
        write_chombo_file(path, 1)
        with h5py.File(path, "r+") as file:
            change(file)
        return path

    def shorten(file: h5py.File) -> None:
        data = file["level_1/data:datatype=0"][:-1]
        del file["level_1/data:datatype=0"]
        file["level_1/data:datatype=0"] = data

    def move_box(file: h5py.File) -> None:
        boxes = file["level_0/boxes"][()]
        boxes["hi_i"][0] = 99
        file["level_0/boxes"][...] = boxes

    def swap_corners(file: h5py.File) -> None:
        boxes = file["level_0/boxes"][()]
        boxes["lo_i"][0] = 9
        file["level_0/boxes"][...] = boxes

    def drop(file: h5py.File, name: str) -> None:
        del file[name]

    cut = tmp_path / "plt9.hdf5"
    write_chombo_file(cut, 1)
    cut.write_bytes(cut.read_bytes()[:2000])
    cases: list[tuple[Path, type[ForebayError], str]] = [
        (damaged("plt1", lambda file: drop(file, "Chombo_global")), CorruptError, "Chombo_global"),
        (damaged("plt2", lambda file: file.attrs.modify("num_levels", np.int32(9))), CorruptError, "level_2"),
        (damaged("plt3", lambda file: file.attrs.modify("num_levels", np.int32(-1))), CorruptError, "num_levels is -1"),
        (damaged("plt4", shorten), CorruptError, "do not fit the"),
        (damaged("plt5", move_box), CorruptError, "outside the domain"),
        (damaged("plt6", swap_corners), CorruptError, "is empty"),
        (damaged("plt7", lambda file: file["level_1"].attrs.modify("dx", 0.0)), CorruptError, "dx is 0"),
        (cut, CorruptError, "not whole"),
        (tmp_path / "plt10.hdf5", NotFoundError, "no such file"),
        (damaged("plt", lambda file: None), InvalidArgumentError, "no number"),
    ]
    for path, kind, text in cases:
        with pytest.raises(kind, match=text) as refused:
            chombo.ingest([path], plots)
        assert len(str(refused.value)) < 300 + len(str(tmp_path))
        assert str(path) in str(refused.value)
    with forebay.Admin() as admin:
        assert admin.stream(plots).steps == 0
    write_chombo_file(tmp_path / "plt00005.hdf5", 5)
    with pytest.raises(InvalidArgumentError, match="'pressure'"):
        chombo.ingest([tmp_path / "plt00005.hdf5"], plots, fields=["pressure"])
