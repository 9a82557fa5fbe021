# SPDX-License-Identifier: Apache-2.0
"""Bringing an instance up and down: server and manager together, idempotent, one at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forebay
from forebay import _core
from forebay.errors import (
    DeadlineExceededError,
    DisconnectedError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from forebay.instance import Instance, server_binary, server_place
from forebay.manager.client import ManagerClient, parse_answer
from forebay.manager.pool_membership import PoolMembership
from forebay.records import ServerInfo
from forebay.workflows.manager.core.configuration import (
    configuration_file,
    database_place,
    files_groups,
    files_image,
    read_configuration,
)
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.instance.daemon import Daemon
from forebay.workflows.manager.instance.running_daemons import running_daemons, strangers_text
from forebay.workflows.staging.publication import write_whole

__all__ = ["InstanceControl", "InstanceState"]

_START_SECONDS_MAX = 120.0  # Recovery after power loss reads every block that was not durable.
_STOP_SECONDS_MAX = 60.0
_STRANGERS_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class InstanceState:
    """What `forebay up` brought about."""

    server: ServerInfo
    server_started: bool
    manager_started: bool
    notes: list[str]  #: what whoever started it should know


class InstanceControl:
    """Up and down for one instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._server = Daemon("forebayd", instance.server_lock, instance.server_identity, instance.server_log)
        self._manager = Daemon("the manager", instance.manager_lock, instance.manager_identity, instance.manager_log)

    def up(
        self,
        capacity_bytes: int | None,
        listen: str | None = None,
        *,
        fabric: str | None = None,
        fabric_peers: str | None = None,
        control_encryption: str | None = None,
        shared: bool = False,
        oversubscribe: bool = False,
        pool_key: Path | None = None,
        name: str | None = None,
        join: str | None = None,
    ) -> InstanceState:
        """Starts what does not run. Returns when both serve.

        Parameters
        ----------
        shared : bool
            Other users may have reservations.
        oversubscribe : bool
            The capacity may be more than the disk has.
        pool_key : Path, optional
            The server belongs to a pool of servers, whose key this is. Not given: as the last time.
        name : str, optional
            Of the server in the pool; not given: as the last time, else its node's.
        join : str, optional
            HOST:PORT of the server on the node of the pool's manager: none is started here. Not given: as the last
            time, else this instance's manager is the pool's.
        """
        self._make_root()
        with self._switch():
            membership = self._membership(pool_key, listen, name, join)
            server_started = not self._server.is_running
            if server_started:
                if capacity_bytes is not None and not oversubscribe:
                    self._check_disk(capacity_bytes)
                command = [str(server_binary()), "--root", str(self._instance.root)]
                if capacity_bytes is not None:
                    command += ["--capacity", str(capacity_bytes)]
                if membership is not None:
                    command += ["--listen", membership.listen, "--pool-key", membership.key]
                elif listen is not None:
                    command += ["--listen", listen]
                if fabric is not None:
                    command += ["--fabric", fabric]
                if fabric_peers is not None:
                    command += ["--fabric-peers", fabric_peers]
                if control_encryption is not None:
                    command += ["--control-encryption", control_encryption]
                configuration = configuration_file()
                tables = read_configuration(configuration)
                if image := files_image(tables, self._instance, configuration):
                    command += ["--files-image", image]
                if groups := files_groups(tables, self._instance, configuration):
                    command += ["--files-groups", groups]
                self._server.start(command, self._environment(), _START_SECONDS_MAX)
            elif fabric is not None or control_encryption is not None or (listen is not None and membership is None):
                raise InvalidArgumentError(
                    "the instance runs already; to open a port, run `forebay down --keep`, then "
                    "`forebay up --listen …`",
                    str(self._instance.root),
                )
            info = self._server_info()
            if not server_started and capacity_bytes is not None and not _about_equal(capacity_bytes, info):
                raise InvalidArgumentError(
                    f"the instance runs with a capacity of {forebay.format_size(info.pool_bytes)}; to change it, run "
                    "`forebay down --keep`, then `forebay up --capacity …`",
                    str(self._instance.root),
                )
            manager_started = False
            joined_note = ""
            if membership is not None and membership.manager:
                joined_note = self._join(membership)
            elif not self._manager_serves():
                manager_started = True
                self._start_manager(shared=shared)
            elif shared:
                self._check_shared()
            notes = [note for note in (joined_note, self._full_disk(info), self._strangers()) if note]
            return InstanceState(info, server_started, manager_started, notes)

    def down(self, *, force: bool, keep: bool = False) -> dict[str, Any]:
        """Destroys what is not persistent, unless `keep`, and ends both daemons. Returns what was done; idempotent.

        Where the server is down already, nothing can be destroyed: `to_destroy` has what the next `up` destroys. The
        same holds for reservations on other servers of the pool that are away; they must be back then.

        Raises
        ------
        RefusedError
            There are jobs or attachments, or a reservation that would go has writers or unstaged precious steps, and
            neither `force` nor `keep` was given. Both daemons keep running, and nothing was destroyed.
        """
        if not self._instance.root.is_dir():
            return {"was_running": False, "destroyed": [], "to_destroy": [], "killed": False}
        to_destroy: list[str] = []
        destroyed: list[str] = []
        with self._switch():
            was_running = self._server.is_running or self._manager.is_running
            membership = PoolMembership.read(self._instance)
            # The reservations of a server of a pool are its manager's.
            keep = keep or (membership is not None and bool(membership.manager))
            if self._server.is_running:
                # With `keep` nothing is asked of them, so that they end also if they do not answer.
                if not keep:
                    destroyed, to_destroy = self._destroy_through_manager(force=force)
                killed = self._stop(self._manager)
                killed = self._stop(self._server) or killed
            else:
                # Nobody can destroy anything now; what is not persistent goes when the instance comes up again.
                if not keep:
                    to_destroy = self._doom_non_persistent(force=force)
                killed = self._stop(self._manager)
        return {"was_running": was_running, "destroyed": destroyed, "to_destroy": to_destroy, "killed": killed}

    def _membership(
        self, pool_key: Path | None, listen: str | None, name: str | None, join: str | None
    ) -> PoolMembership | None:
        """What is asked for, over what was so far; None: no pool. Written down if it is another.

        Raises
        ------
        InvalidArgumentError
            Something is missing, or the daemons run and would have to be others.
        """
        before = PoolMembership.read(self._instance)
        if pool_key is None and name is None and join is None and (before is None or listen in (None, before.listen)):
            return before
        if before is None and pool_key is None:
            raise InvalidArgumentError("a server of a pool has the pool's key: give --pool-key FILE, too")
        if before is None and listen is None:
            raise InvalidArgumentError("the other servers of a pool reach this one at a port: give --listen HOST:PORT")
        membership = PoolMembership(
            name or (before.name if before else server_name()),
            listen or (before.listen if before else ""),
            str(pool_key.absolute()) if pool_key is not None else before.key if before else "",
            join if join is not None else before.manager if before else "",
        )
        if membership == before:
            return before
        if self._server.is_running or self._manager.is_running:
            raise InvalidArgumentError(
                "the instance runs already; to change its place in a pool, run `forebay down --keep`, then the same "
                "`forebay up`",
                str(self._instance.root),
            )
        if membership.manager:
            # Commands of this node ask the pool's manager from now on.
            self._instance.manager_endpoint.unlink(missing_ok=True)
        write_whole(self._instance.pool_membership, membership.text, mode=0o644)
        return membership

    def _join(self, membership: PoolMembership) -> str:
        """Tells the pool's manager that this server is there; what the user is told: that the server was not in the
        pool, or takes nothing new no longer, or that the manager is away, which finds a server that was in the pool.
        """
        body = json.dumps({"name": membership.name, "address": membership.listen}).encode()
        try:
            place = _core.pool_server(server_place(self._instance), membership.manager)
            with closing(_core.Admin.connect(place, 0)) as admin:
                known = parse_answer(*admin.call_manager("GET", "/servers", b""), "/servers")
                parse_answer(*admin.call_manager("POST", "/servers", body), "/servers")
        except DisconnectedError as error:
            if not self._instance.pool_directory.exists():
                raise
            return f"the pool's manager cannot be reached now ({error.what}); it finds this server when it is back"
        before = next((server for server in known if server["server"] == membership.name), None)
        if before is None:
            return f"this server has joined the pool as {membership.name}; its manager is at {membership.manager}"
        return "this server was retired; it takes new reservations again" if before["retired"] else ""

    def _check_disk(self, capacity_bytes: int) -> None:
        disk = os.statvfs(self._instance.root)
        disk_bytes = disk.f_blocks * disk.f_frsize
        if capacity_bytes > disk_bytes:
            raise InvalidArgumentError(
                f"the capacity is {forebay.format_size(capacity_bytes)}, and the disk below the root has "
                f"{forebay.format_size(disk_bytes)}; give less, or say --oversubscribe if jobs may fill the disk",
                str(self._instance.root),
            )

    def _full_disk(self, info: ServerInfo) -> str:
        """What is told if the disk has less room than the pool gives away; "" if it has not."""
        disk = os.statvfs(self._instance.root)
        free_bytes = disk.f_bavail * disk.f_frsize
        promised_bytes = info.pool_bytes - info.reserved_bytes
        if promised_bytes <= free_bytes:
            return ""
        return (
            f"the pool has {forebay.format_size(promised_bytes)} to give, and the disk has "
            f"{forebay.format_size(free_bytes)} free: reservations may fail although the pool has room"
        )

    def _strangers(self) -> str:
        """Those of a root that was removed end by themselves soon; what is told of those that do not."""
        deadline = time.monotonic() + _STRANGERS_SECONDS_MAX
        while (text := strangers_text(self._instance)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return text

    def to_be_destroyed(self) -> list[str] | None:
        """The reservations that `down` would destroy; None if that cannot be told."""
        try:
            with ManagerClient(self._instance) as manager:
                return [row.name for row in manager.reservations() if not row.persistent]
        except DisconnectedError:
            return None

    def _stop(self, daemon: Daemon) -> bool:
        """Ends the one that holds the root's lock, also if the file that names it was removed."""
        found = running_daemons(self._instance)
        holders = [one.pid for one in found if one.has_lock and one.name == daemon.name]
        return daemon.stop(_STOP_SECONDS_MAX, holders[0] if holders else None)

    def _destroy_through_manager(self, *, force: bool) -> tuple[list[str], list[str]]:
        if self._manager.is_running:
            try:
                with ManagerClient(self._instance) as manager:
                    return manager.shut_down(force=force)
            except DisconnectedError:
                # It hangs, or is just ending; a new one finds out what there is.
                self._stop(self._manager)
        self._start_manager()
        with ManagerClient(self._instance) as manager:
            return manager.shut_down(force=force)

    def _doom_non_persistent(self, *, force: bool) -> list[str]:
        configuration = configuration_file()
        place = database_place(read_configuration(configuration), self._instance, configuration)
        if isinstance(place, Path) and not place.exists():
            return []
        # The database costs every other command a quarter of a second.
        from forebay.workflows.manager.core.reservations.dooming import doom_non_persistent

        return doom_non_persistent(place, self._instance.root, force=force)

    def _check_shared(self) -> None:
        with ManagerClient(self._instance) as manager:
            if not manager.health().shared:
                raise InvalidArgumentError(
                    "the instance runs and takes no reservations of other users; to change it, run "
                    "`forebay down --keep`, then `forebay up --shared`",
                    str(self._instance.root),
                )

    def _manager_serves(self) -> bool:
        """Waits for one that is just starting, and for one that is just ending: its stages end before it."""
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        while self._manager.is_running:
            try:
                with ManagerClient(self._instance) as manager:
                    manager.health()
            except DisconnectedError as error:
                if time.monotonic() > deadline:
                    raise DeadlineExceededError(
                        f"the manager runs but does not answer: {error.what}; see its log, then `forebay down --keep`",
                        str(self._instance.manager_log),
                    ) from None
                time.sleep(0.05)
            else:
                return True
        return False

    def _start_manager(self, *, shared: bool = False) -> None:
        command = [sys.executable, "-P", "-m", "forebay.workflows.manager", "--root", str(self._instance.root)]
        self._manager.start(
            [*command, "--shared"] if shared else command,
            self._environment(),
            _START_SECONDS_MAX,
        )

    def _server_info(self) -> ServerInfo:
        """Asks the server, which may just be starting."""
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            try:
                with forebay.Admin(self._instance) as admin:
                    return admin.server()
            except (DisconnectedError, NotFoundError) as error:
                if not self._server.is_running:
                    raise
                if time.monotonic() > deadline:
                    raise DeadlineExceededError(
                        f"forebayd runs but does not answer: {error.what}; see its log, then `forebay down --keep`",
                        str(self._instance.server_log),
                    ) from None
                time.sleep(0.05)

    def _environment(self) -> dict[str, str]:
        membership = PoolMembership.read(self._instance)
        name = {} if membership is None else {"FOREBAY_SERVER_NAME": membership.name}
        return os.environ | {"FOREBAY_ROOT": str(self._instance.root), "FOREBAY_SOCKET": ""} | name

    def _make_root(self) -> None:
        try:
            # Others may reach the files of their own reservations, but not look around.
            self._instance.root.mkdir(mode=0o711, parents=True, exist_ok=True)
            _check_owned(self._instance.root)
            # The logs name what others have, and who they are.
            log = self._instance.server_log.parent
            log.mkdir(mode=0o700, exist_ok=True)
            log.chmod(0o700)
        except OSError as error:
            raise PermissionDeniedError(
                f"the root cannot be made ({error.strerror}); choose another with --root or FOREBAY_ROOT",
                str(self._instance.root),
            ) from None

    @contextlib.contextmanager
    def _switch(self) -> Iterator[None]:
        """One up or down at a time; the next one waits."""
        try:
            descriptor = os.open(self._instance.switch_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:
            raise PermissionDeniedError(
                "only the user that the instance belongs to, or root, may take it up and down", str(self._instance.root)
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _check_owned(root: Path) -> None:
    """As the server does: whoever else owns the root, or can write in it, could give any file the names in it."""
    status = root.stat()
    others = 0o022 if os.geteuid() == 0 else 0o002
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & others:
        raise PermissionDeniedError(
            "the root belongs to, or can be written by, somebody else: remove it, or choose another with --root or "
            "FOREBAY_ROOT",
            str(root),
        )


def _about_equal(capacity_bytes: int, info: ServerInfo) -> bool:
    return abs(capacity_bytes - info.pool_bytes) < info.granularity_bytes
