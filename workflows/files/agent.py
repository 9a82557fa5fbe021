# SPDX-License-Identifier: Apache-2.0
"""`forebay agent`: carries out driver operations on a server of a pool, for its manager, as root.

It asks the manager for what is to be done, by way of its own server, which introduces it. It takes calls about
reservations that its own server has alone, and looks up their trees there. docs/design/files-on-nodes.md has the rules.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.admin import Admin
from forebay.errors import (
    BusyError,
    CorruptError,
    ForebayError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    StorageError,
)
from forebay.fail_point import fail_point
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.manager.pool_membership import PoolMembership
from forebay.records import ReservationInfo
from forebay.workflows.files.agent_proof import agent_proof
from forebay.workflows.files.engines import FilesEngines
from forebay.workflows.files.namespaces import make_namespaces, make_private_folders
from forebay.workflows.files.settings import FilesSettings
from forebay.workflows.manager.core.name_turns import NameTurns
from forebay.workflows.staging.publication import write_whole

__all__ = ["Agent", "agent_lock", "check_owned"]

_log = logging.getLogger("forebay.agent")

_ID = re.compile(r"[0-9a-f-]{8,64}")
_WAIT_SECONDS = 10.0
#: While calls are under way their answers are looked for so often.
_BUSY_WAIT_SECONDS = 0.2
_AWAY_SECONDS = 1.0
_CALLS_AT_ONCE = 4
_KEEPER_SECONDS = 1.0
_LOCK_NAME = "agent.lock"
_MANAGER_NAME = "agent.manager"


def check_owned(root: Path) -> None:
    """PermissionDeniedError if somebody else than root could say what the agent does there: by the names below the
    instance's root, or as the server, whose word it takes for where trees lie.
    """
    status = root.stat()
    if status.st_uid != 0 or status.st_mode & 0o022:
        raise PermissionDeniedError(
            "this root belongs to, or can be written by, somebody else; an agent runs beside servers of root alone",
            str(root),
        )


@contextlib.contextmanager
def agent_lock(drivers: Path) -> Iterator[None]:
    """BusyError if another agent serves this root."""
    drivers.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(drivers / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError("another agent runs for this server", str(drivers)) from None
        yield
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _Work:
    """What one run of the manager has asked for."""

    engines: FilesEngines
    manager: str = ""  #: the uuid of its root; "": none has asked
    incarnation: int = 0
    latest: dict[str, int] = field(default_factory=dict)  #: number of the newest call about each reservation
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)  #: that the manager has not got
    under_way: set[int] = field(default_factory=set)

    def has(self, number: int) -> bool:
        """The call was taken before, and the manager has not heard what became of it."""
        return number in self.under_way or number in self.answers


class Agent:
    """That of one server's root.

    Parameters
    ----------
    membership : PoolMembership
        Of its server in the pool.
    connect : callable
        To the manager; tests bring their own.
    """

    def __init__(
        self,
        instance: Instance,
        membership: PoolMembership,
        settings: FilesSettings,
        connect: Callable[[], ManagerClient] | None = None,
    ) -> None:
        self._instance = instance
        self._server = membership.name
        self._key = membership.key
        self._settings = settings
        self._connect = connect or (lambda: ManagerClient(instance))
        self._drivers = instance.root / "drivers"
        self._run = secrets.token_hex(8)
        self._turns = NameTurns()
        self._client: ManagerClient | None = None
        self._lock = threading.Lock()  # Guards what is in `_work`.
        self._work = _Work(FilesEngines(self._drivers, settings))
        self._away = "not asked yet"  #: why the manager cannot be asked

    def check(self, drivers: Collection[str] = ("nfs",)) -> None:
        """What these drivers need is here; raises as `FilesEngines.check`."""
        for driver in drivers:
            self._work.engines.check(driver)

    def run(self, stop: threading.Event) -> None:
        """Serves the manager until it is told to stop. Who calls holds `agent_lock`."""
        self._work.engines.begin()
        keeper = threading.Thread(target=self._keep_running, args=(stop,), name="keeper", daemon=True)
        keeper.start()
        with ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="call") as workers:
            try:
                while not stop.is_set():
                    stop.wait(self._try_turn(workers))
            finally:
                stop.set()
                self._disconnect()
        keeper.join()

    def _try_turn(self, workers: ThreadPoolExecutor) -> float:
        try:
            pause = self._take_turn(workers)
            self._forget_gone()
            if self._away:
                self._away = ""
                _log.info("the manager is there")
            return pause
        except Exception as error:  # whatever it is: without the next turn nothing on this server is fenced
            is_ours = isinstance(error, ForebayError)
            away = str(error) if is_ours else repr(error)  # some say nothing
            if away != self._away:
                self._away = away
                _log.warning("%s", away, exc_info=not is_ours)
            self._disconnect()
            return _AWAY_SECONDS

    def _take_turn(self, workers: ThreadPoolExecutor) -> float:
        """Tells what was done, takes what is to be done next, and begins it. How long to wait before the next turn."""
        work = self._work
        with self._lock:
            answers = dict(work.answers)
            under_way = sorted(work.under_way)
        with Admin(self._instance, server="") as admin:
            root_uuid = admin.server().uuid
        if self._client is None:
            self._client = self._connect()
        said = self._client.agent_turn(
            {
                "server": self._server,
                "root_uuid": root_uuid,
                "agent": self._run,
                "proof": agent_proof(self._key, self._server, root_uuid, self._run),
                "manager": work.manager,
                "incarnation": work.incarnation,
                "shown": work.engines.reservations(),
                "ended": work.engines.ended(),
                "cgroup_problem": work.engines.cgroup_problem()[:400],
                "answers": [{"number": number, **answer} for number, answer in answers.items()],
                "under_way": under_way,
                "wait_seconds": _BUSY_WAIT_SECONDS if under_way else _WAIT_SECONDS,
            }
        )
        if said["calls"]:
            fail_point("agent.taken")
        with self._lock:
            for number in answers:
                del work.answers[number]
        work = self._work_for(str(said["manager"]), int(said["incarnation"]))
        with self._lock:
            fresh = [call for call in said["calls"] if not work.has(int(call["number"]))]
            for call in fresh:
                work.under_way.add(int(call["number"]))
                work.latest[str(call["reservation"])] = int(call["number"])
        for call in fresh:
            workers.submit(self._carry_out, call, work)
        return float(said["pause_seconds"])

    def _keep_running(self, stop: threading.Event) -> None:
        """Starts what has ended, whether the manager is there or not."""
        while not stop.wait(_KEEPER_SECONDS):
            try:
                self._work.engines.start_ended()
            except Exception:
                _log.exception("looking after NFS servers failed")  # they would never be looked after again

    def _forget_gone(self) -> None:
        """Of what its server has no more, and is closed, nothing is kept."""
        with Admin(self._instance, server="") as admin:
            self._work.engines.forget_all_but({info.id for info in admin.reservations(count_files=False)})

    def _disconnect(self) -> None:
        """The next turn connects again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _work_for(self, manager: str, incarnation: int) -> _Work:
        """From now on what earlier managers have said does nothing, what is under way too.

        Raises
        ------
        RefusedError
            A newer run of this manager was here.
        """
        now = (manager, incarnation)
        if (self._work.manager, self._work.incarnation) == now:
            return self._work
        path = self._drivers / _MANAGER_NAME
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            before = (str(known["manager"]), int(known["incarnation"]))
        except FileNotFoundError:
            before = ("", 0)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError(f"this does not say which manager the agent works for ({error})", str(path)) from None
        if before[0] == manager and before[1] > incarnation:
            raise RefusedError(
                f"start {before[1]} of the manager was here, and what start {incarnation} says does nothing. "
                "If it counts anew because its ROOT/drivers was removed, end the agent, remove this file, and start it",
                str(path),
            )
        if before == now and not self._work.manager:  # that of the agent before this one
            self._work.manager, self._work.incarnation = now
            return self._work
        # If one of these fails, the next turn does all of it again.
        engines = FilesEngines(self._drivers, self._settings)
        engines.begin()
        write_whole(path, json.dumps({"manager": manager, "incarnation": incarnation}) + "\n", mode=0o600)
        self._work = _Work(engines, manager, incarnation)
        return self._work

    def _carry_out(self, call: dict[str, Any], work: _Work) -> None:
        number, reservation = int(call["number"]), str(call["reservation"])
        answer: dict[str, Any]
        try:
            with self._turns.of(reservation):
                with self._lock:
                    is_latest = work is self._work and work.latest.get(reservation) == number
                if not is_latest:
                    raise RefusedError(
                        "a later call about these files, or another manager, has come; this one does nothing",
                        reservation,
                    )
                answer = {"result": self._done(call, work.engines)}
        except ForebayError as error:
            answer = _failure(error)
        except Exception:
            _log.exception("a call of the manager's")
            answer = _failure(StorageError("the agent failed; see its log", self._server))
        fail_point("agent.done")
        with self._lock:
            if work.latest.get(reservation) == number:
                del work.latest[reservation]
            work.under_way.discard(number)
            work.answers[number] = answer

    def _done(self, call: dict[str, Any], engines: FilesEngines) -> Any:
        operation, reservation = str(call["operation"]), str(call["reservation"])
        if _ID.fullmatch(reservation) is None:
            raise InvalidArgumentError("this is no reservation's uuid")
        _log.info("%s of %s", operation, reservation)
        match operation:
            case "open":
                tree = Path(self._info_of(reservation).files_path)
                mounts = engines.open(reservation, tree, dict(call["nodes"]))
                return {node: {"source": mount.source, "port": mount.port} for node, mount in mounts.items()}
            case "make_tree":
                info = self._info_of(reservation)
                engines.make_tree(reservation, Path(info.files_path), info.files_bytes)
            case "check_tree":
                engines.check_tree(reservation)
            case "site_state":
                return engines.site_state(reservation)
            case "make_namespaces":
                info = self._info_of(reservation)
                owner = (info.owner_uid, info.owner_gid)  # as its own server says, too
                private = bool(call["private"])
                make_namespaces(
                    Path(info.files_path), str(call["job"]), *owner, private=private, prolog=False, shown=True
                )
            case "make_private_folders":
                info = self._info_of(reservation)
                make_private_folders(Path(info.files_path), map(str, call["nodes"]), info.owner_uid, info.owner_gid)
            case "fence":
                engines.fence(reservation, list(call["nodes"]))
            case "release":
                engines.release(reservation, list(call["nodes"]))
            case "stop":
                engines.stop(reservation, list(call.get("clean", ())))
            case "close":
                engines.close(reservation, list(call.get("clean", ())))
            case "forget":
                engines.forget(reservation)
            case _:
                raise InvalidArgumentError(f"there is no call {operation[:40]}")
        return None

    def _info_of(self, reservation: str) -> ReservationInfo:
        """As the own server says.

        Raises
        ------
        NotFoundError
            It is not the home of such a reservation.
        """
        with Admin(self._instance, server="") as admin:
            for info in admin.reservations(count_files=False):
                if info.id == reservation and info.home:
                    return info
        raise NotFoundError(f"server {self._server} is not the home of this reservation", reservation)


def _failure(error: ForebayError) -> dict[str, Any]:
    """The answer that says so."""
    return {"error": {"code": error.code.value, "what": error.what, "where": error.where}}
