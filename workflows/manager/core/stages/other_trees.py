# SPDX-License-Identifier: Apache-2.0
"""Files of other servers, as stages see them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from forebay.manager.jobs import Job

__all__ = ["OtherTrees"]


class OtherTrees(Protocol):
    """Who has files of other servers on this node while stages move them. Usable from several threads."""

    def start(self) -> None:
        """Takes away what an earlier manager has left, before a stage begins."""

    def hold(self, job: Job, uid: int) -> tuple[str, Path] | None:
        """Where files that the job moves are found, and the reservation's uuid, for `release`; None: on this server, or
        the user may not use them.

        Raises
        ------
        ForebayError
            They cannot be had. It may pass.
        """

    def release(self, reservation_id: str) -> None:
        """A stage that held it is over."""
