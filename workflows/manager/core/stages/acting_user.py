# SPDX-License-Identifier: Apache-2.0
"""As whom a stage runs. Root stages as nobody's deputy: what an administrator asks for runs as the reservation's owner,
so that a name that a user can change leads only to what that user may use anyway.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import replace

from forebay.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from forebay.manager.jobs import FilesJob, Job, StepsJob, job_from_json
from forebay.manager.records import StageRow
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database

__all__ = ["acting_row", "check_may_act", "check_may_stage"]


def check_may_stage(peer: Peer) -> None:
    """A stage runs as its user, which only a manager that runs as root can make happen for others."""
    if peer.uid != os.geteuid() and os.geteuid() != 0:
        raise PermissionDeniedError(
            f"the manager runs as user {os.geteuid()} and cannot stage for user {peer.uid}; run the stage yourself: "
            "python -m forebay.workflows.staging"
        )
    try:
        pwd.getpwuid(peer.uid)
    except KeyError:
        raise NotFoundError(f"user {peer.uid} has no account on this machine") from None


def check_may_act(job: Job, peer: Peer) -> None:
    """Refuses what needs root's rights outside to everybody but root.

    Raises
    ------
    PermissionDeniedError
        The peer is not root.
    InvalidArgumentError
        An owner without `as_root`, or for what is made inside.
    """
    if not isinstance(job, FilesJob):
        return
    if job.as_root and (peer.uid != 0 or os.geteuid() != 0):
        raise PermissionDeniedError("--as-root is root's; without it the stage runs with your own rights")
    if (job.owner is not None or job.group is not None) and (job.inward or not job.as_root):
        raise InvalidArgumentError(
            "--owner and --group go with --as-root, and with stage-out: inside the reservation all belongs to its owner"
        )


def acting_row(row: StageRow, database: Database) -> StageRow:
    """The stage with the user and the group that its process gets.

    Raises
    ------
    NotFoundError
        The reservation of a stage that root asked for is not there (any more).
    """
    if row.owner_uid != 0 or os.geteuid() != 0:
        return row
    job = job_from_json(row.job)
    if isinstance(job, FilesJob) and job.as_root:
        return row
    name = job.stream.partition("/")[0] if isinstance(job, StepsJob) else job.reservation
    reservation = database.reservation(name)
    if reservation is None:
        raise NotFoundError(f"there is no reservation {name}", name)
    return replace(row, owner_uid=reservation.owner_uid, owner_gid=reservation.owner_gid)
