# SPDX-License-Identifier: Apache-2.0
"""The staged watermark says what was staged out, also of steps that are gone, after a crash and after a clean end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.support.staging_server import StagingServer


@pytest.mark.parametrize("crash", [True, False])
def test_staged_watermark_outlives_its_steps_and_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    with StagingServer(tmp_path / "root") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("run", "64MiB", persistent=True)
            with forebay.open("run/flow", "w", rank=0, ranks=1, retention="last:1,precious:2") as stream:
                for number in range(5):
                    with stream.step() as step:
                        step["T"] = np.full(10, number)
                admin.mark_staged("run/flow", stream.info.epoch, [0, 2], "receipt")
                with stream.step() as step:
                    step["T"] = np.zeros(10)
                assert [summary.number for summary in stream.steps()] == [4, 5]
            assert admin.stream("run/flow").staged == 2
        if crash:
            server.kill()
        else:
            server.stop()
        server.start()
        with forebay.Admin() as admin:
            assert admin.stream("run/flow").staged == 2
