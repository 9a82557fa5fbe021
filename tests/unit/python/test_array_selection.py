# SPDX-License-Identifier: Apache-2.0
"""A selection takes what NumPy's basic indexing takes, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices

from forebay.array_selection import ArraySelection, select


def taken(array: np.ndarray[Any, Any], selection: ArraySelection) -> Any:
    places = zip(selection.start, selection.count, strict=True)
    region: tuple[Any, ...] = (*(slice(first, first + length) for first, length in places), ...)
    box = array[region]
    result = box if selection.rest is None else box[selection.rest]
    return result[()] if selection.is_scalar else result


@given(st.data())
def test_selection_equals_basic_indexing(data: st.DataObject) -> None:
    shape = data.draw(array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    index = data.draw(basic_indices(shape, allow_newaxis=False, allow_ellipsis=True))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    selection = select(index, shape)
    expected = array[index]
    result = taken(array, selection)
    assert type(result) is type(expected)
    assert np.array_equal(result, expected)
    assert selection.shape == np.shape(expected)


@given(st.data())
def test_box_is_the_smallest(data: st.DataObject) -> None:
    shape = data.draw(array_shapes(max_dims=3, max_side=8))
    index = data.draw(basic_indices(shape, allow_newaxis=False))
    selection = select(index, shape)
    chosen = np.zeros(shape, bool)
    chosen[index] = True
    places = np.argwhere(chosen)
    if len(places):
        assert selection.start == tuple(places.min(axis=0))
        assert selection.count == tuple(places.max(axis=0) - places.min(axis=0) + 1)
    else:
        assert 0 in selection.count


@pytest.mark.parametrize(
    "index", [4, -5, (0, 0, 0), (..., ...), None, (0, None), [0, 1], np.array([0, 1]), True, 1.5, "x"]
)
def test_anything_else_is_an_index_error(index: Any) -> None:
    with pytest.raises(IndexError):
        select(index, (4, 6))


def test_numpy_integers_select_like_ints() -> None:
    assert select(np.int64(-1), (4,)).start == (3,)
    assert select(np.array(2), (4,)).start == (2,)
