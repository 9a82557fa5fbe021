# SPDX-License-Identifier: Apache-2.0
"""Changing a reservation: its lifetime, its capacity for files; what is refused, and what a death leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import forebay
from tests.fault.instance import Instance
from tests.support.other_user import as_user, folder_for_all

STRANGER = 65534


def change(instance: Instance, **changes: object) -> forebay.ReservationInfo:
    with instance.admin() as admin:
        return admin.change("r", **changes)  # type: ignore[arg-type]


def test_lifetime_and_files_change_and_survive_the_server(instance: Instance) -> None:
    """Each alone; again changes nothing. Streams and what lies in files/ stay."""
    instance.write("r/flow", steps=2).succeed()
    for _ in range(2):
        info = change(instance, persistent=True)
        assert (info.lifetime, info.files_bytes) == (forebay.records.Lifetime.PERSISTENT, 0)
    for _ in range(2):
        info = change(instance, files="3MiB")
        assert (info.lifetime, info.files_bytes) == (forebay.records.Lifetime.PERSISTENT, 3 << 20)
    assert change(instance) == info
    (Path(info.files_path) / "data").write_bytes(bytes(2 << 20))
    instance.kill()
    instance.start()
    with instance.admin() as admin:
        found = admin.reservation("r")
        assert (found.lifetime, found.files_bytes) == (info.lifetime, info.files_bytes)
        assert (found.files_used_bytes or 0) >= 2 << 20
    assert len(instance.check("r/flow")) == 2
    info = change(instance, persistent=False)
    assert info.lifetime is forebay.records.Lifetime.JOB


def test_files_never_have_less_than_lies_there(instance: Instance) -> None:
    info = change(instance, files="4MiB")
    (Path(info.files_path) / "data").write_bytes(bytes(3 << 20))
    with pytest.raises(forebay.RefusedError, match=r"lie in its files/, more than 2 MiB"):
        change(instance, files="2MiB")
    with instance.admin() as admin:
        assert admin.reservation("r").files_bytes == 4 << 20
    (Path(info.files_path) / "data").unlink()
    assert change(instance, files="2MiB").files_bytes == 2 << 20
    assert change(instance, files=0).files_bytes == 0


def test_files_take_from_the_pool_and_give_back(instance: Instance) -> None:
    """No byte is granted twice, and none is lost."""
    with instance.admin() as admin:
        free = admin.server().pool_bytes - admin.server().reserved_bytes
        with pytest.raises(forebay.NoSpaceError, match="do not fit"):
            admin.change("r", files=free + (1 << 20))
        assert admin.server().pool_bytes - admin.server().reserved_bytes == free
        admin.change("r", files=free)
        assert admin.server().pool_bytes == admin.server().reserved_bytes
        admin.change("r", files=1 << 20)
        assert admin.server().pool_bytes - admin.server().reserved_bytes == free - (1 << 20)


def test_what_is_not_there_is_not_changed(instance: Instance) -> None:
    with instance.admin() as admin, pytest.raises(forebay.NotFoundError):
        admin.change("nothing", persistent=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_others_change_nothing() -> None:
    """It is the manager that decides about quotas: owners ask it."""
    with folder_for_all("changes") as folder, Instance(folder / "root") as instance:
        socket = instance.socket()
        instance.create("r", "64MiB")
        with instance.admin() as admin:
            admin.share("r", "write", user=STRANGER)

        def act() -> None:
            with forebay.Admin(socket) as admin:
                admin.change("r", persistent=True)

        with pytest.raises(forebay.PermissionDeniedError, match="forebay change"):
            as_user(STRANGER, act)


# crash-matrix: changing a reservation | server, at `server.reservation.changed`, before it is answered | the change; asked again, it is answered
def test_a_server_that_dies_has_changed_it(instance: Instance) -> None:
    instance.restart("server.reservation.changed")
    with instance.admin() as admin, pytest.raises(forebay.DisconnectedError):
        admin.change("r", persistent=True, files="1MiB")
    instance.wait()
    instance.start()
    with instance.admin() as admin:
        found = admin.reservation("r")
    assert (found.lifetime, found.files_bytes) == (forebay.records.Lifetime.PERSISTENT, 1 << 20)
    assert change(instance, persistent=True, files="1MiB").files_bytes == 1 << 20
