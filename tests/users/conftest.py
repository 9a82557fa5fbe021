# SPDX-License-Identifier: Apache-2.0
"""An instance that root runs, in a root of the test's own, and real users of the machine who work with it.

The rest of the suite is written against these fixtures: `users` makes a user, `as_user` runs a program as one,
`server` is a staging server alone, `instance` one with its manager, `place` a folder that all users may enter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.fault.instance import Instance
from tests.support.instance import CommandLineInstance
from tests.support.other_user import folder_for_all, python_of, python_path
from tests.support.users import FIRST_ID, User, Users, claimed_ids

#: Runs a program as a user of `users`, or as a user who has a number alone.
AsUser = Callable[..., CompletedProcess[str]]

_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root nothing here can run, and the report says so."""
    if os.geteuid() == 0:
        return
    for item in items:
        if _FOLDER in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="the suite users did not run: only root can act as other users"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all users may enter and nobody but root may list."""
    with folder_for_all("users") as path:
        yield path


@pytest.fixture
def common(place: Path) -> Path:
    """A folder outside of the instance, on the same file system, where everybody may make files and change names."""
    folder = place / "common"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python that every user can start and that finds forebay by `users`' environment."""
    found = python_of(FIRST_ID)
    if found is None:
        pytest.skip("no Python here can be started by other users with the packages of this one")
    return found


@pytest.fixture
def users(place: Path) -> Iterator[Users]:
    """Makes users: ``ada = users("ada")``; ``users.number()`` is an id of a group, or of somebody without an account.

    Each has an id that no other test has, its own group of the same number, an account and a home of mode 0700.
    What they still run at the end of the test is killed.
    """
    homes = place / "home"
    homes.mkdir()
    homes.chmod(0o711)
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "FOREBAY_ROOT": str(place / "root"),
        "PYTHONPATH": python_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }
    with claimed_ids() as ids, Users(ids, homes, environment) as made:
        yield made


@pytest.fixture
def as_user(users: Users) -> AsUser:
    """``as_user(ada, ["cmd"])``, or with a number for a user without an account; options as of `User.run`."""

    def run(user: User | int, command: Sequence[str | Path], **options: object) -> CompletedProcess[str]:
        who = user if isinstance(user, User) else users.without_account(user)
        return who.run(command, **options)  # type: ignore[arg-type]

    return run


@pytest.fixture
def forebay_command(python: Path) -> list[str]:
    """The beginning of a command line of `forebay` that a user can run: ``[*forebay_command, "ls"]``."""
    return [str(python), "-m", "forebay"]


@pytest.fixture
def server(place: Path, users: Users) -> Iterator[Instance]:
    """A staging server of root alone, in ``place/root``, without a manager: starts in a tenth of a second."""
    root = place / "root"
    root.mkdir(mode=0o711)
    with Instance(root, capacity="512MiB") as running:
        yield running


@pytest.fixture
def instance(place: Path, users: Users, python: Path) -> Iterator[CommandLineInstance]:
    """An instance of root with its manager, in ``place/root``, brought up by `forebay up`."""
    made = CommandLineInstance(place / "root", capacity="512MiB", python=python)
    made.environment["PYTHONPATH"] = python_path()
    with made as running:
        yield running
