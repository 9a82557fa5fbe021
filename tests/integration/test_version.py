# SPDX-License-Identifier: Apache-2.0
"""The version is the same wherever one asks for it."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

import forebay
from forebay.cli import root
from tests.support.staging_server import StagingServer, forebayd

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_pyproject_package_command_and_server_tell_the_same_version(
    server: StagingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with PROJECT.open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    assert forebay.__version__ == version
    assert root.run(["--version"]) == 0
    assert capsys.readouterr().out == f"forebay {version}\n"
    done = subprocess.run([str(forebayd()), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"forebayd {version}\n"
    with forebay.Admin() as admin:
        assert admin.server().version == version
