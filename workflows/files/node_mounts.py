# SPDX-License-Identifier: Apache-2.0
"""Mounts of reservations' files on a node: `node_folder/.mounts/ID`. Root makes them, and follows no name of a user's.

node_folder/.mounts/ID      the mount of the reservation with this uuid
node_folder/.answers/JOB    what the manager answered for a job on this node
node_folder/.answers/ID.turn    a lock, while somebody mounts or unmounts it
node_folder/JOB             a link to .mounts/ID/JOB
node_folder/.private/JOB    a link to .mounts/ID/private/NODE
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forebay.errors import DeadlineExceededError, StorageError
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.commands.site_mounts import SiteMounts, SiteWanted
from forebay.workflows.files.daemons import program_path
from forebay.workflows.files.driver_state import locked_file
from forebay.workflows.files.mounts import Mount, mount_at
from forebay.workflows.files.reserved_ports import connect_from_reserved
from forebay.workflows.files.unmounting import unmount

__all__ = ["NFS_OPTIONS", "STAGE_OPTIONS", "NodeMounts", "NotServedError", "Wanted", "make_root_folder"]

_ID = re.compile(r"[0-9a-f-]{8,64}")
_POLL_SECONDS = 0.1
#: Between runs of a site's command that has failed.
_SITE_POLL_SECONDS = 1.0
_REACHED_SECONDS = 5.0
#: How a node mounts files; tests and benchmarks mount alike. With `lookupcache=positive` no node takes a file that
#: another one has just made for missing, for half a minute; with `nosharecache` a mount is not the one before it, which
#: a program may keep alive, and which was made read-only.
NFS_OPTIONS = "vers=4.2,proto=tcp,sec=sys,hard,nosuid,nodev,lookupcache=positive,nosharecache"


#: How the manager's node does, for stages: names of each folder, and what lies under each name, as they are at the home
#: at that moment. One that follows files would else take a marker for there that was removed half a minute ago.
STAGE_OPTIONS = NFS_OPTIONS.replace("lookupcache=positive", "lookupcache=none,acdirmin=0,acdirmax=0")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One mount."""

    id: str  #: the reservation's uuid
    source: str  #: HOST:/EXPORT, or a folder of this node
    port: int  #: 0: it is a folder of this node, the home
    site: SiteWanted | None = None  #: a site's command mounts it; source and port say nothing


class NotServedError(StorageError):
    """These files are not served to this node, which has what it needs. Users can bring that about: each reservation
    has an NFS server of its own, which they may fill, and they may destroy what they have.
    """


