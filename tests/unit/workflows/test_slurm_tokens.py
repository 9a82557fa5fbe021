# SPDX-License-Identifier: Apache-2.0
"""Tokens of Slurm's jobs: when one is made, renewed and void."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay.errors import InvalidArgumentError, PermissionDeniedError
from forebay.manager.records import JobRow, JobState
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.slurm.job_tokens import JobTokens
from forebay.workflows.slurm.settings import SlurmSettings


class Link:
    """The home of all reservations: it remembers which tokens were revoked, and does not know the token "unknown"."""

    def __init__(self) -> None:
        self.revoked: list[str] = []
        self.address = ""  #: "": it is the manager's own server

    def home_of(self, _name: str) -> Link:
        return self

    def address_of(self, _name: str) -> str:
        return self.address

    @contextlib.contextmanager
    def admin(self) -> Iterator[Any]:
        yield SimpleNamespace(revoke_token=self._revoke)

    def _revoke(self, token: str) -> None:
        if token == "unknown":
            raise PermissionDeniedError("not this server's")
        self.revoked.append(token)


class Tokens(JobTokens):
    """Tokens that are made without a server, for an hour."""

    def _made_for_user(self, job: JobRow, reservation: str) -> str:
        claims = bytearray(112)
        struct.pack_into("<q", claims, 24, time.time_ns() + 3600 * 10**9)
        claims[40:] = os.urandom(72)
        return "forebay-token-1." + base64.urlsafe_b64encode(claims).decode().rstrip("=")


def row(state: JobState = JobState.RUNNING) -> JobRow:
    """Job 17."""
    return JobRow(
        1, "17", 1, state, os.geteuid(), os.getegid(), 1, "job17", {}, {}, "", 0, 0, quiet=False, node_count=1
    )


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def tokens(tmp_path: Path, link: Link) -> Tokens:
    settings = SlurmSettings(server="node7:7460", token_days=3600 / 86400)
    return Tokens(tmp_path, settings, cast(Reservations, link))


def test_a_token_lies_in_a_file_that_only_its_user_may_read(tokens: Tokens, tmp_path: Path) -> None:
    tokens.make(row(), "job17")
    variables = tokens.variables(row(), "job17")
    file = Path(variables["FOREBAY_TOKEN_FILE"])
    assert variables == {"FOREBAY_SERVER": "node7:7460", "FOREBAY_TOKEN_FILE": str(tmp_path / "slurm/tokens/17")}
    assert file.read_text().startswith("forebay-token-1.")
    # Root's file has a list, whose mask stands where the group's bits are.
    assert stat.S_IMODE(file.stat().st_mode) in (0o600, 0o640)
    assert stat.S_IMODE(file.with_name("17.1.made").stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o711


def test_on_another_server_its_programs_connect_there(tokens: Tokens, link: Link) -> None:
    link.address = "node8:7460"
    tokens.make(row(), "job17")
    assert tokens.variables(row(), "job17")["FOREBAY_SERVER"] == "node8:7460"


def test_a_job_without_streams_of_its_own_gets_none(tokens: Tokens, tmp_path: Path) -> None:
    tokens.make(row(), "")
    assert tokens.variables(row(), "") == {}
    assert not tokens.renew(row(), "", time.time_ns())
    assert list(tmp_path.iterdir()) == []


def test_it_is_renewed_when_half_of_its_time_is_over(tokens: Tokens) -> None:
    tokens.make(row(), "job17")
    file = Path(tokens.variables(row(), "job17")["FOREBAY_TOKEN_FILE"])
    first = file.read_text()
    assert not tokens.renew(row(), "job17", time.time_ns() + 1700 * 10**9)
    assert file.read_text() == first
    later = time.time_ns() + 1900 * 10**9
    assert not tokens.renew(row(JobState.DATA_OUT), "job17", later)
    assert tokens.renew(row(), "job17", later)
    assert file.read_text() != first


def test_all_that_were_made_are_revoked(tokens: Tokens, link: Link) -> None:
    tokens.make(row(), "mesh")
    file = Path(tokens.variables(row(), "mesh")["FOREBAY_TOKEN_FILE"])
    made = [file.read_text().strip()]
    tokens.make(row(), "mesh")
    made.append(file.read_text().strip())
    list_of_all = file.with_name("17.1.made")
    list_of_all.write_text("unknown\n" + list_of_all.read_text())
    for _ in range(2):
        tokens.void(row(), "mesh")
        assert link.revoked == made
        assert list(file.parent.iterdir()) == []


def test_with_the_reservation_nothing_is_left_to_revoke(tokens: Tokens, link: Link) -> None:
    tokens.make(row(), "job17")
    file = Path(tokens.variables(row(), "job17")["FOREBAY_TOKEN_FILE"])
    tokens.void(row(), "")
    assert link.revoked == []
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"server": "node7"}, {"token_days": 0.0}, {"token_days": 400.0}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        SlurmSettings.from_configuration({"slurm": wrong}, Path("forebay.toml"))
