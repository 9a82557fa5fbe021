# SPDX-License-Identifier: Apache-2.0
"""A reservation that is shared: what its readers and writers may do, and what ends when a right is taken away."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.mounted import mounted
from tests.support.other_user import Child, as_user
from tests.support.time_limits import seconds

OWNER = 64321
READER = 64322
WRITER = 64323
STRANGER = 64324
TEAM = 64400

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


def outcome(uid: int, action: Callable[[], Any], groups: tuple[int, ...] = ()) -> Any:
    """What the action returns as that user, or the code of its error."""
    try:
        return as_user(uid, action, groups=groups)
    except forebay.ForebayError as error:
        return error.code.value


def as_admin(socket: str, action: Callable[[forebay.Admin], Any]) -> Callable[[], Any]:
    """The action with a connection that is made where it runs."""

    def act() -> Any:
        with forebay.Admin(socket) as admin:
            return action(admin)

    return act


def write_steps(socket: str, count: int, name: str = "r/flow") -> Callable[[], None]:
    """Writes so many steps."""

    def act() -> None:
        with forebay.open(name, "a", instance=socket, timeout=seconds(10)) as stream:
            for number in range(count):
                with stream.step() as step:
                    step["n"] = number

    return act


def read_steps(socket: str, **options: Any) -> Callable[[], list[int]]:
    """The numbers of the steps that a follower is given."""

    def act() -> list[int]:
        with forebay.open("r/flow", instance=socket, timeout=seconds(10)) as stream:
            found = []
            for step in stream.follow(timeout=seconds(10), **options):
                found.append(step.number)
            return found

    return act


def generation_of_token(text: str) -> int:
    """The access generation that a token was made in (docs/formats/remote.md)."""
    bytes_of_it = base64.urlsafe_b64decode(text.strip().removeprefix("forebay-token-1.") + "==")
    (generation,) = struct.unpack_from("<Q", bytes_of_it, 16)
    return int(generation)


@pytest.fixture
def shared() -> Iterator[Instance]:
    """Reservation "r" of OWNER with three steps; READER may read, WRITER may write."""
    # Not below pytest's folders, which it closes to others whenever another run begins.
    with tempfile.TemporaryDirectory(prefix="sharing-") as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "root"
        root.mkdir(mode=0o711)
        with Instance(root) as instance:
            instance.create("r", "64MiB", files="16MiB", owner_uid=OWNER, owner_gid=OWNER)
            as_user(OWNER, write_steps(instance.socket(), 3))

            def give(admin: forebay.Admin) -> None:
                admin.share("r", "read", user=READER)
                admin.share("r", "write", user=WRITER)

            as_user(OWNER, as_admin(instance.socket(), give))
            yield instance


def test_who_may_read_reads_and_changes_nothing(shared: Instance) -> None:
    """Lists and reads; neither writes, removes, shares, destroys nor marks."""
    socket = shared.socket()
    assert outcome(READER, read_steps(socket, consumer="render")) == [0, 1, 2]
    assert outcome(READER, as_admin(socket, lambda admin: admin.reservation("r").name)) == "r"
    refused: list[Callable[[forebay.Admin], object]] = [
        lambda admin: admin.remove_stream("r/flow", force=True),
        lambda admin: admin.set_retention("r/flow", "last:1"),
        lambda admin: admin.mark_staged("r/flow", 1, [0], "nowhere"),
        lambda admin: admin.set_precious("r/flow", [0]),
        lambda admin: admin.drop_steps("r/flow", [0]),
        lambda admin: admin.share("r", "write", user=READER),
        lambda admin: admin.destroy("r", force=True),
    ]
    for action in refused:
        assert outcome(READER, as_admin(socket, action)) == "permission_denied"
    assert outcome(READER, write_steps(socket, 1)) == "permission_denied"
    assert outcome(READER, write_steps(socket, 1, "r/other")) == "permission_denied"
    assert outcome(STRANGER, read_steps(socket)) == "permission_denied"
    with shared.admin() as admin:
        assert len(admin.steps("r/flow")) == 3
        assert [found.name for found in admin.streams("r")] == ["flow"]


def test_who_may_write_writes_and_neither_shares_nor_destroys(shared: Instance) -> None:
    """The right to write is not the owner's."""
    socket = shared.socket()
    assert outcome(WRITER, write_steps(socket, 2)) is None
    assert outcome(OWNER, read_steps(socket)) == [0, 1, 2, 3, 4]
    assert outcome(WRITER, as_admin(socket, lambda admin: admin.share("r", "none", user=READER))) == "permission_denied"
    assert outcome(WRITER, as_admin(socket, lambda admin: admin.destroy("r", force=True))) == "permission_denied"


