# SPDX-License-Identifier: Apache-2.0
"""The states of stages as the manager keeps them and its clients see them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["StageState"]


class StageState(StrEnum):
    """State of a stage."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Nothing changes any more."""
        return self in (StageState.SUCCEEDED, StageState.FAILED, StageState.CANCELLED)
