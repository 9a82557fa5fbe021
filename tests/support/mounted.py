# SPDX-License-Identifier: Apache-2.0
"""Small file systems of a test's own, mounted for as long as it needs them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["fill", "mounted", "silent_mount"]


@contextlib.contextmanager
def mounted(folder: Path, mebibytes: int, kind: str = "tmpfs") -> Iterator[Path]:
    """A file system of this size, of kind ``tmpfs``, ``ext4`` or ``xfs``, in a folder made for it. ``ramfs``: no size.

    Skips the test where it cannot be mounted.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system for this test")
    folder.mkdir()
    if kind == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "forebay-test", str(folder)]
    elif kind == "ramfs":
        mount = ["mount", "-t", "ramfs", "forebay-test", str(folder)]
    else:
        make = {"ext4": ["mkfs.ext4", "-q", "-m", "0"], "xfs": ["mkfs.xfs", "-q"]}[kind]
        if shutil.which(make[0]) is None:
            pytest.skip(f"{make[0]} is not installed")
        image = folder.with_name(f"{folder.name}.image")
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        subprocess.run([*make, str(image)], check=True)
        mount = ["mount", "-o", "loop", str(image), str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not possible here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily: a writer of ADIOS2 that failed keeps its file open until this process ends.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def silent_mount(folder: Path) -> Iterator[None]:
    """A FUSE file system of all users whose program never answers, on an empty folder: whoever asks it waits for ever.

    Skips the test where it cannot be mounted.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"FUSE is not possible here: {error}")
    try:
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"forebay-test", os.fsencode(folder), b"fuse", 0, options) != 0:
            pytest.skip(f"mounting is not possible here: {os.strerror(ctypes.get_errno())}")
        # Whatever name the folder has in the end.
        mounted_here = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield
        finally:
            detach = 2
            assert libc.umount2(f"/proc/self/fd/{mounted_here}".encode(), detach) == 0
            os.close(mounted_here)
    finally:
        # Those who wait get an error now.
        os.close(device)


def fill(place: Path) -> Path:
    """Takes all that is free on the file system; the file to remove."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        piece = b"x" * (1 << 20)
        while piece:
            try:
                written = file.write(piece)
                piece = piece[: max(written, 1)]
            except OSError:
                piece = piece[: len(piece) // 2]
    return ballast
