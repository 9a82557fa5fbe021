# SPDX-License-Identifier: Apache-2.0
"""The states of reservations and stages as the manager keeps them and its clients see them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ReservationState", "StageState"]


class ReservationState(StrEnum):
    """What is to become of a reservation, or has."""

    CREATING = "creating"  #: asked for; whether the server has it is not known yet
    PRESENT = "present"  #: the server has it
    DESTROYING = "destroying"  #: to be gone; whether it is, is not known yet
    LOST = "lost"  #: should be there, but the server does not have it


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