def test_a_reader_moves_no_cursor_but_its_own(shared: Instance) -> None:
    """A consumer of the same name is another one."""
    socket = shared.socket()

    def begin() -> None:
        with forebay.open("r/flow", instance=socket, timeout=seconds(10)) as stream:
            next(iter(stream.follow(consumer="render", timeout=seconds(10))))

    def positions() -> dict[str, int]:
        with shared.admin() as admin:
            return {consumer.name: consumer.position for consumer in admin.stream("r/flow").consumers}

    as_user(OWNER, begin)
    before = positions()["render"]
    assert outcome(READER, read_steps(socket, consumer="render")) == [0, 1, 2]
    assert positions() == {"render": before, f"u{READER}.render": 3}
    # It removes its own.
    assert outcome(READER, as_admin(socket, lambda admin: admin.remove_consumer("r/flow", "render"))) is None
    assert positions() == {"render": before}


def test_pins_of_a_reader_count_as_those_without_a_name(shared: Instance) -> None:
    """Beyond a quarter of the reservation its steps are not held."""
    socket = shared.socket()
    step_bytes = 4 << 20

    def write() -> None:
        with forebay.open("r/large", "w", instance=socket, timeout=seconds(10)) as stream:
            for _ in range(8):
                with stream.step() as step:
                    step["data"] = np.zeros(step_bytes, np.uint8)

    as_user(OWNER, write)

    def hold(tell: Callable[[Any], None]) -> None:
        with forebay.open("r/large", instance=socket, timeout=seconds(10)) as stream:
            held = list(stream.follow(consumer="greedy", timeout=seconds(10)))
            tell(len(held))
            select.select([], [], [])

    with Child(READER, hold) as child:
        assert child.next() == 8
        with shared.admin() as admin:
            pinned = sum(step.size_bytes for step in admin.steps("r/large") if step.pins)
        assert 0 < pinned <= (64 << 20) // 4


def pinned_bytes(instance: Instance, address: str) -> int:
    """Of all steps that somebody holds."""
    with instance.admin() as admin:
        return sum(step.size_bytes for step in admin.steps(address) if step.pins)


def test_who_may_only_read_leaves_pins_to_others(shared: Instance) -> None:
    """Two guests, as greedy as can be: each leaves as much as it holds, and the owner's readers find a share, too."""
    socket = shared.socket()
    quarter = (64 << 20) // 4

    def write() -> None:
        with forebay.open("r/many", "w", instance=socket, timeout=seconds(10)) as stream:
            for _ in range(40):
                with stream.step() as step:
                    step["data"] = np.zeros(1 << 20, np.uint8)

    as_user(OWNER, write)
    with shared.admin() as admin:
        admin.share("r", "read", user=STRANGER)

    def hold(start: int) -> Callable[[Callable[[Any], None]], None]:
        def act(tell: Callable[[Any], None]) -> None:
            with contextlib.ExitStack() as stack:
                held = []
                # More connections make no larger share.
                for _ in range(3):
                    stream = stack.enter_context(forebay.open("r/many", instance=socket, timeout=seconds(10)))
                    held += [stream[number] for number in range(start, start + 12)]
                tell(len(held))
                select.select([], [], [])

        return act

    with Child(READER, hold(0)) as first:
        assert first.next() == 36
        by_first = pinned_bytes(shared, "r/many")
        assert 0 < by_first <= quarter // 2
        with Child(STRANGER, hold(12)) as second:
            assert second.next() == 36
            by_both = pinned_bytes(shared, "r/many")
            assert by_first < by_both <= quarter - (by_both - by_first)
            with Child(OWNER, hold(24)) as owner:
                assert owner.next() == 36
                assert by_both < pinned_bytes(shared, "r/many") <= quarter
        until(lambda: pinned_bytes(shared, "r/many") == by_first, "the others let go")
    until(lambda: pinned_bytes(shared, "r/many") == 0, "all let go")
    # Nothing is left in anybody's account.
    with Child(STRANGER, hold(0)) as again:
        assert again.next() == 36
        assert pinned_bytes(shared, "r/many") == by_first


