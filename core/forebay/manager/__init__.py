# SPDX-License-Identifier: Apache-2.0
"""The manager as its clients see it: its typed client, the jobs that it is given, the states of stages.

The manager itself is `forebay.workflows.manager`.
"""

from forebay.manager.client import ManagerClient, follow_stage
from forebay.manager.jobs import FilesJob, Job, MatchedFilesJob, StepsJob
from forebay.manager.records import (
    Answer,
    AttachmentKind,
    AttachmentRow,
    Destruction,
    Drain,
    GivenUp,
    JobRow,
    JobState,
    MemberRow,
    PoolServer,
    PoolSpace,
    QueuePlace,
    QueueRow,
    ReceiptRow,
    ReservationRow,
    ReservationState,
    Retirement,
    ServerStatus,
    Undrained,
)
from forebay.manager.stage_state import StageState

__all__ = [
    "Answer",
    "AttachmentKind",
    "AttachmentRow",
    "Destruction",
    "Drain",
    "FilesJob",
    "GivenUp",
    "Job",
    "JobRow",
    "JobState",
    "ManagerClient",
    "MatchedFilesJob",
    "MemberRow",
    "PoolServer",
    "PoolSpace",
    "QueuePlace",
    "QueueRow",
    "ReceiptRow",
    "ReservationRow",
    "ReservationState",
    "Retirement",
    "ServerStatus",
    "StageState",
    "StepsJob",
    "Undrained",
    "follow_stage",
]
