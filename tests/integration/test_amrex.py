# SPDX-License-Identifier: Apache-2.0
"""Plotfiles become steps: every box a block of its level, bit by bit; what is not whole is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.connectors import amrex
from forebay.errors import CorruptError, ForebayError, InvalidArgumentError, NotFoundError
from tests.support.plotfiles import BOXES, FIELDS, content, write_plotfile


@pytest.fixture
def plots(reservation: str) -> str:
    return f"{reservation}/plots"


def expect_levels(step: forebay.Step, number: int, dtype: Any = np.float64) -> None:
    """All boxes of all levels."""
    for level, boxes in enumerate(BOXES):
        for field, name in enumerate(FIELDS):
            variable = step[f"level_{level}/{name}"]
            whole = content(number, level, field)
            assert variable.shape == whole.shape
            assert variable.dims == ("z", "y", "x")
            assert variable.dtype == dtype
            assert len(variable.blocks) == len(boxes)
            for place, (block, (low, high)) in enumerate(zip(variable.blocks, boxes, strict=True)):
                assert block.start == low[::-1]
                assert block.count == tuple(last - first + 1 for first, last in zip(low, high, strict=True))[::-1]
                index = tuple(slice(first, last + 1) for first, last in zip(low, high, strict=True))[::-1]
                np.testing.assert_array_equal(variable.block(place), whole[index].astype(dtype))


@pytest.mark.parametrize(
    "form", [{}, {"order": ">"}, {"size": 4}, {"ghosts": 2}, {"order": ">", "size": 4, "ghosts": 1}], ids=str
)
def test_a_plotfile_becomes_a_step_bit_by_bit(plots: str, tmp_path: Path, form: dict[str, Any]) -> None:
    write_plotfile(tmp_path / "plt00020", 20, **form)
    assert amrex.ingest([tmp_path / "plt00020"], plots) == 1
    with forebay.open(plots, timeout=0) as stream:
        step = stream[20]
        expect_levels(step, 20, np.float32 if form.get("size") == 4 else np.float64)
        assert step["time"].item() == 10.0
        assert step.attributes["levels"] == 2
        np.testing.assert_array_equal(step.attributes["spacing"], [1 / 16] * 3)
        np.testing.assert_array_equal(step.attributes["level_1/spacing"], [1 / 32] * 3)
        assert step["level_0/density"].fault == ""


def test_more_plotfiles_continue_the_stream(plots: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"plt{number:05d}" for number in (0, 10, 20)]
    for number, path in zip((0, 10, 20), paths, strict=True):
        write_plotfile(path, number)
    assert amrex.ingest(paths[:2], plots, fields=["density"]) == 2
    assert amrex.ingest(paths, plots, fields=["density"]) == 1
    with forebay.open(plots, timeout=0) as stream:
        assert [step.number for step in stream] == [0, 10, 20]
        assert stream[20].variables == ["time", "level_0/density", "level_1/density"]
    assert amrex.ingest(paths[1:], f"{plots}2", numbers=False) == 2
    with forebay.open(f"{plots}2", timeout=0) as stream:
        expect_levels(stream[1], 20)


def test_what_is_not_whole_or_not_a_plotfile_is_refused_by_name(plots: str, tmp_path: Path) -> None:
    def damaged(name: str, file: str, change: Any) -> Path:
        path = tmp_path / name
        write_plotfile(path, 1)
        target = path / file
        target.write_bytes(change(target.read_bytes()))
        return path

    cases: list[tuple[Path, type[ForebayError], str]] = [
        (damaged("plt1", "Header", lambda data: data[:200]), CorruptError, "plt1"),
        (damaged("plt2", "Header", lambda data: b"PLOT" + data), CorruptError, "HyperCLaw"),
        (damaged("plt3", "Level_1/Cell_H", lambda data: data[:90]), CorruptError, "Cell_H"),
        (damaged("plt4", "Level_0/Cell_D_00000", lambda data: data[:-8]), CorruptError, "cut off"),
        (damaged("plt5", "Level_0/Cell_D_00000", lambda data: b"X" + data), CorruptError, "no FAB"),
        (
            damaged("plt6", "Header", lambda data: data.replace(b"Level_1/Cell", b"../../x/Cell")),
            CorruptError,
            "level 1",
        ),
        (
            damaged("plt7", "Level_0/Cell_H", lambda data: data.replace(b"(8,0,0)", b"(9,0,0)")),
            CorruptError,
            "FAB is of",
        ),
        (
            damaged("plt8", "Level_0/Cell_H", lambda data: data.replace(b"(15,7,7)", b"(99,7,7)")),
            CorruptError,
            "outside",
        ),
        (tmp_path / "plt9", NotFoundError, "missing"),
        (damaged("plt", "Header", lambda data: data), InvalidArgumentError, "no number"),
    ]
    (tmp_path / "plt2" / "Level_0" / "Cell_D_00001").unlink()
    for path, kind, text in cases:
        with pytest.raises(kind, match=text) as refused:
            amrex.ingest([path], plots)
        assert len(str(refused.value)) < 300 + len(str(tmp_path))
        assert str(path) in str(refused.value)
    with forebay.Admin() as admin:
        assert admin.stream(plots).steps == 0
    write_plotfile(tmp_path / "plt00004", 4)
    write_plotfile(tmp_path / "plt00003", 3)
    with pytest.raises(InvalidArgumentError, match="sort"):
        amrex.ingest([tmp_path / "plt00004", tmp_path / "plt00003"], plots)
    write_plotfile(tmp_path / "plt00005", 5)
    with pytest.raises(InvalidArgumentError, match="'pressure'"):
        amrex.ingest([tmp_path / "plt00005"], plots, fields=["pressure"])
