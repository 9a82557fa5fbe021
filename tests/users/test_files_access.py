# SPDX-License-Identifier: Apache-2.0
"""Who gets at what in `files/`: walks of a server that is root, through trees in which others move, link and wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.fault.instance import Instance
from tests.support.access_list import AccessList
from tests.support.load import until
from tests.support.mounted import mounted
from tests.support.users import User, Users
from tests.users.conftest import AsUser

#: Deeper than a walk that holds a descriptor for each folder can go.
DEEP = 300


@pytest.fixture
def ada(users: Users) -> User:
    """The owner of reservation "r"."""
    return users("ada")


@pytest.fixture
def bob(users: Users) -> User:
    """Somebody else."""
    return users("bob")


@pytest.fixture
def eve(users: Users) -> User:
    """Somebody else again."""
    return users("eve")


@pytest.fixture
def files(server: Instance, ada: User) -> Path:
    """`files/` of reservation "r", which nobody shares yet."""
    server.create("r", "16MiB", files="16MiB", owner_uid=ada.uid, owner_gid=ada.gid)
    with server.admin() as admin:
        return Path(admin.reservation("r").files_path)


def share(server: Instance, user: User, rights: str) -> forebay.ReservationInfo:
    """As root, who may."""
    with server.admin() as admin:
        return admin.share("r", rights, user=user.uid)


def rights_of(user: User, path: Path) -> str:
    """What the user may do with it by the kernel's word: letters of "rwx"."""

    def look() -> str:
        return "".join(
            letter for letter, mode in (("r", os.R_OK), ("w", os.W_OK), ("x", os.X_OK)) if os.access(path, mode)
        )

    found: str = user.call(look)
    return found