def test_a_share_of_one_user_leaves_the_tokens_of_others(shared: Instance) -> None:
    """Only whose rights may have become less needs another."""
    socket = shared.socket()

    def generation(uid: int) -> int:
        def act() -> int:
            with forebay.Admin(socket) as admin:
                return generation_of_token(admin.create_token("r"))

        return int(as_user(uid, act))

    before = {uid: generation(uid) for uid in (OWNER, READER, WRITER)}
    with shared.admin() as admin:
        whole = admin.reservation("r").access_generation
        admin.share("r", "read", user=STRANGER)
        admin.share("r", "read", user=WRITER)
        assert admin.reservation("r").access_generation > whole
    assert generation(OWNER) == before[OWNER]
    assert generation(READER) == before[READER]
    assert generation(WRITER) > before[WRITER]
    shared.kill()
    shared.start()
    assert generation(READER) == before[READER]
    assert generation(WRITER) > before[WRITER]
    with shared.admin() as admin:
        admin.share("r", "none", group=OWNER)
    assert generation(READER) > before[READER]


def test_a_reader_that_loses_its_right_is_told_and_lets_go(shared: Instance) -> None:
    """While it waits, and with a step in its hands."""
    socket = shared.socket()

    def follow(tell: Callable[[Any], None]) -> None:
        with forebay.open("r/live", instance=socket, timeout=seconds(10)) as stream:
            held = []
            for step in stream.follow(timeout=seconds(60)):
                held.append(step)
                tell(step.number)

    def write(tell: Callable[[Any], None]) -> None:
        with forebay.open("r/live", "w", instance=socket, timeout=seconds(10)) as stream:
            with stream.step() as step:
                step["n"] = 1
            tell("written")
            select.select([], [], [])

    with Child(OWNER, write) as writer, Child(READER, follow) as reader:
        assert writer.next() == "written"
        assert reader.next() == 0
        with shared.admin() as admin:
            before = admin.reservation("r").access_generation
            admin.share("r", "none", user=READER)
            assert admin.reservation("r").access_generation == before + 1
            told = reader.next()
            assert told.startswith("permission_denied: the right to read was taken away")
            assert all(step.pins == 0 for step in admin.steps("r/live"))
    assert outcome(READER, read_steps(socket)) == "permission_denied"


def test_a_reader_that_waits_for_a_stream_is_told(shared: Instance) -> None:
    """It would never learn it from the stream."""
    socket = shared.socket()

    def wait(tell: Callable[[Any], None]) -> None:
        tell("begins")
        forebay.open("r/later", instance=socket, timeout=seconds(60))

    with Child(READER, wait) as reader:
        assert reader.next() == "begins"
        with shared.admin() as admin:
            admin.share("r", "none", user=READER)
        assert reader.next().startswith("permission_denied")


def test_a_writer_that_loses_its_right_ends(shared: Instance) -> None:
    """The step that it had begun does not exist, and the stream says why."""
    socket = shared.socket()
    begun, go_on = os.pipe()

    def write(tell: Callable[[Any], None]) -> None:
        with forebay.open("r/flow", "a", instance=socket, timeout=seconds(10)) as stream:
            with stream.step() as step:
                step["n"] = 1
            tell("written")
            os.read(begun, 1)
            with stream.step() as step:
                step["n"] = 2

    with Child(WRITER, write) as writer:
        assert writer.next() == "written"
        with shared.admin() as admin:
            admin.share("r", "read", user=WRITER)
            os.write(go_on, b"x")
            assert writer.next().startswith("permission_denied")
            assert len(admin.steps("r/flow")) == 4
            assert "right to write was taken away" in admin.stream("r/flow").status_text
    os.close(begun)
    os.close(go_on)


def test_shares_survive_the_server(shared: Instance) -> None:
    """They lie with the reservation."""
    with shared.admin() as admin:
        before = admin.reservation("r")
    shared.kill()
    shared.start()
    with shared.admin() as admin:
        assert admin.reservation("r").shares == before.shares
        assert admin.reservation("r").access_generation == before.access_generation
    assert outcome(READER, read_steps(shared.socket())) == [0, 1, 2]
    assert outcome(STRANGER, read_steps(shared.socket())) == "permission_denied"


def test_a_group_shares_and_a_users_own_share_counts_alone(shared: Instance) -> None:
    """By a supplementary group; the owner's group loses what it had from the beginning."""
    socket = shared.socket()
    with shared.admin() as admin:
        admin.share("r", "read", group=TEAM)
        admin.share("r", "none", group=OWNER)
    assert outcome(STRANGER, read_steps(socket), (TEAM,)) == [0, 1, 2]
    assert outcome(STRANGER, write_steps(socket, 1), (TEAM,)) == "permission_denied"
    assert outcome(STRANGER, read_steps(socket), (OWNER,)) == "permission_denied"
    with shared.admin() as admin:
        admin.share("r", "none", user=STRANGER)
    assert outcome(STRANGER, read_steps(socket), (TEAM,)) == "permission_denied"


