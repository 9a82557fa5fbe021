# SPDX-License-Identifier: Apache-2.0
"""Stages of real users: what root does for them, and what their processes have."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import forebay
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.manager.jobs import FilesJob
from tests.support.instance import CommandLineInstance
from tests.support.processes import processes_where
from tests.support.users import Users
from tests.users.conftest import AsUser

# A stage that waits: it follows a stream that is not there yet.
FOLLOW = ("stage-out", "adas/later", "--follow", "--no-wait")


def test_a_stages_environment_is_made_for_its_user_and_its_process_is_closed_to_others_of_the_user(
    users: Users, instance: CommandLineInstance, as_user: AsUser, forebay_command: list[str], place: Path
) -> None:
    """With the environment of whoever ran `forebay up` came passwords of databases and keys."""
    instance.run("down", "--keep")
    instance.environment["DATABASE_PASSWORD"] = "of root"
    instance.run("up")
    ada = users("ada")
    assert as_user(ada, [*forebay_command, "create", "adas", "--capacity", "16MiB"]).returncode == 0
    asked = as_user(ada, [*forebay_command, *FOLLOW[:2], ada.home / "out", *FOLLOW[2:], "--json"])
    number = json.loads(asked.stdout)["stage"]["id"]
    with instance.manager() as manager:
        row = manager.stage(number)
        while not row.progress and not row.notes and row.state != "running":
            row = manager.stage(number, seen=row.version, wait_seconds=10)
    pid = process_of(ada.uid)
    variables = dict(
        entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry
    )
    assert "DATABASE_PASSWORD" not in variables
    assert (variables["HOME"], variables["USER"]) == (str(ada.home), ada.name)
    # Once it has taken its first steps, nobody of the user's own gets at it.
    script = f"while cat /proc/{pid}/environ > /dev/null 2>&1; do :; done; ls /proc/{pid}/fd"
    denied = as_user(ada, ["sh", "-c", script])
    assert "Permission denied" in denied.stderr
    assert os.getsid(pid) == pid
    # Memory that a stage uses up costs the stage, and not the daemons beside it.
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "500\n"
    assert as_user(ada, [*forebay_command, "stages", "cancel", str(number)]).returncode == 0


def process_of(uid: int) -> int:
    """The process of the user's stage."""
    found = processes_where(
        lambda process: (
            process.stat().st_uid in (uid, 0)
            and b"forebay.workflows.staging" in (process / "cmdline").read_bytes()
            and f"Uid:\t{uid}\t" in (process / "status").read_text()
        )
    )
    assert len(found) == 1
    return found[0]


def test_receipts_of_a_user_are_that_users_and_lie_where_only_root_looks(
    users: Users, instance: CommandLineInstance, as_user: AsUser, forebay_command: list[str], place: Path
) -> None:
    ada, bob = users("ada"), users("bob")
    assert as_user(ada, [*forebay_command, "create", "adas", "--capacity", "16MiB", "--files", "1MiB"]).returncode == 0
    as_user(ada, ["sh", "-c", "mkdir in && echo content > in/file"])
    done = as_user(ada, [*forebay_command, "stage-in", "in", "adas:in", "--receipt", "copy", "--json"])
    assert done.returncode == 0, done.stderr
    number = str(json.loads(done.stdout)["stage"]["id"])
    kept = place / "root" / "receipts" / str(ada.uid) / number
    assert (kept.stat().st_uid, kept.stat().st_mode & 0o777) == (0, 0o600)
    assert (ada.home / "copy").read_bytes() == kept.read_bytes()
    assert as_user(ada, ["ls", place / "root" / "receipts"]).returncode != 0
    assert "file" in as_user(ada, [*forebay_command, "receipt", "adas:in"]).stdout
    for what in (number, "adas:in"):
        refused = as_user(bob, [*forebay_command, "receipt", what])
        assert "there is no receipt" in refused.stderr
    assert as_user(bob, [*forebay_command, "receipt", number, "--remove"]).returncode == 0
    assert kept.exists()


