# SPDX-License-Identifier: Apache-2.0
"""Tokens of jobs: with its own, a job uses its streams on nodes other than their home.

A token is the job's user's, with what that user may. It lies in ROOT/slurm/tokens/JOB, a file that the user alone may
read, and which every node of the job sees. The file is root's: the user could else fill the root's file system by it.
Nothing else has the token: not the job's variables, which name the file, nor Slurm's state. Its renewal replaces the
file, so all nodes have it at once.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import struct
import time
from pathlib import Path

from forebay.errors import BusyError, PermissionDeniedError, StorageError
from forebay.manager.records import JobRow, JobState
from forebay.records import Rights
from forebay.workflows.manager.core.access import rights_of
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.users import user_as_peer
from forebay.workflows.staging.publication import write_whole

__all__ = ["JobTokens"]

_log = logging.getLogger(__name__)

_EXPIRES_AT = 24  # in the claims: docs/formats/remote.md
_RENEWED_IN = frozenset({JobState.DATA_IN, JobState.PRE_RUN, JobState.RUNNING})


class JobTokens:
    """The tokens of one instance's jobs. Usable from several threads, but for one job from one at a time.

    Each is one of its reservation's home, where the job's programs connect.
    """

    def __init__(self, root: Path, settings: SlurmSettings, reservations: Reservations) -> None:
        self._root = root
        self._folder = root / "slurm" / "tokens"
        self._settings = settings
        self._reservations = reservations

    def variables(self, job: JobRow, reservation: str) -> dict[str, str]:
        """What the job's processes get beside the rest; none if jobs get no tokens, or this one has no streams."""
        if not self._gives(reservation):
            return {}
        server = self._reservations.address_of(reservation) or self._settings.server
        return {"FOREBAY_SERVER": server, "FOREBAY_TOKEN_FILE": str(self._file(job))}

    def make(self, job: JobRow, reservation: str) -> None:
        """Makes the job's token, or a newer one; those before it stay valid.

        Raises
        ------
        StorageError, PermissionDeniedError
            The file cannot be written, or the user may not have a token.
        BusyError
            What the user may was changed meanwhile.
        """
        if not self._gives(reservation):
            return
        text = self._made_for_user(job, reservation)
        try:
            self._folder.parent.mkdir(mode=0o755, exist_ok=True)
            self._folder.parent.chmod(0o755)
            self._folder.mkdir(mode=0o711, exist_ok=True)
            self._folder.chmod(0o711)
            # First what has to be revoked.
            write_whole(self._made(job), "".join(f"{one}\n" for one in [*self._all(job), text]), mode=0o600)
            reader = job.owner_uid if os.geteuid() == 0 else None
            write_whole(self._file(job), f"{text}\n", mode=0o600, reader=reader)
        except OSError as error:
            raise StorageError(f"the job's token cannot be kept: {error.strerror}", error.filename) from None

    def renew(self, job: JobRow, reservation: str, now_ns: int) -> bool:
        """Makes a newer token if less than half of the time of this one is left. True if it did."""
        if job.state not in _RENEWED_IN or not self._gives(reservation):
            return False
        made = self._all(job)
        if made and _expiry_ns(made[-1]) - now_ns > self._settings.token_seconds * 1e9 / 2:
            return False
        self.make(job, reservation)
        _log.info("job %s: its token is renewed", job.token)
        return True

    def void(self, job: JobRow, reservation: str) -> None:
        """The job is over, and goes on using nothing of this reservation; "": that is gone, and the tokens with it.
        Idempotent.

        Raises
        ------
        DisconnectedError
            The server is away, so nothing was revoked.
        """
        self._file(job).unlink(missing_ok=True)
        made = self._all(job)
        if made and reservation:
            with self._reservations.home_of(reservation).admin() as admin:
                for text in made:
                    # Void already, if the server has another key now.
                    with contextlib.suppress(PermissionDeniedError):
                        admin.revoke_token(text)
        self._made(job).unlink(missing_ok=True)

    def _gives(self, reservation: str) -> bool:
        return bool(self._settings.server and reservation)

    def _file(self, job: JobRow) -> Path:
        return self._folder / job.token

    def _made(self, job: JobRow) -> Path:
        """All tokens of this run of the job, the newest last; the manager's own."""
        return self._folder / f"{job.token}.{job.run}.made"

    def _all(self, job: JobRow) -> list[str]:
        try:
            return self._made(job).read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []

    def _made_for_user(self, job: JobRow, reservation: str) -> str:
        """A token of the user's. No process of theirs is asked: what it says would be theirs to choose, and when."""
        user = user_as_peer(job.owner_uid)
        with self._reservations.home_of(reservation).admin() as admin:
            may = rights_of(admin.reservation(reservation, count_files=False), user)
            if may is Rights.NONE:
                raise PermissionDeniedError(
                    "the job's user has no right to read it, so the job gets no token", reservation
                )
            text = admin.create_token(
                reservation,
                rights=("read", "write") if may is Rights.WRITE else ("read",),
                lifetime=max(1.0, self._settings.token_seconds),
                uid=job.owner_uid,
            )
            # A right that is taken away later makes the token void; one that was taken away just before would not.
            if rights_of(admin.reservation(reservation, count_files=False), user) is not may:
                admin.revoke_token(text)
                raise BusyError("shares were changed while the job's token was made; try again", reservation)
        return text


def _expiry_ns(token: str) -> int:
    """When it expires, nanoseconds since 1970; now if it is no token."""
    _, _, encoded = token.partition("-1.")
    try:
        claims = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        return int(struct.unpack_from("<q", claims, _EXPIRES_AT)[0])
    except (ValueError, struct.error):
        return time.time_ns()
