# SPDX-License-Identifier: Apache-2.0
"""Programs that Forebay starts take no module from the working directory, where others may have put some."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from forebay.errors import ForebayError
from forebay.workflows.files.engines import FilesEngines
from forebay.workflows.files.node_mounts import NodeMounts
from forebay.workflows.files.settings import FilesSettings
from tests.support.users import Users

_RESERVATION = "0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a"


def _plant(folder: Path, witness: Path) -> None:
    (folder / "forebay").mkdir()
    for module in ("forebay/__init__.py", "json.py", "ctypes.py", "pwd.py"):
        (folder / module).write_text(f"open({str(witness)!r}, 'w')\n")


def test_root_runs_nothing_that_lies_in_the_working_directory(
    users: Users, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve = users("eve")
    common = place / "common"
    common.mkdir()
    common.chmod(0o1777)
    witness = common / "was run"
    eve.call(lambda: _plant(common, witness))
    monkeypatch.chdir(common)
    mounts = NodeMounts(place / "nodes")
    mounts.prepare()
    mounts.place(_RESERVATION).mkdir()
    assert mounts.sync(_RESERVATION, eve.uid, eve.gid, time.monotonic() + 60) == ""
    engines = FilesEngines(place / "drivers", FilesSettings(address="127.0.0.1"))
    with pytest.raises(ForebayError):
        engines.open(_RESERVATION, common, {})
    assert not witness.exists()
