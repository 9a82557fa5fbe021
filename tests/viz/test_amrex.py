# SPDX-License-Identifier: Apache-2.0
"""Plotfiles in a stream against yt's own reading of them: the same grids, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yt

import forebay
from forebay.connectors import amrex
from tests.support.plotfiles import FIELDS, write_plotfile


@pytest.mark.parametrize("form", [{}, {"order": ">"}, {"size": 4}], ids=str)
def test_each_block_is_yts_grid_bit_by_bit(reservation: str, tmp_path: Path, form: dict[str, Any]) -> None:
    yt.set_log_level("error")
    path = tmp_path / "plt00007"
    write_plotfile(path, 7, **form)
    amrex.ingest([path], f"{reservation}/plots")
    theirs = yt.load(path)
    with forebay.open(f"{reservation}/plots", timeout=0) as stream:
        step = stream[7]
        assert step["time"].item() == float(theirs.current_time)
        assert int(theirs.index.max_level) + 1 == step.attributes["levels"]
        compared = 0
        for level in range(2):
            grids = [grid for grid in theirs.index.grids if grid.Level == level]
            for name in FIELDS:
                variable = step[f"level_{level}/{name}"]
                blocks = {block.start: variable.block(place) for place, block in enumerate(variable.blocks)}
                assert len(blocks) == len(grids)
                for grid in grids:
                    values = np.asarray(grid["boxlib", name]).transpose(2, 1, 0)
                    ours = blocks[tuple(int(place) for place in grid.get_global_startindex()[::-1])]
                    np.testing.assert_array_equal(ours, values.astype(ours.dtype))
                    assert np.array_equal(ours.astype(values.dtype), values)
                    compared += 1
                np.testing.assert_allclose(np.asarray(grids[0].dds)[::-1], step.attributes[f"level_{level}/spacing"])
        assert compared == 10