def test_a_stranger_gets_no_memory_of_the_manager_and_no_traceback(
    users: Users, instance: CommandLineInstance, place: Path
) -> None:
    """By a body without end, by numbers of 23 digits, and by texts that are no UTF-8."""
    eve = users("eve")
    root = Instance(place / "root")
    path = root.manager_endpoint.read_text().strip()

    def body_without_end() -> tuple[int, str]:
        sent = 0
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"POST /stages HTTP/1.1\r\nhost: m\r\ntransfer-encoding: chunked\r\n\r\n")
            try:
                while sent < 1 << 30:
                    sent += connection.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
            except ConnectionError:
                pass
        return sent, ""

    def ask(*arguments: object, **options: object) -> str:
        try:
            with ManagerClient(root) as manager:
                return str(getattr(manager, str(arguments[0]))(*arguments[1:], **options))
        except forebay.ForebayError as error:
            return f"{error.code}: {error.what}"

    def no_request() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"no request\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")

    assert eve.call(body_without_end)[0] < 4 << 20
    eve.call(no_request)
    big = 99999999999999999999999
    for told in (
        eve.call(lambda: ask("stage", big)),
        eve.call(lambda: ask("cancel", big)),
        eve.call(lambda: ask("remove_receipt", big)),
        eve.call(lambda: ask("attach", "none", "me", ttl_seconds=1e300)),
        eve.call(lambda: ask("change", "none", files=big)),
        eve.call(lambda: ask("why", str(big))),
    ):
        assert told.startswith(("invalid_argument", "not_found")), told
    log = (place / "root" / "log" / "manager.log").read_text()
    assert "Traceback" not in log
    assert "Invalid HTTP request" not in log  # anybody could fill the disk with it


def test_many_small_stages_of_one_user_do_not_come_before_anothers_one(
    users: Users, instance: CommandLineInstance, as_user: AsUser, forebay_command: list[str], place: Path
) -> None:
    ada, bob = users("ada"), users("bob")
    root = Instance(place / "root")
    for user, name in ((ada, "adas"), (bob, "bobs")):
        assert (
            as_user(user, [*forebay_command, "create", name, "--capacity", "16MiB", "--files", "4MiB"]).returncode == 0
        )
        as_user(user, ["sh", "-c", "mkdir in && echo content > in/file"])

    def submit(source: Path, reservation: str, count: int) -> list[int]:
        with ManagerClient(root) as manager:
            jobs = (FilesJob(reservation, f"in{number}", str(source / "in"), inward=True) for number in range(count))
            return [int(manager.submit(job).id) for job in jobs]

    adas = ada.call(lambda: submit(ada.home, "adas", 40))
    (bobs,) = bob.call(lambda: submit(bob.home, "bobs", 1))
    with instance.manager() as manager:
        row = manager.stage(bobs)
        while row.state in ("queued", "running"):
            row = manager.stage(bobs, seen=row.version, wait_seconds=10)
        assert row.state == "succeeded", row
        assert manager.stage(adas[-1]).state == "queued"
        for number in adas:
            manager.cancel(number)


def test_names_of_others_move_no_cursor_in_roots_terminal(
    users: Users, instance: CommandLineInstance, as_user: AsUser, forebay_command: list[str]
) -> None:
    eve = users("eve")
    assert as_user(eve, [*forebay_command, "create", "eves", "--capacity", "16MiB", "--files", "1MiB"]).returncode == 0
    name = "in\x1b]0;root\x07\u202e"
    as_user(eve, ["sh", "-c", 'mkdir "$1" && echo content > "$1/$1"', "sh", name])
    done = as_user(eve, [*forebay_command, "stage-in", name, "eves:", "--json"])
    number = str(json.loads(done.stdout)["stage"]["id"])
    for command in (("receipt", number), ("stages",), ("stages", "show", number), ("why", number), ("doctor",)):
        told = instance.run(*command)
        assert "\x1b]" not in told.stdout + told.stderr, command
        assert "\u202e" not in told.stdout + told.stderr, command
    assert "\\x1b]0;root\\x07\\u202e" in instance.run("receipt", number).stdout


def test_the_logs_are_closed_to_others(
    users: Users, instance: CommandLineInstance, as_user: AsUser, place: Path
) -> None:
    eve, log = users("eve"), place / "root" / "log"
    assert log.stat().st_mode & 0o777 == 0o700
    for path in (log, log / "manager.log", log / "forebayd.log"):
        assert "Permission denied" in as_user(eve, ["cat", path]).stderr
    # Also one of an older Forebay, at the next `up`.
    instance.run("down", "--keep")
    log.chmod(0o755)
    instance.run("up")
    assert log.stat().st_mode & 0o777 == 0o700
