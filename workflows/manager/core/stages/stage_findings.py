# SPDX-License-Identifier: Apache-2.0
"""What `forebay doctor` should know of stages."""

from __future__ import annotations

import time
from collections.abc import Iterable

from forebay.durations import format_duration
from forebay.records import Finding, Severity
from forebay.workflows.manager.core.stages.stuck_processes import StuckProcess

__all__ = ["stage_findings"]


def stage_findings(stuck: Iterable[StuckProcess]) -> list[Finding]:
    """A finding for each process that does not end."""
    now_ns = time.time_ns()
    return [
        Finding(
            Severity.PROBLEM,
            f"stage {process.stage}",
            f"its process {process.pid} of user {process.uid} does not end although it was killed "
            f"{format_duration((now_ns - process.since_ns) / 1e9)} ago: a file system that it uses does not answer. It "
            "counts against the user's share of stages until it ends; repair or unmount that file system",
        )
        for process in stuck
    ]