@contextlib.contextmanager
def deep_folder(top: Path, depth: int = DEEP) -> Iterator[int]:
    """A chain of folders is made below ``top``; a descriptor of the last one."""
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(depth):
            os.mkdir("folder-in-a-chain", dir_fd=folder)
            below = os.open("folder-in-a-chain", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def deep_folder_of(user: User, top: Path) -> contextlib.AbstractContextManager[int]:
    """The same, made by the user; root has the descriptor, which each child inherits."""

    def build() -> None:
        with deep_folder(top):
            pass

    user.call(build)
    return opened_chain(top)


@contextlib.contextmanager
def opened_chain(top: Path) -> Iterator[int]:
    """A descriptor of the last folder of the chain below ``top``."""
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            try:
                below = os.open("folder-in-a-chain", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
            except FileNotFoundError:
                break
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def make(path: Path, mode: int = 0o666) -> None:
    """A file with some text, of this mode as `open` takes it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write("text")


# ---------------------------------------------------------------- what is marked


def test_what_is_made_in_a_reservation_carries_its_mark_from_creation_on(
    server: Instance, files: Path, ada: User, common: Path
) -> None:
    """Root's instance, and no share: after chmod and tar, too; what is moved or copied into it has none."""
    with server.admin() as admin:
        mark = admin.reservation("r").files_group
    assert 2_000_000_000 <= mark <= 2_147_483_646
    by_default = AccessList.of(files, default=True)
    assert by_default is not None
    assert by_default.groups[mark] == 0

    def work() -> None:
        make(files / "made")
        (files / "made").chmod(0o600)
        (files / "folder").mkdir()
        make(common / "source", 0o644)
        subprocess.run(["tar", "-C", str(common), "-cf", str(common / "archive.tar"), "source"], check=True)
        subprocess.run(["tar", "-C", str(files / "folder"), "-xf", str(common / "archive.tar")], check=True)
        subprocess.run(["cp", "-p", str(common / "source"), str(files / "copied")], check=True)
        shutil.move(common / "source", files / "moved")

    ada.call(work)
    for name in ("made", "folder", "folder/source"):
        found = AccessList.of(files / name)
        assert found is not None, name
        assert found.groups.get(mark) == 0, name
    for name in ("copied", "moved"):
        found = AccessList.of(files / name)
        assert found is None or mark not in found.groups, name


def test_each_reservation_has_a_mark_of_its_own(server: Instance, files: Path, ada: User) -> None:
    """And the same after a restart."""
    server.create("other", "16MiB", files="16MiB", owner_uid=ada.uid, owner_gid=ada.gid)
    with server.admin() as admin:
        marks = {info.name: info.files_group for info in admin.reservations()}
    assert len(set(marks.values())) == 2
    server.kill()
    server.start()
    with server.admin() as admin:
        assert {info.name: info.files_group for info in admin.reservations()} == marks


# ---------------------------------------------------------------- what a share gives


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_private_file_that_is_moved_into_a_reservation_is_not_given_away(
    server: Instance, files: Path, ada: User, bob: User, eve: User, common: Path, mode: int
) -> None:
    """Ada takes Bob's file from a folder where both may write, and shares her reservation with Eve."""
    bob.call(lambda: make(common / "secret", mode))
    ada.call(lambda: os.rename(common / "secret", files / "taken"))
    before = (files / "taken").lstat()
    info = share(server, eve, "write")
    after = (files / "taken").lstat()
    assert (after.st_mode, after.st_uid, after.st_ctime_ns) == (before.st_mode, before.st_uid, before.st_ctime_ns)
    assert AccessList.of(files / "taken") is None
    assert "w" not in rights_of(ada, files / "taken")
    assert "w" not in rights_of(eve, files / "taken")
    assert mode == 0o644 or rights_of(ada, files / "taken") + rights_of(eve, files / "taken") == ""
    # It is named, for whoever shares and for whoever looks later.
    assert "files/taken" in "".join(info.files_left)
    assert "forebay share r --adopt" in "".join(info.files_left)
    with server.admin() as admin:
        assert any("files/taken" in finding.what for finding in admin.audit())


def test_what_is_named_as_left_is_one_line_that_steers_no_terminal(
    server: Instance, files: Path, ada: User, bob: User, eve: User, common: Path
) -> None:
    """A name that ends the line could say anything in the next one; one that is no UTF-8 ended the command."""
    name = os.fsencode(common) + b"/a\x1b[31m\nr: shared\xff"
    bob.call(lambda: make(Path(os.fsdecode(name)), 0o600))
    ada.call(lambda: os.rename(name, os.fsencode(files) + b"/" + os.path.basename(name)))
    (left,) = share(server, eve, "write").files_left
    assert "files/a\\x1b[31m\\x0ar: shared\\xff" in left
    with server.admin() as admin:
        (finding,) = (found for found in admin.audit() if "files/a" in found.what)
        assert "\n" not in finding.what


def test_a_hard_link_brings_nobody_into_a_file(
    server: Instance, files: Path, ada: User, bob: User, eve: User, common: Path
) -> None:
    """Also one that Bob let Ada write to, of which she makes a second name in her reservation."""

    def prepare() -> None:
        make(common / "his", 0o600)
        (common / "his").chmod(0o666)

    bob.call(prepare)
    ada.call(lambda: os.link(common / "his", files / "linked"))
    bob.call(lambda: (common / "his").chmod(0o600))
    share(server, eve, "write")
    assert AccessList.of(common / "his") is None
    assert rights_of(ada, common / "his") + rights_of(eve, common / "his") == ""


def test_a_share_leaves_what_its_maker_closed(server: Instance, files: Path, ada: User, eve: User) -> None:
    """0600 before the share and 0600 after it; what is open to the group is shared."""

    def before() -> None:
        make(files / "closed", 0o600)
        make(files / "open", 0o666)
        make(files / "readable", 0o640)
        (files / "locked").mkdir()
        (files / "locked").chmod(0o700)

    ada.call(before)
    share(server, eve, "write")
    ada.call(lambda: make(files / "closed-later", 0o600))
    assert rights_of(eve, files / "closed") == ""
    assert rights_of(eve, files / "closed-later") == ""
    assert rights_of(eve, files / "locked") == ""
    assert rights_of(eve, files / "open") == "rw"
    assert rights_of(eve, files / "readable") == "r"
    ada.call(lambda: (files / "closed").chmod(0o660))
    assert rights_of(eve, files / "closed") == "rw"


def test_what_others_make_is_the_owners_only_as_far_as_they_let(
    server: Instance, files: Path, ada: User, bob: User, eve: User
) -> None:
    """Bob may write in the reservation; his file of 0600 stays his, also when somebody else gets a right."""
    share(server, bob, "write")

    def work() -> None:
        make(files / "his", 0o600)
        make(files / "common", 0o666)

    bob.call(work)
    share(server, eve, "read")
    assert rights_of(ada, files / "his") + rights_of(eve, files / "his") == ""
    assert rights_of(ada, files / "common") == "rw"
    assert rights_of(eve, files / "common") == "r"


def test_names_of_what_is_left_are_told_to_the_owner_alone(
    server: Instance, files: Path, ada: User, bob: User, eve: User, common: Path
) -> None:
    """Eve may read, and not even know what Bob's file is called."""
    bob.call(lambda: make(common / "his-name", 0o600))
    ada.call(lambda: os.rename(common / "his-name", files / "his-name"))
    share(server, eve, "read")
    socket = server.socket()

    def ask() -> str:
        with forebay.Admin(socket) as admin:
            return "".join(line for info in [admin.reservation("r"), *admin.reservations()] for line in info.files_left)

    assert "files/his-name" in ada.call(ask)
    assert eve.call(ask) == ""


# ---------------------------------------------------------------- what the end of a share takes


def test_a_share_is_taken_back_from_a_deep_chain(server: Instance, files: Path, ada: User, eve: User) -> None:
    """Eve keeps a descriptor of the last folder, and what is made there later is not hers."""
    share(server, eve, "read")

    with deep_folder_of(ada, files) as folder:

        def can_look() -> bool:
            try:
                os.close(os.open("later", os.O_RDONLY, dir_fd=folder))
            except PermissionError:
                return False
            return True

        ada.call(lambda: os.close(os.open("later", os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=folder)))
        assert eve.call(can_look)
        info = share(server, eve, "none")
        assert info.files_left == ()
        assert not eve.call(can_look)


def test_a_lease_or_a_pipe_keeps_no_right(server: Instance, files: Path, ada: User, eve: User) -> None:
    """Eve has a lease on a file of hers and a pipe without a reader, which would stop whoever opens them."""
    share(server, eve, "write")

    def hold(tell: Callable[[Any], None]) -> None:
        os.mkfifo(files / "a-pipe")
        make(files / "b-leased")
        file = os.open(files / "b-leased", os.O_RDWR)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        tell("holds")
        os.read(wait, 1)

    wait, done = os.pipe()
    try:
        for name in ("c-folder", "d-folder"):
            ada.call(lambda name=name: (files / name).mkdir())  # type: ignore[misc]
            ada.call(lambda name=name: make(files / name / "data"))  # type: ignore[misc]
        with eve.child(hold) as child:
            assert child.next() == "holds"
            folders = [os.open(files / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("c-folder", "d-folder")]
            try:
                info = share(server, eve, "none")
                assert info.files_left == ()

                def look() -> list[bool]:
                    return [os.access("data", os.R_OK, dir_fd=folder) for folder in folders]

                assert eve.call(look) == [False, False]
                for name in ("a-pipe", "b-leased"):
                    found = AccessList.of(files / name)
                    assert found is not None, name
                    assert found.users[eve.uid] == 0, name
            finally:
                for folder in folders:
                    os.close(folder)
    finally:
        os.close(wait)
        os.close(done)


def test_what_the_owner_moved_in_is_closed_with_the_share(
    server: Instance, files: Path, ada: User, bob: User, eve: User, common: Path
) -> None:
    """It carries no mark, but it is the owner's, whatever list it has; what is a third's stays as it is."""

    def prepare() -> None:
        (common / "tree").mkdir()
        (common / "tree").chmod(0o755)
        make(common / "tree" / "listed")
        AccessList(owner=6, group=4, mask=6, users={eve.uid: 6}).put(common / "tree" / "listed")
        make(common / "tree" / "open")
        (common / "tree" / "open").chmod(0o644)
        shutil.move(common / "tree", files / "tree")

    ada.call(prepare)
    bob.call(lambda: make(common / "his", 0o666))
    bob.call(lambda: (common / "his").chmod(0o666))
    ada.call(lambda: os.rename(common / "his", files / "tree" / "his"))
    share(server, eve, "read")
    # Nothing was given, and Eve's own entry is hers as far as the share goes.
    assert rights_of(eve, files / "tree" / "listed") == "r"
    assert rights_of(eve, files / "tree" / "open") == "r"
    folder = os.open(files / "tree", os.O_RDONLY | os.O_DIRECTORY)
    try:
        info = share(server, eve, "none")

        def look() -> list[bool]:
            return [os.access(name, os.R_OK, dir_fd=folder) for name in ("listed", "open")]

        assert eve.call(look) == [False, False]
        assert stat.S_IMODE((files / "tree" / "open").stat().st_mode) == 0o644
        assert AccessList.of(files / "tree" / "his") is None
        assert "files/tree/his" in "".join(info.files_left)
        assert "files/tree/listed" not in "".join(info.files_left)
    finally:
        os.close(folder)


def test_a_walk_enters_no_mount_and_says_so(server: Instance, files: Path, ada: User, eve: User) -> None:
    """What is mounted in files/ is another's, and is not looked at."""
    ada.call(lambda: make(files / "z-data"))
    with mounted(files / "mounted", 1) as folder:
        make(folder / "inside")
        inside = (folder / "inside").stat().st_ctime_ns
        info = share(server, eve, "read")
        assert (folder / "inside").stat().st_ctime_ns == inside
        assert rights_of(eve, files / "z-data") == "r"
        assert "files/mounted (another file system is mounted there)" in "".join(info.files_left)
        with server.admin() as admin:
            problems = [found.what for found in admin.audit() if found.severity == forebay.Severity.PROBLEM]
        assert any("files/mounted" in what and "share again" in what for what in problems)
    (files / "mounted").rmdir()
    assert share(server, eve, "read").files_left == ()


def test_passes_follow_until_one_changes_nothing(server: Instance, files: Path, ada: User, eve: User) -> None:
    """A folder that was moved out during a pass and comes back later is found by a later one."""

    def prepare() -> None:
        (files / "folder").mkdir()
        make(files / "folder" / "data")
        for path, mode in ((files / "folder", 0o770), (files / "folder" / "data", 0o660)):
            path.chmod(mode)

    ada.call(prepare)
    outside = files.parent / "outside"
    os.rename(files / "folder", outside)
    info = share(server, eve, "read")
    os.rename(outside, files / "folder")
    assert info.files_left == ()
    until(lambda: rights_of(eve, files / "folder" / "data") == "r", "a later pass finds it")


def test_an_adoption_that_fails_ends_no_passes(server: Instance, files: Path, ada: User, eve: User) -> None:
    """It takes the place of a pass, which comes after it then."""
    ada.call(lambda: (files / "folder").mkdir())
    (files / "folder").chmod(0o770)
    outside = files.parent / "outside"
    os.rename(files / "folder", outside)
    share(server, eve, "read")
    os.rename(outside, files / "folder")
    with server.admin() as admin, pytest.raises(forebay.NotFoundError):
        admin.adopt_files("r", "nothing")
    until(lambda: "r" in rights_of(eve, files / "folder"), "a later pass finds it")


def test_passes_are_taken_up_again_by_the_next_server(server: Instance, files: Path, ada: User, eve: User) -> None:
    """One that died between the record and the end of the passes."""
    ada.call(lambda: make(files / "data"))
    server.stop()
    server.start(fail_point="server.share.recorded")
    with server.admin() as admin, pytest.raises(forebay.DisconnectedError):
        admin.share("r", "read", user=eve.uid)
    server.wait()
    assert rights_of(eve, files / "data") == ""
    server.start()
    until(lambda: rights_of(eve, files / "data") == "r", "the shares reach files/")


# ---------------------------------------------------------------- adoption


def test_adopt_marks_the_owners_own_and_nothing_else(
    server: Instance, files: Path, ada: User, bob: User, eve: User, common: Path
) -> None:
    """Below one path, as far as their modes go; a third's file and the rest of files/ stay."""

    def prepare() -> None:
        for name in ("tree", "rest"):
            (common / name).mkdir()
            (common / name).chmod(0o750)
            make(common / name / "data")
            (common / name / "data").chmod(0o640)
            make(common / name / "closed", 0o600)
            shutil.move(common / name, files / name)

    ada.call(prepare)
    bob.call(lambda: make(common / "his", 0o600))
    ada.call(lambda: os.rename(common / "his", files / "tree" / "his"))
    share(server, eve, "write")
    assert rights_of(eve, files / "tree") == ""
    socket = server.socket()

    def adopt() -> tuple[str, ...]:
        with forebay.Admin(socket) as admin:
            return admin.adopt_files("r", "tree").files_left

    left = ada.call(adopt)
    assert "files/tree/his" in "".join(left)
    assert rights_of(eve, files / "tree") == "rx"
    assert rights_of(eve, files / "tree" / "data") == "r"
    assert rights_of(eve, files / "tree" / "closed") == ""
    assert AccessList.of(files / "tree" / "his") is None
    assert rights_of(eve, files / "rest") == ""
    # What is made there from now on belongs to it.
    ada.call(lambda: make(files / "tree" / "later"))
    assert rights_of(eve, files / "tree" / "later") == "rw"
    # And the end of the share reaches it.
    share(server, eve, "none")
    assert rights_of(eve, files / "tree" / "data") == ""


def test_adopt_is_the_owners_and_leads_nowhere_else(
    server: Instance, files: Path, ada: User, bob: User, common: Path
) -> None:
    """A link or `..` is refused, and nobody adopts in another's reservation."""
    bob.call(lambda: (common / "his").mkdir())
    ada.call(lambda: os.symlink(common, files / "link"))
    socket = server.socket()

    def adopt(path: str) -> Callable[[], Any]:
        def act() -> Any:
            with forebay.Admin(socket) as admin:
                return admin.adopt_files("r", path)

        return act

    for path in ("link", "link/his", "..", "../streams", "/etc"):
        with pytest.raises(forebay.InvalidArgumentError, match=r"leads out|link"):
            ada.call(adopt(path))
    with pytest.raises(forebay.NotFoundError):
        ada.call(adopt("nothing"))
    share(server, bob, "write")
    with pytest.raises(forebay.PermissionDeniedError):
        bob.call(adopt(""))
    assert AccessList.of(common / "his") is None


def test_the_command_adopts_and_says_what_is_left(
    server: Instance,
    files: Path,
    ada: User,
    bob: User,
    eve: User,
    common: Path,
    as_user: AsUser,
    forebay_command: list[str],
) -> None:
    bob.call(lambda: make(common / "his", 0o600))

    def prepare() -> None:
        make(common / "hers")
        (common / "hers").chmod(0o640)
        os.rename(common / "hers", files / "hers")
        os.rename(common / "his", files / "his")

    ada.call(prepare)
    told = as_user(ada, [*forebay_command, "share", "r", "--user", str(eve.uid), "--rights", "read"])
    assert told.returncode == 0, told.stderr
    assert "files/hers" in told.stdout
    assert "files/his" in told.stdout
    for path in ("hers", str(files / "his"), "r:hers"):
        told = as_user(ada, [*forebay_command, "share", "r", "--adopt", path])
        assert told.returncode == 0, told.stderr
    assert rights_of(eve, files / "hers") == "r"
    assert rights_of(eve, files / "his") == ""


# ---------------------------------------------------------------- counting


def test_files_in_a_deep_chain_count(server: Instance, files: Path, ada: User) -> None:
    """`ls` and doctor see them, and a capacity that they exceed is told."""
    with deep_folder_of(ada, files) as folder:

        def write() -> None:
            file = os.open("large", os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=folder)
            os.posix_fallocate(file, 0, 20 << 20)
            os.close(file)

        ada.call(write)
    with server.admin() as admin:
        assert (admin.reservation("r").files_used_bytes or 0) >= 20 << 20
        assert any("were granted for files" in finding.what for finding in admin.audit())


def test_what_cannot_be_counted_is_told(server: Instance, files: Path) -> None:
    with mounted(files / "mounted", 1):
        with server.admin() as admin:
            problems = [found.what for found in admin.audit() if found.severity == forebay.Severity.PROBLEM]
        assert any("cannot be measured: files/mounted: another file system" in what for what in problems)
    (files / "mounted").rmdir()
