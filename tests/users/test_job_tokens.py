# SPDX-License-Identifier: Apache-2.0
"""Tokens of Slurm's jobs, which root makes for users: nothing of theirs runs for it, and what they may is looked up."""

from __future__ import annotations

import base64
import os
import struct
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay import Admin, PermissionDeniedError, Rights
from forebay.manager.records import JobRow, JobState
from forebay.workflows.manager.core.pools.server_link import ServerLink
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.slurm.job_tokens import JobTokens
from forebay.workflows.slurm.settings import SlurmSettings
from tests.fault.instance import Instance
from tests.support.users import User, Users


def job_of(user: User) -> JobRow:
    """A job of this user."""
    return JobRow(
        1, "17", 1, JobState.RUNNING, user.uid, user.gid, 1, "mesh", {}, {}, "", 0, 0, quiet=False, node_count=1
    )


def claims_of(token: str) -> tuple[int, int]:
    """User and rights (docs/formats/remote.md)."""
    encoded = token.strip().partition("-1.")[2]
    claims = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    return struct.unpack_from("<I", claims, 4)[0], struct.unpack_from("<I", claims, 40)[0]


def is_denied(call: Callable[[], object]) -> bool:
    """The system does not let this user do it."""
    try:
        call()
    except PermissionError:
        return True
    return False


def test_no_process_of_the_user_makes_a_jobs_token(
    users: Users, server: Instance, place: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, eve = users("ada"), users("bob"), users("eve")
    server.create("mesh", "64MiB", owner_uid=ada.uid, owner_gid=ada.gid)
    socket = server.socket()

    def starts(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started, whose user can read its environment, stop it and write its answer")

    link = ServerLink(lambda: Admin(socket))
    reservations = SimpleNamespace(home_of=lambda _: link, address_of=lambda _: "")
    tokens = JobTokens(place / "root", SlurmSettings(server="node7:7460"), cast(Reservations, reservations))
    with Admin(socket) as admin:
        admin.share("mesh", Rights.READ, user=bob.uid)
        for user, rights in ((ada, 3), (bob, 1)):
            with monkeypatch.context() as patched:
                patched.setattr(subprocess, "Popen", starts)
                tokens.make(job_of(user), "mesh")
            file = Path(tokens.variables(job_of(user), "mesh")["FOREBAY_TOKEN_FILE"])
            assert claims_of(user.call(file.read_text)) == (user.uid, rights)
            # The file is root's: the user could else fill the root's file system by it.
            assert user.call(partial(is_denied, partial(os.open, file, os.O_WRONLY)))
            assert user.call(partial(is_denied, partial(file.chmod, 0o600)))
            assert eve.call(partial(is_denied, file.read_text))
            # The client takes it for private; there is no server at this port.
            asked = user.run(
                [python, "-m", "forebay", "ping"], FOREBAY_SERVER="127.0.0.1:1", FOREBAY_TOKEN_FILE=str(file)
            )
            assert "others may read" not in asked.stderr
            assert "127.0.0.1:1" in asked.stderr
            tokens.void(job_of(user), "mesh")
        with pytest.raises(PermissionDeniedError):
            tokens.make(job_of(eve), "mesh")
    link.close()
