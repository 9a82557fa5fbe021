# SPDX-License-Identifier: Apache-2.0
"""What a user writes into a folder where another may change names goes into no other file of that user's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay.new_output import new_output
from forebay.viz.publishing import publication
from tests.support.users import Users


@pytest.fixture
def common(place: Path) -> Path:
    """A folder where everybody may change names."""
    folder = place / "common"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_a_published_file_follows_no_link_that_another_has_put_there(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    private, target = ada.home / "private", common / "flow.000000.vti"
    ada.call(lambda: private.write_text("mine") and None)
    eve.call(lambda: (common / f".{target.name}.part").symlink_to(private))
    ada.call(lambda: publication._put(target, lambda path: path.write_text("published")))
    assert private.read_text() == "mine"
    assert target.read_text() == "published"


def test_who_exchanges_the_hidden_folder_gets_nothing_and_gives_nothing(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    target = common / "picture.png"

    def exchange() -> None:
        (hidden,) = common.glob(".picture.png.*.part")
        hidden.rename(common / "taken")
        hidden.mkdir()
        (hidden / target.name).write_text("eve's")

    may_write, is_exchanged = os.pipe()

    def write(tell: Callable[[Any], None]) -> str:
        with new_output(target) as path:
            tell("waits")
            os.read(may_write, 1)
            path.write_text("ada's")
        return "written"

    with ada.child(write) as child:
        assert child.next() == "waits"
        eve.call(exchange)
        os.write(is_exchanged, b"!")
        assert child.next() == "written"
    assert target.read_text() == "ada's"
    assert target.stat().st_uid == ada.uid
    assert os.listdir(common / "taken") == []
