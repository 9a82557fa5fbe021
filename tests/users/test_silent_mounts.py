# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system whose program never answers stands where Forebay looks: whoever asks it waits, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import forebay
from tests.support.instance import CommandLineInstance
from tests.support.mounted import silent_mount
from tests.support.users import User, Users
from tests.users.conftest import AsUser

#: More than one user's share of the stages that run at once.
MANY = 12


class Staging:
    """Ada has the reservation `adas`, Bob has `bobs`; both stage by the command line."""

    def __init__(
        self, ada: User, bob: User, as_user: AsUser, command: list[str], instance: CommandLineInstance
    ) -> None:
        self.ada, self.bob, self.instance = ada, bob, instance
        self._as_user, self._command = as_user, command

    def run(self, user: User, *arguments: object) -> str:
        done = self._as_user(user, [*self._command, *map(str, arguments)])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin(self, user: User, *arguments: object) -> int:
        """The number of a stage that is not waited for."""
        return int(json.loads(self.run(user, *arguments, "--no-wait", "--json"))["stage"]["id"])

    def wait_for(self, number: int, *states: str) -> None:
        with self.instance.manager() as manager:
            row = manager.stage(number)
            while row.state not in states:
                row = manager.stage(number, seen=row.version, wait_seconds=10)


@pytest.fixture
def staging(users: Users, instance: CommandLineInstance, as_user: AsUser, forebay_command: list[str]) -> Staging:
    made = Staging(users("ada"), users("bob"), as_user, forebay_command, instance)
    for user, name in ((made.ada, "adas"), (made.bob, "bobs")):
        made.run(user, "create", name, "--capacity", "16MiB", "--files", "4MiB", "--persistent")
        as_user(user, ["sh", "-c", "mkdir silent in && echo content > in/file"])
    return made


@pytest.mark.parametrize("end", ["source", "destination"])
def test_stages_that_wait_for_it_hold_up_their_user_alone(staging: Staging, end: str) -> None:
    silent, bob = staging.ada.home / "silent", staging.bob.home
    with silent_mount(silent):
        if end == "source":
            waiting = [staging.begin(staging.ada, "stage-in", silent, f"adas:{number}") for number in range(MANY)]
        else:
            staging.run(staging.ada, "stage-in", staging.ada.home / "in", "adas:in")
            waiting = [
                staging.begin(staging.ada, "stage-out", "adas:in", silent / str(number)) for number in range(MANY)
            ]
        staging.wait_for(waiting[0], "running")
        staging.run(staging.bob, "stage-in", bob / "in", "bobs:in")
        staging.run(staging.bob, "stage-out", "bobs:in", bob / "out")
        assert (bob / "out" / "file").read_text() == "content\n"
        with staging.instance.manager() as manager:
            for number in waiting:
                manager.cancel(number)
        for number in waiting:
            staging.wait_for(number, "cancelled")


def test_it_is_named_and_left_alone_in_files(staging: Staging, place: Path) -> None:
    """By shares, by `doctor`, by a stage-out of all files, and by the removal of the reservation."""
    staging.run(staging.ada, "stage-in", staging.ada.home / "in", "adas:in")
    with forebay.Admin((place / "root" / "endpoint").read_text().strip()) as admin:
        files = Path(admin.reservation("adas").files_path)
    (files / "silent").mkdir()
    with silent_mount(files / "silent"):
        told = staging.run(staging.ada, "share", "adas", "--user", staging.bob.name, "--rights", "write")
        assert "files/silent (another file system is mounted there)" in told
        staging.run(staging.ada, "show", "adas")
        found = json.loads(staging.instance.run("doctor", "--json").stdout)["findings"]
        assert any("files/silent" in finding["what"] for finding in found)
        staging.begin(staging.ada, "stage-out", "adas:", staging.ada.home / "all")
        staging.run(staging.ada, "share", "adas", "--user", staging.bob.name, "--rights", "none")
        staging.run(staging.ada, "destroy", "adas", "--force")
        # Others' requests are answered meanwhile.
        staging.run(staging.bob, "create", "more", "--capacity", "16MiB", "--files", "4MiB")
    staging.run(staging.bob, "destroy", "more")
