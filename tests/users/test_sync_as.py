# SPDX-License-Identifier: Apache-2.0
"""The epilog's last look at a job's files, `forebay.workflows.files.sync_as`: with which groups it opens them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.time_limits import seconds
from tests.support.users import User, Users


def sync_as(user: User, place: Path) -> subprocess.CompletedProcess[str]:
    """What root of a node runs, who is in the group of root."""
    return subprocess.run(
        [sys.executable, "-m", "forebay.workflows.files.sync_as", place, str(user.uid), str(user.gid)],
        extra_groups=[0],
        capture_output=True,
        text=True,
        timeout=seconds(120),
        check=False,
    )


def test_files_that_only_a_group_may_enter_are_synced_as_a_member_of_it(users: Users, place: Path) -> None:
    team = users.number()
    ada, bob = users("ada", group=team), users("bob")
    shared = place / "shared"
    shared.mkdir(mode=0o700)
    os.chown(shared, bob.uid, team)
    shared.chmod(0o050)
    done = sync_as(ada, shared)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    stranger = sync_as(users("eve"), shared)
    assert (stranger.returncode, stranger.stdout) == (1, "it cannot be synced: Permission denied\n")


def test_the_groups_of_root_open_nothing_for_a_user(users: Users, place: Path) -> None:
    of_root = place / "of-root"
    of_root.mkdir(mode=0o700)
    os.chown(of_root, users.number(), 0)
    of_root.chmod(0o050)
    # Also not for somebody whom this node does not know.
    for user in (users("ada"), users.without_account(users.number())):
        assert sync_as(user, of_root).stdout == "it cannot be synced: Permission denied\n"