def make_root_folder(path: Path, mode: int) -> None:
    """A folder that root alone changes; StorageError if something else has its name."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        pass
    except OSError as error:
        raise StorageError(f"the folder cannot be made: {error.strerror}", str(path)) from None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(f"this is no folder: {error.strerror}", str(path)) from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StorageError("others may change names in this folder; it must be root's alone", str(path))
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


class NodeMounts:
    """Those below a node's folder.

    Parameters
    ----------
    node : str
        This node, as Slurm names it.
    commands : SiteCommands, optional
        A site's own, for mounts of its engine.
    options : str
        Of NFS.
    mounter, unmounter, sealer : callable
        What asks the kernel; tests bring their own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        node: str = "",
        commands: SiteCommands | None = None,
        options: str = NFS_OPTIONS,
        mounter: Callable[[Wanted, Path, float], None] | None = None,
        unmounter: Callable[[Path, bool, float], str] | None = None,
        sealer: Callable[[Path, float], bool] | None = None,
        table: Path = Path("/proc/self/mountinfo"),
        file_systems: Path = Path("/proc/filesystems"),
    ) -> None:
        self.folder = folder
        self._mounter = mounter or partial(_mount, options)
        self._unmounter = unmounter or unmount
        self._sealer = sealer or _seal
        self._table = table
        self._file_systems = file_systems
        self._site = SiteMounts(folder / ".answers", node, commands, table)

    def prepare(self) -> None:
        """Makes the folders; StorageError if one is not root's alone."""
        make_root_folder(self.folder, 0o755)
        make_root_folder(self.folder / ".mounts", 0o755)
        make_root_folder(self.folder / ".private", 0o755)
        make_root_folder(self.folder / ".answers", 0o700)

    def place(self, reservation: str) -> Path:
        """Where the reservation is mounted."""
        if _ID.fullmatch(reservation) is None:
            raise StorageError("the manager names a reservation that has no uuid", str(self.folder))
        return self.folder / ".mounts" / reservation

    def turn(self, reservation: str, deadline: float) -> contextlib.AbstractContextManager[None]:
        """Held while it is mounted or unmounted: jobs share mounts. A server that does not answer holds up nobody who
        mounts from another one. Raises BusyError at the deadline.
        """
        self.place(reservation)
        return locked_file(self.folder / ".answers" / f"{reservation}.turn", deadline, passing=True)

    def reservations(self) -> list[str]:
        """All that have a place here, mounted or not."""
        return sorted(name for name in os.listdir(self.folder / ".mounts") if _ID.fullmatch(name))

    def is_mounted(self, reservation: str) -> bool:
        """Something is, whatever its source."""
        return mount_at(self.place(reservation), self._table) is not None

    def is_there(self, reservation: str) -> bool:
        """Something is mounted, or a site's command has left half of it."""
        return self.is_mounted(reservation) or self._site.is_known(reservation)

    def mount(self, wanted: Wanted, deadline: float) -> None:
        """Mounts it; idempotent. What another export showed there goes first: its node was fenced since. So does what
        an epilog has sealed that did not come to its end.

        Raises
        ------
        NotServedError
            By the deadline, on the monotonic clock, its server has not served it.
        StorageError
            It cannot be mounted by then, and that may be this node's fault.
        """
        place = self.place(wanted.id)
        if not self.is_mounted(wanted.id):
            make_root_folder(place, 0o755)
        if wanted.site is None:
            self._take_away_other(wanted, place, deadline)
        while True:
            try:
                if wanted.site is not None:
                    self._site.mount(wanted.id, place, wanted.site, deadline)
                elif not self.is_mounted(wanted.id):
                    self._mounter(wanted, place, deadline)
                return
            except (StorageError, DeadlineExceededError) as error:
                if self._is_gone(wanted):
                    raise NotServedError("the reservation is gone", wanted.source) from None
                if time.monotonic() > deadline:
                    if wanted.site is None and wanted.port and self._reaches(wanted):
                        raise NotServedError(error.what, error.where) from None
                    raise
                time.sleep(_POLL_SECONDS if wanted.site is None else _SITE_POLL_SECONDS)

    def _is_gone(self, wanted: Wanted) -> bool:
        """A folder of this node, the home, that somebody has destroyed: what has those of all reservations is there."""
        is_folder = wanted.site is None and not wanted.port
        return is_folder and not os.path.lexists(wanted.source) and Path(wanted.source).parents[1].is_dir()

    def _reaches(self, wanted: Wanted) -> bool:
        """This node has NFS, and the kernel of the server's node answers, whether or not its NFS server does."""
        address = wanted.source.rpartition(":/")[0].strip("[]")
        try:
            if not any(line.split()[-1:] == ["nfs4"] for line in self._file_systems.read_text().splitlines()):
                return False
            connect_from_reserved(address, wanted.port, _REACHED_SECONDS).close()
        except ConnectionRefusedError:
            return True
        except (OSError, ValueError):
            return False
        return True

    def what_changed(self, reservation: str) -> str:
        """Why what programs have written to a site's engine may be lost; "" if nothing says so."""
        return self._site.what_changed(reservation, self.place(reservation))

    def _take_away_other(self, wanted: Wanted, place: Path, deadline: float) -> None:
        """What is mounted there, if it is not what is wanted."""
        if self._site.is_known(wanted.id):
            self._site_must_go(wanted.id, deadline)
        while (mount := mount_at(place, self._table)) is not None:
            if not mount.read_only and self._shows(mount, wanted):
                return
            self._must_go(place, self._unmounter(place, True, deadline), deadline)

    def _shows(self, mount: Mount, wanted: Wanted) -> bool:
        if wanted.port:
            return mount.source == wanted.source
        try:
            status = os.stat(wanted.source)
        except FileNotFoundError:
            return False
        of_tree = mount_at(Path(wanted.source), self._table)
        root = "/" if of_tree is None else of_tree.root
        return (mount.root, mount.device) == (root, f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}")

    def sync(self, reservation: str, uid: int, gid: int, deadline: float) -> str:
        """Writes out what the node has of it, with the rights of its user: root is nobody there. What failed; "" if
        nothing did.
        """
        command = [sys.executable, "-P", "-m", "forebay.workflows.files.sync_as", str(self.place(reservation))]
        process = subprocess.Popen(
            [*command, str(uid), str(gid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            words, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel ends it, whatever the server does; nobody waits for that here
            return "what was written did not reach the server in time"
        return "" if process.returncode == 0 else words.decode(errors="replace").strip()[-200:] or "sync was killed"

    def unmount(self, reservation: str, deadline: float) -> str:
        """Unmounts it, bounded, or seals it, where programs keep it alive that write nothing: then it stays mounted,
        and is to be synced once more and detached. What is in the way at the deadline, "" if nothing is.
        """
        place = self.place(reservation)
        if self._site.is_known(reservation):
            if said := self._site.unmount(reservation, place, lazy=False, deadline=deadline):
                return f"it cannot be unmounted: {said}"
            self._remove_place(place)
            return ""
        while (mount := mount_at(place, self._table)) is not None:
            said = self._unmounter(place, False, deadline)
            if not self.is_mounted(reservation):
                continue
            if mount.kind.startswith("nfs") and self._sealer(place, deadline):
                return ""
            if time.monotonic() > deadline:
                return f"it cannot be unmounted: {said}"
            if said:
                time.sleep(_POLL_SECONDS)
        self._remove_place(place)
        return ""

    def detach(self, reservation: str, deadline: float) -> None:
        """Takes the mount from its place at once; what is open in it ends with its programs."""
        place = self.place(reservation)
        if self._site.is_known(reservation):
            self._site_must_go(reservation, deadline)
        while self.is_mounted(reservation):
            self._must_go(place, self._unmounter(place, True, deadline), deadline)
        self._remove_place(place)

    def _site_must_go(self, reservation: str, deadline: float) -> None:
        place = self.place(reservation)
        while said := self._site.unmount(reservation, place, lazy=True, deadline=deadline):
            self._must_go(place, said, deadline)
            time.sleep(_SITE_POLL_SECONDS)

    def _must_go(self, place: Path, said: str, deadline: float) -> None:
        if said and time.monotonic() > deadline:
            raise StorageError(f"it cannot be taken away: {said}", str(place))

    def _remove_place(self, place: Path) -> None:
        try:
            place.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY):
                raise


def _mount(options: str, wanted: Wanted, place: Path, deadline: float) -> None:
    if wanted.port:
        options = f"{options},port={wanted.port},retry=0"
        command = [program_path("mount", "mount"), "-n", "-t", "nfs4", "-o", options, wanted.source, str(place)]
        _run(command, place, deadline)
        return
    mount = program_path("mount", "mount")
    _run([mount, "-n", "--bind", "-o", "nosuid,nodev", wanted.source, str(place)], place, deadline)


def _run(command: list[str], place: Path, deadline: float) -> None:
    left = max(0.1, deadline - time.monotonic())
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=left, check=False
        )
    except subprocess.TimeoutExpired:
        raise StorageError("the server does not answer: it is not mounted in time", str(place)) from None
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise StorageError(f"it cannot be mounted: {words[-200:]}", str(place))


def _seal(place: Path, deadline: float) -> bool:
    """By a process, too: what nobody has written out yet, the kernel writes out first, for as long as that takes."""
    command = [sys.executable, "-P", "-m", "forebay.workflows.files.seal", str(place)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        return process.wait(timeout=max(0.5, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        process.kill()  # as in `sync`: nobody waits for that here
        return False
