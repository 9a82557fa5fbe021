# SPDX-License-Identifier: Apache-2.0
"""What becomes of reservations when an instance goes down whose server is down already."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from forebay.manager.records import ReservationState
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.reservations.in_use import refuse_if_in_use

__all__ = ["doom_non_persistent"]


def doom_non_persistent(place: Path | str, root: Path, *, force: bool) -> list[str]:
    """Has the reservations that are not persistent destroyed once the instance comes up again. Their names.

    Parameters
    ----------
    place : Path or str
        Of the manager's database.

    Raises
    ------
    RefusedError
        There are jobs or attachments, and `force` was not given.
    """
    with contextlib.closing(Database(place, str(root))) as database:
        if not force:
            refuse_if_in_use(database)
        doomed = [row for row in database.reservations() if not row.persistent]
        for row in doomed:
            # Only the server knows whether precious steps are in the way: without `force` it is asked then.
            database.put_reservation(replace(row, state=ReservationState.DESTROYING, force=force or row.force))
    return [row.name for row in doomed]