def test_files_follow_the_shares(shared: Instance) -> None:
    """What is there already, and what is made later, by the owner and by who may write."""
    with shared.admin() as admin:
        files = Path(admin.reservation("r").files_path)

    def make(name: str) -> Callable[[], None]:
        def act() -> None:
            (files / name).mkdir()
            (files / name / "data").write_text("text")

        return act

    def can(uid: int, name: str) -> str:
        def look() -> str:
            path = files / name / "data"
            return "".join(letter for letter, mode in (("r", os.R_OK), ("w", os.W_OK)) if os.access(path, mode)) + (
                "c" if os.access(path.parent, os.W_OK) else ""
            )

        found: str = as_user(uid, look)
        return found

    as_user(OWNER, make("first"))
    as_user(WRITER, make("second"))
    for name in ("first", "second"):
        assert can(OWNER, name) == "rwc"
        assert can(WRITER, name) == "rwc"
        assert can(READER, name) == "r"
        assert can(STRANGER, name) == ""
    with shared.admin() as admin:
        admin.share("r", "read", user=STRANGER)
        admin.share("r", "none", user=READER)
    for name in ("first", "second"):
        assert can(STRANGER, name) == "r"
        assert can(READER, name) == ""


# crash-matrix: sharing a reservation | server, at `server.share.recorded`, before `files/` are told | the share; `files/` get it at the next start
def test_a_server_that_dies_tells_files_at_its_next_start(shared: Instance) -> None:
    with shared.admin() as admin:
        files = Path(admin.reservation("r").files_path)
    shared.stop()
    shared.start(fail_point="server.share.recorded")
    with shared.admin() as admin, pytest.raises(forebay.DisconnectedError):
        admin.share("r", "read", user=STRANGER)
    shared.wait()
    assert not as_user(STRANGER, lambda: os.access(files, os.R_OK))
    shared.start()
    # There already: answered when what was left to be done is done.
    shared.create("r", "64MiB", files="16MiB", owner_uid=OWNER, owner_gid=OWNER)
    assert as_user(STRANGER, lambda: os.access(files, os.R_OK))


def test_a_second_group_is_refused_without_access_lists(tmp_path: Path) -> None:
    """One group is what mode bits can say."""
    with mounted(tmp_path / "plain", 0, "ramfs") as folder, Instance(folder / "root", capacity="64MiB") as instance:
        instance.create("r", "16MiB", files="1MiB", owner_uid=OWNER, owner_gid=OWNER)
        with instance.admin() as admin:
            files = Path(admin.reservation("r").files_path)
            with pytest.raises(forebay.UnsupportedError, match="no POSIX access lists"):
                admin.share("r", "read", group=TEAM)
            assert admin.reservation("r").shares == ()
            admin.share("r", "none", group=OWNER)
            assert (files.stat().st_gid, files.stat().st_mode & 0o777) == (OWNER, 0o700)
            admin.share("r", "read", group=TEAM)
            assert (files.stat().st_gid, files.stat().st_mode & 0o777) == (TEAM, 0o750)


def test_a_server_that_is_not_root_lets_owner_and_readers_to_their_files() -> None:
    """It cannot give files away, but it can let others in; also after another start."""
    with tempfile.TemporaryDirectory(prefix="private-") as folder:
        Path(folder).chmod(0o711)
        os.chown(folder, OWNER, OWNER)
        root = Path(folder) / "root"
        root.mkdir(mode=0o711)
        os.chown(root, OWNER, OWNER)
        with Instance(root, capacity="64MiB", user=OWNER) as instance:
            instance.create("r", "16MiB", files="1MiB", owner_uid=WRITER, owner_gid=WRITER)
            with instance.admin() as admin:
                admin.share("r", "read", user=READER)
                files = Path(admin.reservation("r").files_path)
            as_user(WRITER, lambda: (files / "data").write_text("text"))
            instance.stop()
            instance.start()
            for uid, rights in ((WRITER, (True, True)), (READER, (True, False)), (STRANGER, (False, False))):
                assert as_user(uid, lambda: (os.access(files / "data", os.R_OK), os.access(files, os.W_OK))) == rights


def test_the_records_of_shares_are_json(shared: Instance) -> None:
    with shared.admin() as admin:
        plain = json.loads(json.dumps(admin.reservation("r").as_dict()))
    assert plain["shares"] == [
        {"kind": "user", "id": READER, "rights": "read"},
        {"kind": "user", "id": WRITER, "rights": "write"},
    ]
