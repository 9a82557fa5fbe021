# SPDX-License-Identifier: Apache-2.0
"""Other users: refused for everything, unless they are in the reservation's group."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import forebay
from tests.fault.instance import Instance
from tests.support.load import LoadProcess, load_generator
from tests.support.other_user import as_user, folder_for_all

STRANGER = 65534
MEMBERS = 64321

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


def told(action: Callable[[], object], *, groups: Sequence[int] = ()) -> str:
    """What the stranger is told: what the action returns, or raises."""
    try:
        return json.dumps(as_user(STRANGER, action, groups=groups), default=str)
    except forebay.ForebayError as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Instance]:
    """Reservation "r" of root, and "team" of root and the group, each with the stream "flow" of three steps."""
    with folder_for_all("shared") as folder, Instance(folder / "root") as instance:
        instance.create("r", "64MiB")
        instance.create("team", "64MiB", owner_uid=0, owner_gid=MEMBERS)
        for reservation in ("r", "team"):
            (writer,) = instance.group(f"{reservation}/flow", 1, steps=3)
            writer.succeed()
        yield instance


@pytest.fixture
def program() -> Path:
    """Skips where other users cannot run the load generator."""
    path = load_generator().resolve()
    if any(not parent.stat().st_mode & 0o001 for parent in (path, *path.parents)):
        pytest.skip(f"{path} cannot be run by other users")
    return path


ACTIONS: dict[str, Callable[[forebay.Admin, str], object]] = {
    "reservation": lambda admin, name: admin.reservation(name),
    "streams": lambda admin, name: admin.streams(name),
    "stream": lambda admin, name: admin.stream(f"{name}/flow"),
    "steps": lambda admin, name: admin.steps(f"{name}/flow"),
    "remove_stream": lambda admin, name: admin.remove_stream(f"{name}/flow", force=True),
    "remove_consumer": lambda admin, name: admin.remove_consumer(f"{name}/flow", "render"),
    "set_retention": lambda admin, name: admin.set_retention(f"{name}/flow", "last:1"),
    "mark_staged": lambda admin, name: admin.mark_staged(f"{name}/flow", 1, [0], "nowhere"),
    "set_precious": lambda admin, name: admin.set_precious(f"{name}/flow", [0]),
    "drop_steps": lambda admin, name: admin.drop_steps(f"{name}/flow", [0]),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_stranger_learns_and_changes_nothing(shared: Instance, action: str) -> None:
    """The answer is the same for what exists and for what does not."""
    socket = shared.socket()

    def attempt(name: str) -> str:
        def act() -> object:
            with forebay.Admin(socket) as admin:
                return ACTIONS[action](admin, name)

        return told(act)

    existing, missing = attempt("r"), attempt("nothing")
    assert existing.startswith("PermissionDeniedError: ")
    assert missing == existing.replace("reservation r", "reservation nothing")
    assert len(shared.steps("r/flow")) == 3


def test_a_stranger_neither_creates_destroys_nor_audits(shared: Instance) -> None:
    """What belongs to the server's own user, and to an owner."""
    socket = shared.socket()

    def attempt(action: Callable[[forebay.Admin], object]) -> str:
        def act() -> object:
            with forebay.Admin(socket) as admin:
                return action(admin)

        return told(act)

    assert attempt(lambda admin: admin.create("mine", "64MiB")).startswith("PermissionDeniedError")
    existing = attempt(lambda admin: admin.destroy("r", force=True))
    missing = attempt(lambda admin: admin.destroy("nothing", force=True))
    assert existing.startswith("PermissionDeniedError: ")
    assert missing == existing.replace("reservation r", "reservation nothing")
    assert attempt(lambda admin: admin.audit()).startswith("PermissionDeniedError")
    assert attempt(lambda admin: admin.reservations()) == "[]"
    with shared.admin() as admin:
        assert {found.name for found in admin.reservations()} == {"r", "team"}


def test_a_member_of_the_group_lists_but_does_not_destroy(shared: Instance) -> None:
    """The group may use the reservation; it stays its owner's."""
    socket = shared.socket()

    def attempt(action: Callable[[forebay.Admin], object]) -> str:
        def act() -> object:
            with forebay.Admin(socket) as admin:
                return action(admin)

        return told(act, groups=[MEMBERS])

    assert attempt(lambda admin: [found.name for found in admin.reservations()]) == '["team"]'
    assert attempt(lambda admin: len(admin.steps("team/flow"))) == "3"
    assert attempt(lambda admin: admin.destroy("team", force=True)).startswith("PermissionDeniedError")
    assert attempt(lambda admin: len(admin.steps("r/flow"))).startswith("PermissionDeniedError")


def load_as(instance: Instance, groups: list[int], *arguments: object) -> LoadProcess:
    """The load generator as the stranger, with these groups."""
    # The root may be closed to others, so that they are told where the socket is.
    environment = {**instance.environment, "FOREBAY_SOCKET": instance.socket()}
    return LoadProcess(*arguments, environment=environment, user=STRANGER, group=STRANGER, extra_groups=groups)


@pytest.mark.parametrize("command", ["write", "follow", "check"])
def test_a_stranger_neither_writes_nor_reads(shared: Instance, program: Path, command: str) -> None:
    """Nor does it learn whether the reservation is there."""
    heard = []
    for name in ("r", "nothing"):
        with load_as(shared, [], command, f"{name}/flow") as client:
            error = client.fail("permission_denied")
            assert error["where"] == f"reservation {name}"
            heard.append(error["what"])
    assert heard[0] == heard[1]
    assert len(shared.check("r/flow")) == 3


def test_a_member_of_the_group_writes_and_reads(shared: Instance, program: Path) -> None:
    """By a supplementary group, as sites do it."""
    with load_as(shared, [MEMBERS], "write", "team/flow", "--mode", "a", "--steps", "2") as client:
        client.succeed()
    with load_as(shared, [MEMBERS], "follow", "team/flow", "--start", "oldest", "--hold", "2") as client:
        client.succeed()
        assert len(client.named("step")) >= 5
    with load_as(shared, [MEMBERS], "write", "r/flow") as client:
        client.fail("permission_denied")
    assert shared.problems() == []
