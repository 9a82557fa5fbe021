# SPDX-License-Identifier: Apache-2.0
"""`forebay share`, `create --share`, how `ls` and `show` tell of it, and whose reservations an instance takes."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from tests.support.instance import CommandLineInstance
from tests.support.other_user import as_user, python_of, python_path
from tests.support.time_limits import seconds

pytestmark = pytest.mark.instance

OWNER = 64321
STRANGER = 64324


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineInstance]:
    """An instance of the tests' own user."""
    with CommandLineInstance(tmp_path_factory.mktemp("sharing") / "root") as running:
        running.ask("create", "given", "--capacity", "16MiB")
        yield running


def test_a_share_is_given_told_and_taken(instance: CommandLineInstance) -> None:
    """By name and by number; twice is once."""
    for _ in range(2):
        info = instance.ask("share", "given", "--group", "64400", "--rights", "read")["reservation"]
        assert info["shares"] == [{"kind": "group", "id": 64400, "rights": "read"}]
    info = instance.ask("share", "given", "--user", "nobody", "--rights", "write")["reservation"]
    assert {"kind": "user", "id": 65534, "rights": "write"} in info["shares"]
    assert instance.ask("show", "given")["reservation"]["shares"] == info["shares"]
    for command in (("ls", "-l"), ("show", "given")):
        assert "user nobody write, group 64400 read" in instance.run(*command).stdout
    info = instance.ask("share", "given", "--user", "nobody", "--rights", "none")["reservation"]
    assert {"kind": "user", "id": 65534, "rights": "none"} in info["shares"]


def test_create_shares_as_well(instance: CommandLineInstance) -> None:
    """The shorthand; repeated, it changes nothing."""
    for _ in range(2):
        info = instance.ask(
            "create", "born", "--capacity", "16MiB", "--share", "group:64400=read", "--share", "user:nobody=write"
        )["reservation"]
        assert [(share["kind"], share["rights"]) for share in info["shares"]] == [("user", "write"), ("group", "read")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("share", "given", "--rights", "read"), "--user USER or --group GROUP"),
        (("share", "given", "--user", "no-such-user", "--rights", "read"), "there is no user 'no-such-user'"),
        (("share", "given", "--user", "9" * 5000, "--rights", "read"), "there is no user '999"),
        (("share", "given", "--user", "0", "--rights", "read"), "owns the reservation"),
        (("share", "missing", "--user", "1", "--rights", "read"), "no such reservation"),
        (("create", "never", "--capacity", "16MiB", "--share", "climate"), "expected group:NAME=read"),
    ],
)
def test_a_mistake_is_told(instance: CommandLineInstance, arguments: tuple[str, ...], told: str) -> None:
    if "0" in arguments and os.geteuid() != 0:
        pytest.skip("the owner of the test's reservation is not root")
    done = instance.run(*arguments)
    assert done.returncode != 0
    assert told in done.stderr
    with forebay.Admin(instance.root) as admin:
        assert "never" not in {info.name for info in admin.reservations()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_a_private_instance_takes_strangers_only_when_told() -> None:
    """The stranger then has files/, too, which the server cannot give away."""
    python = python_of(OWNER)
    if python is None:
        pytest.skip("other users can start no Python of this version, or not read its packages")
    with tempfile.TemporaryDirectory(prefix="private-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"
        home.mkdir(mode=0o711)
        os.chown(home, OWNER, OWNER)
        running = CommandLineInstance(home / "root", python=python)

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            environment = {
                **os.environ,
                **running.environment,
                "PYTHONPATH": python_path(),
                "XDG_RUNTIME_DIR": "",
                "HOME": str(home),
            }
            return subprocess.run(
                running.command(*arguments),
                env=environment,
                user=OWNER,
                group=OWNER,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds(120),
            )

        def create() -> Any:
            with ManagerClient(Instance(running.root)) as manager:
                return manager.create("guest", "16MiB", files="1MiB", persistent=False)

        try:
            assert (done := run("up", "--capacity", "64MiB")).returncode == 0, done.stderr
            with pytest.raises(forebay.PermissionDeniedError, match="up --shared"):
                as_user(STRANGER, create)
            done = run("up", "--shared")
            assert done.returncode != 0
            assert "forebay down" in done.stderr
            assert run("down").returncode == 0
            assert (done := run("up", "--shared")).returncode == 0, done.stderr
            files = Path(as_user(STRANGER, create).files_path)

            def write() -> str:
                (files / "data").write_text("theirs")
                return (files / "data").read_text()

            assert as_user(STRANGER, write) == "theirs"
        finally:
            assert run("down", "--force").returncode == 0
