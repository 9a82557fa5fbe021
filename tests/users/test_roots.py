# SPDX-License-Identifier: Apache-2.0
"""A root that another user has prepared, or can write in, is no root of an instance: root would follow its names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.instance import CommandLineInstance
from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds
from tests.support.users import Users

_TOLD = "belongs to, or can be written by, somebody else"
_NAMES = ("lock", "switch.lock", "endpoint", "boot-id", "identity")


def _prepare(root: Path, target: Path) -> None:
    root.mkdir(mode=0o755, exist_ok=True)
    for name in _NAMES:
        (root / name).symlink_to(target)


@pytest.mark.parametrize("made_by_root", [False, True])
def test_a_root_that_somebody_else_can_write_in_is_refused(made_by_root: bool, users: Users, place: Path) -> None:
    eve = users("eve")
    common = place / "common"
    common.mkdir()
    common.chmod(0o1777)
    root, target = common / "root", place / "made by root"
    if made_by_root:
        root.mkdir()
        root.chmod(0o1777)
    eve.call(lambda: _prepare(root, target))
    instance = CommandLineInstance(root)
    try:
        done = instance.run(*instance.up_command)
        assert (done.returncode, _TOLD in done.stderr) == (1, True), done.stderr
        # The server alone, as a service may start it.
        server = subprocess.run(
            [forebayd(), "--root", root], capture_output=True, text=True, timeout=seconds(60), check=False
        )
        assert (server.returncode != 0, _TOLD in server.stderr) == (True, True), server.stderr
        assert not target.exists()
    finally:
        instance.run("down", "--force")
