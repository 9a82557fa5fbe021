# SPDX-License-Identifier: Apache-2.0
"""What a stage tells of its progress: not too often, but never too late."""

from __future__ import annotations

import json
from io import StringIO

import pytest

from forebay.workflows.staging.reporting import JsonReporter


def test_progress_before_a_long_wait_is_told_however_soon_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    out = StringIO()
    reporter = JsonReporter(out)
    for items_done in (0, 1):
        reporter.progress.items_done = items_done
        reporter.update()
    reporter.progress.items_done = 2
    reporter.update(at_once=True)
    assert [json.loads(line)["items_done"] for line in out.getvalue().splitlines()] == [0, 2]
