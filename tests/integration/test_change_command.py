# SPDX-License-Identifier: Apache-2.0
"""`forebay change`, and what `forebay create` says of a reservation that exists already."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from tests.support.instance import CommandLineInstance
from tests.support.other_user import as_user

pytestmark = pytest.mark.instance

OWNER = 64321
STRANGER = 64324


@pytest.fixture(scope="module")
def instance() -> Iterator[CommandLineInstance]:
    """An instance whose manager other users reach."""
    with tempfile.TemporaryDirectory(prefix="change-") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "root").mkdir(mode=0o711)
        with CommandLineInstance(Path(folder) / "root", capacity="256MiB") as running:
            yield running


def advised_command(error: str) -> list[str]:
    """The words of the command between backquotes."""
    _, command, _ = error.split("`")
    words = shlex.split(command)
    assert words[0] == "forebay"
    return words[1:]


def test_create_of_the_same_succeeds_again(instance: CommandLineInstance) -> None:
    """Sizes that are rounded to the same are the same."""
    first = instance.ask("create", "same", "--capacity", "16MiB", "--files", "1500KiB")["reservation"]
    again = instance.ask("create", "same", "--capacity", "16MiB", "--files", "1500KiB")["reservation"]
    assert first["id"] == again["id"]


def test_create_of_another_says_what_differs_and_the_command_does_it(instance: CommandLineInstance) -> None:
    """What the message advises is run, and then the same `create` succeeds."""
    instance.ask("create", "grown", "--capacity", "16MiB")
    line = ("create", "grown", "--capacity", "16MiB", "--files", "3MiB", "--persistent")
    done = instance.run(*line)
    assert done.returncode == 1
    assert "it is not persistent; it has 0 B for files, not 3 MiB" in done.stderr
    assert instance.run(*advised_command(done.stderr)).returncode == 0
    info = instance.ask(*line)["reservation"]
    assert (info["lifetime"], info["files_bytes"]) == ("persistent", 3 << 20)
    done = instance.run("create", "grown", "--capacity", "16MiB")
    assert instance.run(*advised_command(done.stderr)).returncode == 0
    info = instance.ask("create", "grown", "--capacity", "16MiB")["reservation"]
    assert (info["lifetime"], info["files_bytes"]) == ("job", 0)


def test_create_says_what_cannot_be_changed(instance: CommandLineInstance) -> None:
    """Both kinds of differences at once, each told."""
    instance.ask("create", "fixed", "--capacity", "16MiB")
    done = instance.run("create", "fixed", "--capacity", "32MiB", "--persistent")
    assert "it has 16 MiB for streams, not 32 MiB" in done.stderr
    assert "destroy it first, or choose another name" in done.stderr
    assert "`forebay change fixed --persistent` changes the rest" in done.stderr
    done = instance.run("create", "fixed", "--capacity", "32MiB")
    assert "forebay change" not in done.stderr


def test_change_says_what_is_there_now(instance: CommandLineInstance) -> None:
    """Idempotent, also for a program."""
    instance.ask("create", "told", "--capacity", "16MiB")
    for _ in range(2):
        done = instance.run("change", "told", "--persistent", "--files", "2MiB")
        assert done.stdout == "told: 16 MiB for streams, 2 MiB for files, kept until it is destroyed\n"
    assert instance.ask("change", "told", "--not-persistent")["reservation"]["lifetime"] == "job"
    with ManagerClient(instance.files) as manager:
        (row,) = [row for row in manager.reservations() if row.name == "told"]
    assert (row.persistent, row.files_bytes) == (False, 2 << 20)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("change", "told"), "say what to change"),
        (("change", "tolt", "--persistent"), "did you mean told?"),
        (("change", "told", "--files", "1TiB"), "the whole pool default has 256 MiB"),
        (("change", "told", "--files", "2G"), "2GiB"),
        (("change", "told/flow", "--persistent"), "not a reservation"),
    ],
)
def test_a_change_that_cannot_be_is_told(instance: CommandLineInstance, arguments: tuple[str, ...], told: str) -> None:
    instance.ask("create", "told", "--capacity", "16MiB", "--files", "2MiB")
    done = instance.run(*arguments)
    assert done.returncode == 1
    assert told in done.stderr


def test_what_became_persistent_outlives_the_instance(tmp_path: Path) -> None:
    """And what became otherwise does not."""
    running = CommandLineInstance(tmp_path / "root")
    running.up()
    running.ask("create", "kept", "--capacity", "16MiB")
    running.ask("create", "gone", "--capacity", "16MiB", "--persistent")
    running.ask("change", "kept", "--persistent")
    running.ask("change", "gone", "--not-persistent")
    # A manager that is killed just after the server changed it learns it from there.
    with forebay.Admin(running.root) as admin:
        admin.change("kept", files="1MiB")
    running.kill_manager()
    running.up()
    with running.manager() as manager:
        assert {row.name: row.files_bytes for row in manager.reservations()} == {"gone": 0, "kept": 1 << 20}
    assert running.ask("down")["destroyed"] == ["gone"]
    running.up()
    with forebay.Admin(running.root) as admin:
        assert [(info.name, info.files_bytes) for info in admin.reservations()] == [("kept", 1 << 20)]
    assert running.run("down", "--force").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_only_the_owner_changes_it(instance: CommandLineInstance) -> None:
    """Not who may write there. A name that another has taken is told as such, without what it has."""
    files = Instance(instance.root)

    def create(capacity: str) -> object:
        with ManagerClient(files) as manager:
            return manager.create("theirs", capacity, persistent=False)

    def change() -> object:
        with ManagerClient(files) as manager:
            return manager.change("theirs", persistent=True).lifetime

    as_user(OWNER, lambda: create("16MiB"))
    with forebay.Admin(instance.root) as admin:
        admin.share("theirs", "write", user=STRANGER)
    with pytest.raises(forebay.PermissionDeniedError, match="belongs to user"):
        as_user(STRANGER, change)
    with pytest.raises(forebay.AlreadyExistsError, match="taken by a reservation of another user") as caught:
        as_user(STRANGER, lambda: create("32MiB"))
    assert "MiB" not in caught.value.what
    assert as_user(OWNER, change) == "persistent"
