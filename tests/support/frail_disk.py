# SPDX-License-Identifier: Apache-2.0
"""Disks of staging servers that lose what was not synced, are full, fail or take no writes (frail_disk.cpp)."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import stat
import subprocess
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import pytest

from tests.support.staging_server import forebayd

__all__ = ["DiskMode", "FrailDisk", "frail_server"]

_PAGE_BYTES = 4096


class DiskMode(StrEnum):
    """What a disk does; letters as in frail_disk.cpp."""

    SOUND = "o"
    FULL = "f"
    FAILING = "e"
    READ_ONLY = "r"


def frail_server(folder: Path, *options: str) -> Path:
    """A forebayd with these options more, each root of which lies on a disk of its own."""
    build = Path(os.environ.get("FOREBAY_BUILD_DIR") or "build/dev").resolve()
    library = build / "tests" / "support" / "libforebay_frail_disk.so"
    if not library.is_file():
        pytest.fail(f"{library} is missing: build it with `./run build`, or name another with FOREBAY_BUILD_DIR")
    program = folder / "frail-forebayd"
    # The first option is the root.
    program.write_text(
        "#!/bin/sh\n"
        'disk="$2.disk"\n'
        'mkdir -p "$2" "$disk/synced" && { [ -e "$disk/mode" ] || printf o > "$disk/mode"; } || exit 1\n'
        f'FOREBAY_FRAIL_DISK="$disk" FOREBAY_FRAIL_ROOT="$(readlink -f "$2")" LD_PRELOAD={shlex.quote(str(library))} '
        f'exec {shlex.quote(str(forebayd()))} "$@" {shlex.join(options)}\n'
    )
    program.chmod(0o755)
    return program


class FrailDisk:
    """The disk of one root, whose server frail_server() starts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root.with_name(f"{root.name}.disk")

    def set_mode(self, mode: DiskMode) -> None:
        """From now on, also for a server that runs."""
        with (self._folder / "mode").open("r+") as file:
            file.write(mode)

    def lose_power(self, chance: random.Random) -> int:
        """The node goes down, whose processes have been killed: of what was not synced some pages are as they were at
        the last sync, or all. The next start takes place after a boot. Returns how many pages were lost.
        """
        often = chance.choice([0.3, 1.0])
        files = [path for path in sorted(self.root.rglob("*")) if stat.S_ISREG(path.lstat().st_mode)]
        lost = sum(self._lose(path, copy, chance, often) for path, copy in zip(files, self._copies(files), strict=True))
        (self.root / "boot-id").write_text("another boot\n")
        return lost

    def _copies(self, files: Sequence[Path]) -> list[Path]:
        """Where each file's content as of its last sync is, if it ever was."""
        # An inode that is used again is made anew; Python cannot tell when.
        made = subprocess.check_output(["stat", "--format", "%i-%.9W", *files], text=True).splitlines()
        return [self._folder / "synced" / _name(each) for each in made]

    def _lose(self, path: Path, copy: Path, chance: random.Random, often: float) -> int:
        """Of one file."""
        if copy.exists():
            kept = copy.read_bytes()
        elif path.parent.name == "segments":
            # Of them only the size was promised.
            kept = bytes(path.stat().st_size)
        else:
            # What else is made is synced before anything is made of it.
            return 0
        now = path.read_bytes()
        left = bytearray(now)
        lost = 0
        for offset in range(0, min(len(kept), len(now)), _PAGE_BYTES):
            before = kept[offset : offset + _PAGE_BYTES]
            if before != now[offset : offset + len(before)] and chance.random() < often:
                left[offset : offset + len(before)] = before
                lost += 1
        if len(now) > len(kept) and chance.random() < often:
            del left[len(kept) :]
        if left != now:
            self._replace(path, left)
        return lost

    def _replace(self, path: Path, content: bytearray) -> None:
        """By another file: the kernel may still send pages of the old one for a socket of the server that is gone."""
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(content)
        shutil.copystat(path, new)
        new.replace(path)
        # What is left is on the disk.
        (copy,) = self._copies([path])
        shutil.copyfile(path, copy)


def _name(made: str) -> str:
    """As frail_disk.cpp writes it: the nanoseconds have no zeros before them."""
    whole, _, fraction = made.partition(".")
    return f"{whole}.{int(fraction)}"
