# SPDX-License-Identifier: Apache-2.0
"""Another user exchanges names while a stage runs: through the manager 200 times, and against the mover itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.manager.client import follow_stage
from forebay.manager.jobs import FilesJob
from forebay.manager.records import StageStatus
from tests.support.exchanges import exchanging
from tests.support.instance import CommandLineInstance
from tests.support.moved_under_attack import (
    AttackedFolder,
    attacked_stage_in,
    attacked_stage_out_of_status,
    attacked_stage_out_of_what_becomes_a_link,
    attacked_tree,
)
from tests.support.randomness import times
from tests.support.users import User, Users
from tests.users.conftest import AsUser

Attack = Callable[[AttackedFolder, int], None]

ATTACKS: list[Attack] = [
    attacked_stage_in,
    attacked_stage_out_of_status,
    attacked_stage_out_of_what_becomes_a_link,
    attacked_tree,
]


@pytest.mark.parametrize("root_asks", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_exchanges_beside_the_mover_give_no_rights(
    users: Users,
    place: Path,
    attack: Attack,
    root_asks: bool,
) -> None:
    victim = 0 if root_asks else users("ada").uid
    attack(AttackedFolder(victim, users("mallory"), place), times(30))


class SharedReservation:
    """Ada's, in which mallory may write; root stages in and out of it."""

    def __init__(
        self, instance: CommandLineInstance, ada: User, mallory: User, outside: Path, command: list[str]
    ) -> None:
        self._instance = instance
        self.ada = ada
        self.mallory = mallory
        self.outside = outside
        outside.mkdir(mode=0o700)
        os.chown(outside, ada.uid, ada.gid)
        made = ada.run([*command, "create", "shared", "--capacity", "8MiB", "--files", "64MiB"])
        assert made.returncode == 0, made.stderr
        with forebay.Admin(instance.files) as admin:
            self.files = Path(admin.share("shared", "write", user=mallory.uid).files_path)

    def stage(self, path: str, outside: Path, *, inward: bool, count: int, **options: Any) -> list[StageStatus]:
        """How so many stages that root asks for ended; some run at once."""
        with self._instance.manager() as manager:
            numbers = [
                manager.submit(
                    FilesJob("shared", path, f"{outside}-{number}" if not inward else str(outside), inward, **options)
                ).id
                for number in range(count)
            ]
        return [follow_stage(self._instance.files, number) for number in numbers]


@pytest.fixture
def shared(instance: CommandLineInstance, users: Users, place: Path, forebay_command: list[str]) -> SharedReservation:
    return SharedReservation(instance, users("ada"), users("mallory"), place / "outside", forebay_command)


@pytest.mark.timeout(900)
def test_200_exchanges_through_the_manager_give_no_rights(shared: SharedReservation) -> None:
    """Root asks; the source is exchanged between content, status and a link to what only root may read."""
    program, content = shared.files / "program", shared.files / "content"
    links = shared.files / "links"

    def make() -> None:
        program.write_bytes(Path("/bin/true").read_bytes())
        program.chmod(0o4755)

    shared.ada.call(make)

    def pairs() -> list[tuple[Path, Path]]:
        if not content.exists():
            content.write_bytes(b"of mallory")
        if not os.path.lexists(links):
            links.symlink_to("/etc/shadow")
        return [(program, content), (content, links)]

    with exchanging(shared.mallory.uid, pairs) as attack:
        assert attack.next() == "ready"
        for ended in shared.stage("program", shared.outside / "copy", inward=False, count=times(200)):
            assert ended.state in ("succeeded", "failed")
    found = list(shared.outside.iterdir())
    assert found
    for path in found:
        status = path.lstat()
        if path.is_symlink():
            continue
        assert status.st_uid == shared.ada.uid
        assert status.st_mode & 0o6000 == 0
        assert b"root:" not in path.read_bytes()


def test_a_stage_that_root_asks_for_runs_as_the_owner(shared: SharedReservation, place: Path) -> None:
    """So it reaches what the owner reaches, and no more; and what it makes is the owner's."""
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    (closed / "private").write_text("of root")
    (ended,) = shared.stage("stolen", closed / "private", inward=True, count=1)
    assert ended.state == "failed"
    assert ended.failure is not None
    assert ended.failure["code"] == "permission_denied"
    source = shared.outside / "source"
    shared.ada.call(lambda: source.write_text("of ada") and None)
    (ended,) = shared.stage("data", source, inward=True, count=1)
    assert ended.state == "succeeded", ended
    assert (shared.files / "data").stat().st_uid == shared.ada.uid


def test_as_root_opens_the_outside_alone_with_roots_rights(shared: SharedReservation, place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    (closed / "tree").mkdir()
    (closed / "tree" / "private").write_text("of root")
    (ended,) = shared.stage("tree", closed / "tree", inward=True, count=1, as_root=True)
    assert ended.state == "succeeded", ended
    inside = shared.files / "tree" / "private"
    assert (inside.stat().st_uid, inside.read_text()) == (shared.ada.uid, "of root")
    (ended,) = shared.stage(
        "tree", closed / "back", inward=False, count=1, as_root=True, owner=shared.mallory.uid, group=shared.mallory.gid
    )
    assert ended.state == "succeeded", ended
    back = closed / "back-0" / "private"
    assert (back.stat().st_uid, back.stat().st_gid) == (shared.mallory.uid, shared.mallory.gid)
    # Inside it may only what the owner may.
    hidden = shared.files / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "x").write_text("of root, inside")
    (ended,) = shared.stage("hidden/x", closed / "never", inward=False, count=1, as_root=True)
    assert ended.state == "failed"
    assert ended.failure is not None
    assert ended.failure["code"] == "permission_denied"


def test_only_root_may_ask_for_roots_rights(
    shared: SharedReservation, forebay_command: list[str], as_user: AsUser
) -> None:
    asked = as_user(shared.ada, [*forebay_command, "stage-in", "/etc/shadow", "shared:shadow", "--as-root"])
    assert asked.returncode != 0
    assert "--as-root is root's" in asked.stderr
