# SPDX-License-Identifier: Apache-2.0
"""The states of reservations and jobs as the manager keeps them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["JobState", "ReservationState"]


class ReservationState(StrEnum):
    """What is to become of a reservation, or has."""

    CREATING = "creating"  #: asked for; whether the server has it is not known yet
    PRESENT = "present"  #: the server has it
    DESTROYING = "destroying"  #: to be gone; whether it is, is not known yet
    LOST = "lost"  #: should be there, but the server does not have it


class JobState(StrEnum):
    """How far a job of a scheduler has come; the order is that of a job's life."""

    SETUP = "setup"  #: its reservation is being made
    DATA_IN = "data_in"  #: files are staged in
    PRE_RUN = "pre_run"  #: all is ready; it may run
    RUNNING = "running"
    POST_RUN = "post_run"  #: it is over; its last processes are waited for
    DATA_OUT = "data_out"  #: what it is to keep is staged out
    DRAINED = "drained"  #: all of that has its receipts
    GONE = "gone"  #: its reservation was destroyed
    WAITING = "waiting"  #: there was no room for it; the scheduler is asked to set it up again when there is
    KEPT = "kept"  #: the scheduler is through with it, but its data could not be staged out and lies here still

    @property
    def is_final(self) -> bool:
        """The scheduler hears no more of it."""
        return self in (JobState.GONE, JobState.KEPT, JobState.WAITING)

    @property
    def may_have_run(self) -> bool:
        """Its processes may have written."""
        return self in (JobState.RUNNING, JobState.POST_RUN, JobState.DATA_OUT, JobState.DRAINED)
