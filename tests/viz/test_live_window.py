# SPDX-License-Identifier: Apache-2.0
"""The window behind the page of `forebay view --web`, without a browser."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import forebay
from forebay.viz.scenes.description import SceneDescription

pytest.importorskip("trame", reason="trame is not installed: pip install 'forebay[web]'")

from forebay.viz.web.live_steps import LiveSteps
from forebay.viz.web.server import _Viewer


def test_a_field_of_two_dimensions_is_shown_and_so_is_one_that_takes_its_place(reservation: str) -> None:
    """A restart gives another step of the same number."""
    address = f"{reservation}/flat"
    stream = forebay.open(address, mode="w")
    stream.write("T", np.eye(64))
    with forebay.open(address) as source:
        viewer = _Viewer(source, SceneDescription(size=(160, 120)), "token")
        assert viewer._server.state.message == ""
        assert viewer._picture.render().std() > 10
        changed = threading.Semaphore(0)
        live = LiveSteps(source, changed.release)
        assert changed.acquire(timeout=60)
        before = (live.newest, live.epoch)
        stream.abandon()
        with forebay.open(address, mode="w") as again:
            again.write("T", np.zeros((64, 64)))
            assert changed.acquire(timeout=60)
            assert live.newest == before[0] == 0
            assert live.epoch > before[1]
        live.close()
