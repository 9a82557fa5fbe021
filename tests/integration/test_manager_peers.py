# SPDX-License-Identifier: Apache-2.0
"""Whose reservations and stages are whose: the manager knows its callers by the kernel's word. Needs root."""

from __future__ import annotations

import contextlib
import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.manager.jobs import FilesJob, StepsJob
from forebay.manager.records import Destruction, StageRow
from tests.support.instance import CommandLineInstance
from tests.support.other_user import as_user, python_of, python_path

pytestmark = [
    pytest.mark.instance,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
]

USER = "nobody"


@pytest.fixture(scope="module")
def instance() -> Iterator[CommandLineInstance]:
    """An instance that others can reach, with a reservation of root's. Its Python is one that they can start."""
    with (
        # Not below pytest's folders, which it closes to others whenever another run begins.
        tempfile.TemporaryDirectory(prefix="peers-") as folder,
        pytest.MonkeyPatch.context() as environment,
        contextlib.ExitStack() as stack,
    ):
        running = CommandLineInstance(Path(folder) / "root", python=python_of(pwd.getpwnam(USER).pw_uid))
        running.environment["PYTHONPATH"] = python_path()
        stack.enter_context(running)
        Path(folder).chmod(0o755)
        environment.setenv("FOREBAY_ROOT", str(running.root))
        running.ask("create", "roots", "--capacity", "32MiB")
        yield running


def ask(instance: CommandLineInstance, method: str, *arguments: Any, **options: Any) -> Any:
    """As the other user, what the manager answers or the code of its refusal."""

    def call() -> Any:
        with ManagerClient(Instance(instance.root)) as manager:
            return getattr(manager, method)(*arguments, **options)

    try:
        return as_user(pwd.getpwnam(USER).pw_uid, call)
    except forebay.ForebayError as error:
        return error.code.value


def test_only_administrators_drain_the_server(instance: CommandLineInstance) -> None:
    assert ask(instance, "drain", "mine alone") == "permission_denied"
    assert ask(instance, "undrain") == "permission_denied"
    assert ask(instance, "servers")[0].drained is None


def test_what_belongs_to_another_user_is_refused(instance: CommandLineInstance, tmp_path: Path) -> None:
    number = instance.ask("stage-in", "/etc/hostname", "roots:file", "--no-wait")["stage"]["id"]
    for force in (False, True):
        assert ask(instance, "destroy", "roots", force=force) == Destruction("roots", existed=False, near=())
    assert ask(instance, "stage", number) == "not_found"
    assert ask(instance, "cancel", number) == "not_found"
    assert ask(instance, "shut_down", force=True) == "permission_denied"
    assert ask(instance, "stages") == []
    assert ask(instance, "findings") == []
    assert instance.ask("show", "roots")["reservation"]["name"] == "roots"


def test_answers_do_not_tell_whether_another_users_reservation_exists(instance: CommandLineInstance) -> None:
    """Where the asker has no right to see it: the same answer, word by word, as for one that there is not."""
    instance.ask("create", "hidden", "--capacity", "16MiB", "--persistent")
    uid = pwd.getpwnam(USER).pw_uid

    def told(name: str) -> list[str]:
        def call() -> list[str]:
            answers = []
            with ManagerClient(Instance(instance.root)) as manager:
                for request in (
                    lambda: manager.destroy(name, force=True),
                    lambda: manager.change(name, persistent=True),
                    lambda: manager.attach(name, "me", ttl_seconds=60),
                    lambda: manager.detach(name, "me"),
                    lambda: manager.why(name),
                    lambda: manager.leave_queue(name),
                ):
                    try:
                        answers.append(str(request()))
                    except forebay.ForebayError as error:
                        answers.append(f"{error.code}: {error.what} ({error.where})")
            return answers

        return [answer.replace(name, "NAME") for answer in as_user(uid, call)]

    assert told("hidden") == told("hiding")
    # Who may read it is told whose it is.
    instance.ask("share", "hidden", "--group", str(uid), "--rights", "read")
    shared = told("hidden")
    assert "belongs to user 0" in shared[0]
    assert "belongs to user 0" in shared[1]
    instance.ask("destroy", "hidden")


def test_who_may_read_a_reservation_attaches_to_it(instance: CommandLineInstance) -> None:
    instance.ask("create", "shared", "--capacity", "16MiB", "--persistent")
    account = pwd.getpwnam(USER)
    assert ask(instance, "attach", "shared", "analysis") == "not_found"
    assert ask(instance, "attach", "missing", "analysis") == "not_found"
    instance.ask("share", "shared", "--group", str(account.pw_uid), "--rights", "read")  # as_user's only group
    assert ask(instance, "attach", "shared", "analysis").owner_uid == account.pw_uid
    refused = instance.run("destroy", "shared")
    assert "in use by analysis" in refused.stderr
    assert ask(instance, "detach", "shared", "analysis") is True
    # A share of one's own counts alone.
    instance.ask("share", "shared", "--user", USER, "--rights", "none")
    assert ask(instance, "attach", "shared", "analysis") == "not_found"
    instance.ask("destroy", "shared")


def test_a_user_has_reservations_of_their_own(instance: CommandLineInstance) -> None:
    info = ask(instance, "create", "theirs", "16MiB", persistent=False)
    assert info.owner_uid == pwd.getpwnam(USER).pw_uid
    # Nobody takes a name over.
    assert ask(instance, "create", "roots", "32MiB", persistent=False) in (
        "already_exists",
        "permission_denied",
    )
    assert ask(instance, "destroy", "theirs", force=False).existed is True
    # Names of others are not given away.
    assert ask(instance, "destroy", "root", force=False) == Destruction("root", existed=False, near=())
    with forebay.Admin() as admin, pytest.raises(forebay.NotFoundError):
        admin.reservation("theirs")


def test_a_stage_runs_as_the_user_who_asked(instance: CommandLineInstance, tmp_path: Path) -> None:
    if python_of(pwd.getpwnam(USER).pw_uid) is None:
        pytest.skip(f"{USER} can start no Python of this version, or not read its packages")
    ask(instance, "create", "mine", "16MiB", persistent=False)
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    number = ask(instance, "submit", FilesJob("mine", "secret", str(secret), inward=True)).id
    row = _when_over(instance, number)
    assert row.failure is not None
    assert row.failure["code"] == "permission_denied"
    number = ask(instance, "submit", StepsJob("roots/flow", str(tmp_path / "out"))).id
    row = _when_over(instance, number)
    assert row.failure is not None
    assert row.failure["code"] == "permission_denied"
    number = ask(instance, "submit", FilesJob("mine", "hostname", "/etc/hostname", inward=True)).id
    assert _when_over(instance, number).state == "succeeded"
    files = Path(instance.ask("show", "mine")["reservation"]["files_path"])
    assert (files / "hostname").stat().st_uid == pwd.getpwnam(USER).pw_uid


def _when_over(instance: CommandLineInstance, number: int) -> StageRow:
    with instance.manager() as manager:
        seen = -1
        while True:
            row = manager.stage(number, seen=seen, wait_seconds=10)
            if row.finished_ns is not None:
                return row
            seen = row.version
