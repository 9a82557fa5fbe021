# SPDX-License-Identifier: Apache-2.0
"""`forebay config`, and that it, CMake's package and pkg-config's file say the same."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from forebay.cxx_package import cxx_package


def config(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "config", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_folders_hold_what_they_are_named_for() -> None:
    assert Path(config("--cmake-dir").strip(), "forebay-config.cmake").is_file()
    assert Path(config("--pkg-config-dir").strip(), "forebay.pc").is_file()


def test_pkg_config_says_the_same() -> None:
    environment = os.environ | {"PKG_CONFIG_PATH": config("--pkg-config-dir").strip()}
    for option in ("--cflags", "--libs"):
        done = subprocess.run(
            ["pkg-config", option, "forebay"], env=environment, capture_output=True, text=True, check=True
        )
        assert [same(word) for word in shlex.split(done.stdout)] == [same(word) for word in shlex.split(config(option))]


def same(flag: str) -> str:
    """A flag with its folder made plain: pkg-config leaves `..` in it."""
    start = flag.find("/")
    return flag if start < 0 else flag[:start] + os.path.realpath(flag[start:])


def test_json_has_all() -> None:
    told = json.loads(config("--json"))
    assert set(told) == {"cmake_dir", "pkg_config_dir", "cflags", "libs"}
    assert shlex.join([*told["cflags"], *told["libs"]]) == config("--cflags", "--libs").strip()


def test_every_public_header_is_installed() -> None:
    (include,) = (flag.removeprefix("-I") for flag in cxx_package().cflags)
    sources = Path(__file__).parents[2] / "core" / "include" / "forebay"
    assert {header.name for header in Path(include, "forebay").glob("*.h")} == {
        header.name for header in sources.glob("*.h")
    }


def test_two_folders_at_once_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "config", "--cmake-dir", "--pkg-config-dir"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "each stand alone" in done.stderr


def test_an_installation_without_the_native_parts_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forebay, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(forebay.NotFoundError, match="no C\\+\\+ package"):
        cxx_package()
