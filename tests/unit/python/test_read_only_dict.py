# SPDX-License-Identifier: Apache-2.0
"""What steps and streams say of themselves: nobody changes it, and other programs take it like any dictionary."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forebay.read_only_dict import ReadOnlyDict


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given.__setitem__("a", 1),
        lambda given: given.__delitem__("a"),
        lambda given: given.__ior__({"b": 1}),
        lambda given: given.update(a=1),
        lambda given: given.setdefault("b", 1),
        lambda given: given.pop("a"),
        lambda given: given.popitem(),
        lambda given: given.clear(),
    ],
)
def test_every_change_is_refused(change: Callable[[Any], Any]) -> None:
    given = ReadOnlyDict({"a": 0})
    with pytest.raises(TypeError, match="read-only"):
        change(given)
    assert given == {"a": 0}


def test_copies_of_all_kinds_are_equal() -> None:
    given = ReadOnlyDict({"units": "K", "axes": ("x", "y"), "dt": np.float32(0.5)})
    for made in (pickle.loads(pickle.dumps(given)), copy.copy(given), copy.deepcopy(given)):
        assert type(made) is ReadOnlyDict
        assert made == given
    assert json.loads(json.dumps(ReadOnlyDict({"a": [1, 2]}))) == {"a": [1, 2]}
    changed = dict(given)
    changed["units"] = "C"
    assert given["units"] == "K"
    assert type(given | {"more": 1}) is dict
