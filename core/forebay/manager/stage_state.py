# SPDX-License-Identifier: Apache-2.0
"""The states of stages as the manager keeps them and its clients see them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["StageState"]


class StageState(StrEnum):
    """State of a stage."""

    DEFERRED = "deferred"  #: kept until its job ends, or it is activated
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REVOKED = "revoked"  #: was deferred, and is not wanted any more

    @property
    def is_final(self) -> bool:
        """Nothing changes any more."""
        return self in (StageState.SUCCEEDED, StageState.FAILED, StageState.CANCELLED, StageState.REVOKED)
