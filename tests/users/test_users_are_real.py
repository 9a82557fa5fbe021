# SPDX-License-Identifier: Apache-2.0
"""What the rest of this suite is built on: users are distinct for the kernel, the server and the manager."""

from __future__ import annotations

import json
import os
import pwd

import forebay
from tests.fault.instance import Instance
from tests.support.instance import CommandLineInstance
from tests.support.users import FIRST_ID, Users
from tests.users.conftest import AsUser


def test_a_program_runs_as_its_user_without_roots_groups(users: Users, as_user: AsUser) -> None:
    ada, bob, team = users("ada"), users("bob"), users.number()
    assert len({ada.uid, bob.uid, team, 0}) == 4
    assert min(ada.uid, bob.uid, team) >= FIRST_ID
    for user in (ada, bob):
        status = dict(line.split(":", 1) for line in as_user(user, ["cat", "/proc/self/status"]).stdout.splitlines())
        # Real, effective, saved and of the file system.
        assert status["Uid"].split() == [str(user.uid)] * 4
        assert status["Gid"].split() == [str(user.uid)] * 4
        assert status["Groups"].split() == []
        assert int(status["CapEff"], 16) == 0
        assert pwd.getpwuid(user.uid).pw_dir == str(user.home)
    assert as_user(ada, ["id", "-G"], groups=[team]).stdout.split() == [str(ada.gid), str(team)]
    nobody_known = users.number()
    assert as_user(nobody_known, ["id", "-u"]).stdout.split() == [str(nobody_known)]


def test_a_home_is_closed_to_others_and_the_environment_is_the_users(users: Users, as_user: AsUser) -> None:
    ada, bob = users("ada"), users("bob")
    assert as_user(ada, ["sh", "-c", "umask 022; echo secret > private; pwd"]).stdout.strip() == str(ada.home)
    refused = as_user(bob, ["cat", ada.home / "private"])
    assert refused.returncode != 0
    assert "Permission denied" in refused.stderr
    known = dict(line.split("=", 1) for line in as_user(ada, ["env"]).stdout.splitlines())
    assert known["HOME"] == str(ada.home)
    assert known["USER"] == ada.name
    assert set(known) - set(ada.environment) <= {"PWD", "SHLVL", "_"}


def test_what_a_user_started_and_the_account_end_with_the_test(users: Users) -> None:
    ada = users("ada")
    left = ada.start(["sleep", "infinity"])
    users.__exit__()
    assert left.wait(10) == -9
    assert ada.uid not in {entry.pw_uid for entry in pwd.getpwall()}


def test_the_server_sees_who_asks(users: Users, server: Instance) -> None:
    ada, bob = users("ada"), users("bob")
    for user in (ada, bob):
        server.create(user.name, "16MiB", owner_uid=user.uid, owner_gid=user.gid)
    socket = server.socket()

    def names() -> list[str]:
        with forebay.Admin(socket) as admin:
            return [found.name for found in admin.reservations()]

    assert ada.call(names) == [ada.name]
    assert bob.call(names) == [bob.name]
    assert users("eve").call(names) == []
    # Root of another process, as the server itself.
    assert sorted(names()) == sorted([ada.name, bob.name])
    assert os.geteuid() == 0


def test_the_manager_sees_who_asks(
    users: Users, instance: CommandLineInstance, as_user: AsUser, forebay_command: list[str]
) -> None:
    ada, bob = users("ada"), users("bob")
    for user, name in ((ada, "adas"), (bob, "bobs")):
        made = as_user(user, [*forebay_command, "create", name, "--capacity", "16MiB", "--json"])
        assert made.returncode == 0, made.stderr
        assert json.loads(made.stdout)["reservation"]["owner_uid"] == user.uid
    # The answer is that for a reservation that does not exist, and nothing happens.
    answers = [as_user(ada, [*forebay_command, "destroy", name, "--force"]) for name in ("bobs", "nobodys")]
    assert answers[0].returncode == answers[1].returncode
    assert answers[0].stdout.replace("bobs", "nobodys") == answers[1].stdout
    for user, name in ((ada, "adas"), (bob, "bobs")):
        listed = as_user(user, [*forebay_command, "ls", "--json"])
        assert [found["name"] for found in json.loads(listed.stdout)["reservations"]] == [name]
