# SPDX-License-Identifier: Apache-2.0
"""What a writer does to the files of its segments costs that writer alone: no disk, no reservation, no reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import forebay
from forebay import ForebayError, Rights
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.users import User, Users

Tell = Callable[[Any], None]
MIB = 1 << 20
ELEMENTS = 100_000


def held_segments() -> list[int]:
    """Descriptors of segments that this process has."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if "/segments/" in target:
            found.append(int(entry.name))
    return found


def maps_segments() -> bool:
    """This process has a segment mapped."""
    return "/segments/" in Path("/proc/self/maps").read_text()


def disk_bytes(folder: Path) -> int:
    """What the segments of the only reservation take."""
    return sum(path.stat().st_blocks * 512 for path in folder.glob("reservations/*/segments/*"))


def write_and(socket: str, misuse: Callable[[int], object], tell: Tell, go_on: int) -> object:
    """Writes a step, misuses the segments on a sign, and goes on; tells what becomes of that."""
    with forebay.open("bobs/flow", "w", instance=socket, rank=0, ranks=1) as stream:
        with stream.step() as step:
            step["T"] = np.arange(ELEMENTS, dtype=np.float64)
        tell("written")
        os.read(go_on, 1)
        for segment in held_segments():
            misuse(segment)
        tell("misused")
        os.read(go_on, 1)
        try:
            with stream.step() as step:
                step["T"] = np.ones(ELEMENTS)
        except ForebayError as error:
            return error.what
    return "went on"


def test_a_writer_beyond_the_end_loses_its_group_and_the_disk_is_given_back(users: Users, server: Instance) -> None:
    bob, ada = users("bob"), users("ada")
    for user, name in ((bob, "bobs"), (ada, "adas")):
        server.create(name, "32MiB", owner_uid=user.uid, owner_gid=user.gid)
    socket, before = server.socket(), disk_bytes(server.root)
    sign, give = os.pipe()

    def misuse(segment: int) -> None:
        os.pwrite(segment, bytes(8 * MIB), os.fstat(segment).st_size)

    with bob.child(lambda tell: write_and(socket, misuse, tell, sign)) as writer:
        assert writer.next() == "written"
        os.write(give, b"x")
        assert writer.next() == "misused"
        until(lambda: disk_bytes(server.root) <= before + MIB, "the disk is given back")
        os.write(give, b"x")
        assert "beyond the" in writer.next()
    # At the next start all is there, and whole.
    server.kill()
    server.start()
    with server.admin() as admin:
        assert sorted(found.name for found in admin.reservations()) == ["adas", "bobs"]
        assert admin.stream("bobs/flow").steps == 1
    assert server.problems() == []


def test_a_truncated_segment_costs_its_steps_and_no_reservation(users: Users, server: Instance) -> None:
    bob = users("bob")
    server.create("bobs", "32MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    socket = server.socket()
    sign, give = os.pipe()

    with bob.child(lambda tell: write_and(socket, lambda segment: os.ftruncate(segment, 0), tell, sign)) as writer:
        assert writer.next() == "written"
        os.write(give, b"x")
        assert writer.next() == "misused"
        server.kill()
    server.start()
    with server.admin() as admin:
        assert [found.name for found in admin.reservations()] == ["bobs"]
        assert admin.stream("bobs/flow").steps == 1
        assert any("flow: 0" in finding.what for finding in admin.audit(read_data=False))

    def read() -> str:
        try:
            np.asarray(forebay.open("bobs/flow", instance=socket)[0]["T"])
        except ForebayError as error:
            return error.code.value
        return "read"

    assert bob.call(read) == "corrupt"


def view_of(reader: User, socket: str, look: int, **options: Any) -> Any:
    """A child that views a step, and tells whether it has it mapped; and later, on a sign, what the view holds."""

    def function(tell: Tell) -> object:
        step = forebay.open("bobs/flow", instance=socket, **options)[0]
        view = step["T"].view()
        tell(maps_segments())
        os.read(look, 1)
        return float(view.sum())

    return reader.child(function)


def test_a_view_of_another_users_stream_survives_its_truncation(users: Users, server: Instance) -> None:
    bob, ada = users("bob"), users("ada")
    server.create("bobs", "32MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    with server.admin() as admin:
        admin.share("bobs", Rights.READ, user=ada.uid)
    socket = server.socket()
    sign, give = os.pipe()
    look, let_look = os.pipe()
    never, _ = os.pipe()
    expected = float(np.arange(ELEMENTS, dtype=np.float64).sum())

    with bob.child(lambda tell: write_and(socket, lambda segment: os.ftruncate(segment, 0), tell, sign)) as writer:
        assert writer.next() == "written"
        with (
            view_of(ada, socket, look) as strangers,
            view_of(ada, socket, never, trust_writer=True) as trusting,
            view_of(bob, socket, never) as own,
        ):
            assert strangers.next() is False
            assert trusting.next() is True
            assert own.next() is True
            os.write(give, b"x")
            assert writer.next() == "misused"
            os.write(let_look, b"x")
            assert strangers.next() == expected


def test_views_are_mapped_once_nobody_writes(users: Users, server: Instance) -> None:
    bob, ada = users("bob"), users("ada")
    server.create("bobs", "32MiB", owner_uid=bob.uid, owner_gid=bob.gid)
    with server.admin() as admin:
        admin.share("bobs", Rights.READ, user=ada.uid)
    socket = server.socket()
    never, _ = os.pipe()

    def write() -> None:
        with forebay.open("bobs/flow", "w", instance=socket, rank=0, ranks=1) as stream, stream.step() as step:
            step["T"] = np.arange(ELEMENTS, dtype=np.float64)

    bob.call(write)
    with view_of(ada, socket, never) as reader:
        assert reader.next() is True
    # After a restart of the server in the same boot as well.
    server.kill()
    server.start()
    with view_of(ada, socket, never) as reader:
        assert reader.next() is True
