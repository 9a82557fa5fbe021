# SPDX-License-Identifier: Apache-2.0
"""files/ in images of XFS: the kernel holds their capacity, and no mount is left or lost, whatever dies."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import forebay
from forebay.errors import DisconnectedError, InvalidArgumentError, PermissionDeniedError, RefusedError
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.mounted import fill, mounted
from tests.support.other_user import as_user
from tests.support.staging_server import StagingServer, StartError

_MIB = 1 << 20
_PERSON = 4711
_OPTIONS = ("--files-image", "xfs")


def mounts_below(folder: Path) -> list[str]:
    """Places where something is mounted."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [place for place in places if place.startswith(f"{folder}/")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StagingServer]:
    with mounted(tmp_path / "probe", 300, "xfs"):
        pass  # skips where that cannot be done
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # where other users may go
        running = StagingServer(Path(folder) / "root", options=_OPTIONS)
        running.start()
        try:
            yield running
        finally:
            running.kill()
            for place in mounts_below(Path(folder)):
                subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def admin(server: StagingServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[forebay.Admin]:
    monkeypatch.setenv("FOREBAY_ROOT", str(server.root))
    with forebay.Admin(reconnect_timeout=30) as connected:
        yield connected


def create(admin: forebay.Admin, name: str = "run1") -> Path:
    """A reservation of files alone; its files/."""
    return Path(admin.create(name, 0, files=300 * _MIB, persistent=True, owner_uid=_PERSON).files_path)


def problems(admin: forebay.Admin) -> list[str]:
    return [finding.what for finding in admin.audit()]


def test_the_kernel_refuses_what_does_not_fit(admin: forebay.Admin, server: StagingServer) -> None:
    files = create(admin)
    assert mounts_below(server.root) == [str(files)]
    assert files.stat().st_uid == _PERSON
    taken = fill(files).stat().st_size
    assert 200 * _MIB < taken < 300 * _MIB
    with pytest.raises(OSError, match="No space left"):
        (files / "more").write_bytes(b"x" * _MIB)
    assert taken <= (admin.reservation("run1").files_used_bytes or 0) < 300 * _MIB
    assert problems(admin) == []


def test_images_are_shared_as_folders_are(admin: forebay.Admin) -> None:
    files = create(admin)
    admin.share("run1", "write", user=_PERSON + 1)
    (files / "kept").write_text("water")
    written = as_user(_PERSON + 1, lambda: (files / "own").write_text((files / "kept").read_text()))
    assert written == 5
    with pytest.raises(PermissionDeniedError):
        as_user(_PERSON + 2, partial(_list_or_fail, files))


def _list_or_fail(files: Path) -> list[str]:
    try:
        return [path.name for path in files.iterdir()]
    except PermissionError as error:
        raise PermissionDeniedError(str(error)) from None


def test_what_xfs_cannot_hold_is_refused_with_the_reason(admin: forebay.Admin) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 300 MiB"):
        admin.create("run1", 0, files=100 * _MIB)
    admin.create("run2", 8 * _MIB)  # no capacity for files: no image
    create(admin)
    with pytest.raises(RefusedError, match="fixed size"):
        admin.change("run1", files=400 * _MIB)
    assert admin.change("run1", persistent=False).files_bytes == 300 * _MIB
    with pytest.raises(RefusedError, match="create a reservation with the capacity for files"):
        admin.change("run2", files=300 * _MIB)


def test_an_open_file_keeps_no_destroyed_reservation(admin: forebay.Admin, server: StagingServer) -> None:
    files = create(admin)
    with (files / "open").open("w"):
        admin.destroy("run1")
        assert mounts_below(server.root) == []
        until(lambda: list((server.root / "quarantine").iterdir()) == [], "the image to be deleted")


# crash-matrix: files/ in an image | server, killed, and unmounted meanwhile | its files are there when the server is back
def test_files_are_there_again_after_a_restart(admin: forebay.Admin, server: StagingServer) -> None:
    files = create(admin)
    (files / "kept").write_text("water")
    server.kill()
    assert (files / "kept").read_text() == "water"
    server.start()
    assert mounts_below(server.root) == [str(files)]
    server.kill()
    subprocess.run(["umount", str(files)], check=True)
    assert files.stat().st_mode & 0o077 == 0  # nobody writes below the mount's place
    server.start()
    assert (files / "kept").read_text() == "water"
    subprocess.run(["umount", str(files)], check=True)
    (problem,) = problems(admin)
    assert "not mounted" in problem


# crash-matrix: Creating and destroying a reservation with an image | server | it is there whole or gone, and no mount is left
@pytest.mark.parametrize("fail_point", ["server.reservation.created", "server.reservation.retired"])
def test_a_death_leaves_no_mount_behind(admin: forebay.Admin, server: StagingServer, fail_point: str) -> None:
    creates = fail_point.endswith("created")
    files = None if creates else create(admin)
    server.kill()
    server.start(fail_point=fail_point)
    with forebay.Admin() as impatient:
        change = partial(create, impatient) if creates else partial(impatient.destroy, "run1")
        with pytest.raises(DisconnectedError):
            change()
    server.kill()
    server.start()
    if creates:
        assert mounts_below(server.root) == [admin.reservation("run1").files_path]
        admin.destroy("run1")
    else:
        assert files is not None
        assert not files.exists()
    assert mounts_below(server.root) == []
    until(lambda: list((server.root / "quarantine").iterdir()) == [], "the image to be deleted")


# crash-matrix: Creating a reservation with an image | server, before it is whole | nothing is left of it, no mount either
def test_an_unfinished_image_is_unmounted_and_removed(admin: forebay.Admin, server: StagingServer) -> None:
    files = create(admin)
    server.kill()
    # As a death before the last rename leaves it.
    unfinished = files.parent.with_name(f".{files.parent.name}.new")
    files.parent.rename(unfinished)
    assert mounts_below(server.root) == [f"{unfinished}/files"]
    server.start()
    assert admin.reservations() == []
    assert mounts_below(server.root) == []
    assert not unfinished.exists()


def test_only_root_has_images(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        with pytest.raises(StartError, match="only root"):
            StagingServer(tmp_path / "root", options=_OPTIONS).start()
        return
    with tempfile.TemporaryDirectory() as folder:  # where other users may go
        os.chown(folder, _PERSON, _PERSON)
        with pytest.raises(StartError, match="only root"):
            StagingServer(Path(folder) / "root", options=_OPTIONS, user=_PERSON).start()


def test_the_configuration_chooses_images(server: StagingServer, tmp_path: Path) -> None:
    assert server.running()  # images can be mounted here
    instance = CommandLineInstance(tmp_path / "configured")
    configuration = tmp_path / "forebay.toml"
    instance.environment["FOREBAY_CONFIG"] = str(configuration)
    configuration.write_text(f'root = "{instance.root}"\nfiles_image = "ext4"\n')
    assert 'files_image must be "xfs"' in instance.run("up").stderr
    configuration.write_text(f'root = "{instance.root}"\nfiles_image = "xfs"\n')
    with instance:
        instance.ask("create", "run1", "--capacity", "0", "--files", "300MiB")
        (row,) = instance.ask("ls")["reservations"]
        assert mounts_below(instance.root) == [row["files_path"]]
    assert mounts_below(instance.root) == []
