# SPDX-License-Identifier: Apache-2.0
"""The exchanges that once gave a user another's rights, against the mover itself: what must hold after each run."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.exchanges import exchanging
from tests.support.other_user import as_user
from tests.support.users import User
from tests.support.watched_mover import SECRET, mover_program

__all__ = [
    "AttackedFolder",
    "attacked_stage_in",
    "attacked_stage_out_of_status",
    "attacked_stage_out_of_what_becomes_a_link",
    "attacked_tree",
    "mover_as",
]

_PRIVATE = b"what only the victim may read\n"


def mover_as(uid: int, request: dict[str, str], groups: Sequence[int] = ()) -> tuple[int, bytes]:
    """Runs the mover as that user; its status and what it told."""
    fields = {"secret": SECRET, "name": "res", **request}
    text = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in fields.items()) + b"\0gggg"
    identity: dict[str, Any] = {} if uid == 0 else {"user": uid, "group": uid, "extra_groups": list(groups)}
    # The input stays open until it has ended: it would end with it.
    with subprocess.Popen([mover_program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **identity) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text)
        process.stdin.flush()
        told = process.stdout.read()
        return process.wait(), told


@dataclass
class AttackedFolder:
    """`files` of a reservation of the victim's, where the attacker may write, too."""

    victim: int  #: root's number, or a user's
    attacker: User
    place: Path

    def __post_init__(self) -> None:
        self.files = self.place / "files"
        self.outside = self.place / "outside"
        self.closed = self.place / "closed"
        for folder, mode in ((self.files, 0o777), (self.outside, 0o777), (self.closed, 0o700)):
            folder.mkdir()
            os.chown(folder, self.victim, self.victim)
            folder.chmod(mode)
        self.private = self.closed / "private"
        self.private.write_bytes(_PRIVATE)
        os.chown(self.private, self.victim, self.victim)
        self.private.chmod(0o600)
        self._before = self._described()

    def _described(self) -> tuple[object, ...]:
        status = self.private.stat()
        return (
            self.private.read_bytes(),
            stat.S_IMODE(status.st_mode),
            (status.st_uid, status.st_gid, status.st_mtime_ns),
            sorted(os.listxattr(self.private)),
            sorted(path.name for path in self.closed.iterdir()),
        )

    def request(self, path: str, outside: Path, *, inward: bool) -> dict[str, str]:
        return {"inside": str(self.files), "path": path, "outside": str(outside), "inward": str(int(inward))}

    @contextmanager
    def exchanged(self, folder: Path, name: str) -> Iterator[None]:
        """The attacker exchanges what the mover makes in the folder, and `name`, with links to the victim's."""
        link, tree = folder / "zz-link", folder / "zz-tree"

        def prepare_and_pair() -> list[tuple[Path, Path]]:
            for own, target in ((link, self.private), (tree, self.closed)):
                if not os.path.lexists(own):
                    own.symlink_to(target)
            found = [folder / entry for entry in os.listdir(folder) if entry.startswith(".")]
            return [(path, tree) for path in found] + [(folder / name, link)]

        with exchanging(self.attacker.uid, prepare_and_pair) as attack:
            assert attack.next() == "ready"
            yield

    def check_victim(self) -> None:
        """Nothing that only the victim may change was changed."""
        assert self._described() == self._before

    def check_result(self, path: Path) -> None:
        """What lies there gives nobody rights, and does not show what is private."""
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISREG(status.st_mode):
            assert status.st_mode & 0o6000 == 0, oct(status.st_mode)
            assert _PRIVATE not in path.read_bytes()


def _remove(path: Path) -> None:
    """Whatever it is; the attacker may be exchanging it this very moment."""
    while os.path.lexists(path):
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def attacked_stage_in(attacked: AttackedFolder, count: int) -> None:
    """Once: mode, owner, times and attributes went to what a link named that lay in the place of the partial file."""
    source = attacked.outside / "source"
    source.write_bytes(b"to be staged in")
    os.chown(source, attacked.victim, attacked.victim)
    source.chmod(0o666)
    with attacked.exchanged(attacked.files, "target"):
        for _ in range(count):
            mover_as(attacked.victim, attacked.request("target", source, inward=True))
            attacked.check_victim()


def attacked_stage_out_of_status(attacked: AttackedFolder, count: int) -> None:
    """Once: content of the attacker's, with the status of the victim's program."""
    program, content = attacked.files / "program", attacked.files / "content"
    shutil.copy(shutil.which("true") or "/bin/true", program)
    os.chown(program, attacked.victim, attacked.victim)
    program.chmod(0o4755)
    target = attacked.outside / "target"

    def make() -> list[tuple[Path, Path]]:
        if not content.exists():
            content.write_bytes(b"#!/bin/sh\necho of the attacker\n")
        return [(program, content)]

    with exchanging(attacked.attacker.uid, make) as attack:
        assert attack.next() == "ready"
        for _ in range(count):
            _remove(target)
            mover_as(attacked.victim, attacked.request("program", target, inward=False))
            attacked.check_result(target)
            attacked.check_victim()


def attacked_stage_out_of_what_becomes_a_link(attacked: AttackedFolder, count: int) -> None:
    """Once: the private file that the link named was copied out."""
    bait, link = attacked.files / "bait", attacked.files / "link"
    target = attacked.outside / "target"

    def make() -> list[tuple[Path, Path]]:
        if not os.path.lexists(bait):
            bait.write_bytes(b"of no interest")
        if not os.path.lexists(link):
            link.symlink_to(attacked.private)
        return [(bait, link)]

    with exchanging(attacked.attacker.uid, make) as attack:
        assert attack.next() == "ready"
        for number in range(count):
            _remove(target)
            # By its name, and in a tree.
            mover_as(attacked.victim, attacked.request("bait" if number % 2 else "", target, inward=False))
            for path in (target, target / "bait", target / "link"):
                if not path.is_symlink():
                    attacked.check_result(path)
            attacked.check_victim()


def attacked_tree(attacked: AttackedFolder, count: int) -> None:
    """Once: a tree was written to where a link led that was there beforehand, or came there."""
    source = attacked.outside / "tree"
    (source / "sub").mkdir(parents=True)
    for path in (source / "private", source / "sub" / "file"):
        path.write_bytes(b"of the tree")
    subprocess.run(["chown", "-R", f"{attacked.victim}:{attacked.victim}", str(source)], check=True)
    as_user(attacked.attacker.uid, lambda: (attacked.files / ".tree.incoming").symlink_to(attacked.closed))
    with attacked.exchanged(attacked.files, "tree"):
        for number in range(count):
            if number % 4 == 0:
                _remove(attacked.files / "tree")
            mover_as(attacked.victim, attacked.request("tree", source, inward=True))
            attacked.check_victim()
