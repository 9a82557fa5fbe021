# SPDX-License-Identifier: Apache-2.0
"""Who would lose something if an instance goes down: jobs of a scheduler, holders of reservations, and streams."""

from __future__ import annotations

import time

from forebay.errors import DisconnectedError, NotFoundError, RefusedError
from forebay.manager.process_identity import process_identity
from forebay.manager.records import AttachmentKind, AttachmentRow, JobState, ReservationRow
from forebay.records import StreamStatus
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.pools.servers import Servers

__all__ = ["refuse_if_in_use", "refuse_if_written", "why_over"]

_NAMED = 3
_REASONS_SHOWN = 3


def refuse_if_in_use(database: Database) -> None:
    """RefusedError if a job is not over, or somebody is attached to a reservation."""
    jobs = JobTable(database).all([state for state in JobState if not state.is_final])
    holders = [row for row in AttachmentTable(database).all() if row.kind is AttachmentKind.USER and not why_over(row)]
    reasons = []
    if jobs:
        reasons.append(_some("job", [job.token for job in jobs]))
    if holders:
        reasons.append(_some("attachment", [f"{row.holder} to {row.reservation}" for row in holders]))
    if reasons:
        raise RefusedError(
            f"nothing was destroyed: the instance is in use by {' and '.join(reasons)}. Wait until they have ended; "
            "for an upgrade run `forebay down --keep`, which deletes nothing; or use --force"
        )


def refuse_if_written(rows: list[ReservationRow], servers: Servers) -> None:
    """RefusedError if one of the reservations has writers, or precious steps that are not staged out. Those of servers
    that are away are asked by these once they are back.
    """
    reasons: list[str] = []
    for row in rows:
        try:
            reasons += _reasons_against(row, servers)
        except NotFoundError:  # lost: there is nothing to lose any more
            continue
        except DisconnectedError:
            if not row.server:
                raise
    if not reasons:
        return
    shown = "; ".join(reasons[:_REASONS_SHOWN])
    more = len(reasons) - _REASONS_SHOWN
    raise RefusedError(
        f"nothing was destroyed: {shown}{f'; and {more} more streams' if more > 0 else ''}. End the writers, stage "
        "the steps out, or use --force"
    )


def _reasons_against(row: ReservationRow, servers: Servers) -> list[str]:
    reasons: list[str] = []
    with servers.of(row).admin() as admin:
        for stream in admin.streams(row.name):
            path = f"{row.name}/{stream.name}"
            if stream.status is StreamStatus.LIVE:
                reasons.append(f"{path} is being written")
            elif precious := sum(step.precious for step in admin.steps(path)):
                reasons.append(f"{path} has {precious} precious steps that are not staged out")
    return reasons


def why_over(row: AttachmentRow) -> str:
    """Why an attachment is over; "" if it is not."""
    if row.process is not None and row.pid is not None and process_identity(row.pid) != row.process:
        return f"process {row.pid} has ended"
    if row.expires_ns is not None and row.expires_ns <= time.time_ns():
        return "its time was up"
    return ""


def _some(kind: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} {kind}{'s' if len(names) > 1 else ''} ({', '.join(names[:_NAMED])}{more})"
