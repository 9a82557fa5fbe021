# SPDX-License-Identifier: Apache-2.0
"""The manager's process: ``python -m forebay.workflows.manager --root DIR [--ready-fd N]``, started by `forebay up`.

It stays in the foreground, logs to standard error, writes ``ready`` to descriptor N when it serves, and ends on
SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import uvicorn
from anyio.to_thread import current_default_thread_limiter

from forebay.admin import Admin
from forebay.errors import (
    BusyError,
    DisconnectedError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    StorageError,
)
from forebay.instance import Instance
from forebay.manager.pool_membership import PoolMembership
from forebay.program_environment import program_environment
from forebay.records import Finding
from forebay.visible_text import visible
from forebay.workflows.datawarp.calls import build_datawarp_router
from forebay.workflows.datawarp.places import Places
from forebay.workflows.files.agent_calls import AgentCalls
from forebay.workflows.files.driver_checks import STAGES_NODE
from forebay.workflows.files.engines import FilesEngines
from forebay.workflows.files.node_mounts import STAGE_OPTIONS, NodeMounts
from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.files.settings import FilesSettings
from forebay.workflows.files.stage_trees import StageTrees
from forebay.workflows.manager.core.access import is_administrator, may_use
from forebay.workflows.manager.core.configuration import (
    configuration_file,
    database_place,
    files_image,
    read_configuration,
)
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.pools.pool_settings import PoolSettings
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.core.reservations.attachments import Attachments
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.manager.core.stages.stage_findings import stage_findings
from forebay.workflows.manager.core.stages.stage_settings import StageSettings
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.manager.core.why import Why
from forebay.workflows.manager.http.api import build_api
from forebay.workflows.manager.http.attachment_routes import build_attachment_router
from forebay.workflows.manager.http.instance_routes import build_instance_router
from forebay.workflows.manager.http.job_routes import build_job_router
from forebay.workflows.manager.http.manager_socket import QUEUE_LENGTH, ManagerSocket
from forebay.workflows.manager.http.peer import PeerProtocol
from forebay.workflows.manager.http.pool_routes import build_pool_router
from forebay.workflows.manager.http.receipt_routes import build_receipt_router
from forebay.workflows.manager.http.request_limits import RequestLimits
from forebay.workflows.manager.http.reservation_routes import build_reservation_router
from forebay.workflows.manager.http.rule_routes import build_rule_router
from forebay.workflows.manager.http.server_routes import build_server_router
from forebay.workflows.manager.http.stage_routes import build_stage_router
from forebay.workflows.slurm.agent_routes import build_agent_router
from forebay.workflows.slurm.calls import build_router
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.jobs import SlurmJobs
from forebay.workflows.slurm.node_routes import build_node_router
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.users import user_as_peer
from forebay.workflows.slurm.waiting import WaitingJobs

_log = logging.getLogger("forebay.manager")

_WATCH_INTERVAL_SECONDS = 1.0
#: Of files of another server, for stages.
_MOUNT_SECONDS_MAX = 30.0
#: More than requests have places, so that none waits for a thread.
_THREADS = 128
#: In a round of the loop: to accept a connection costs as much as a request. asyncio calls it the listener's backlog.
_ACCEPTED_AT_ONCE = 4


class _LogFormatter(logging.Formatter):
    """A person reads the log in a terminal, and users have chosen texts in it."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), keep="\n")


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn raises them again after a clean end."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(QUEUE_LENGTH)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve_also(self, listener: socket.socket) -> None:
        """Serves who connects to another socket, too; after the start."""

        def protocol() -> asyncio.Protocol:
            return PeerProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(protocol, sock=listener, backlog=_ACCEPTED_AT_ONCE))
        listener.listen(QUEUE_LENGTH)


def main() -> int:
    """Runs the manager; 0 after a clean end."""
    parser = argparse.ArgumentParser(prog="python -m forebay.workflows.manager", description=__doc__)
    parser.add_argument("--root", required=True, type=Path, help="the instance's root")
    parser.add_argument(
        "--shared", action="store_true", help="other users may have reservations, although the manager is not root"
    )
    parser.add_argument("--ready-fd", type=int, help="descriptor to write `ready` to")
    arguments = parser.parse_args()
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(_LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # Its warnings are about what clients send.
    os.umask(0o077)  # Stages set their own.
    instance = Instance.below(arguments.root)
    try:
        with _lock(instance) as lock, contextlib.closing(ManagerSocket(instance)) as listening:
            shared = arguments.shared or os.geteuid() == 0
            asyncio.run(_serve(instance, lock, listening, arguments.ready_fd, shared=shared))
    except (ForebayError, OSError) as error:
        _log.error("%s", error)
        return 1
    _log.info("ended")
    return 0


async def _serve(
    instance: Instance, lock: int, listening: ManagerSocket, ready_fd: int | None, *, shared: bool
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="call"))
    current_default_thread_limiter().total_tokens = _THREADS
    configuration = configuration_file()
    tables = read_configuration(configuration)
    database = Database(database_place(tables, instance, configuration), str(instance.root))
    membership = PoolMembership.read(instance)
    own_address = "" if membership is None else membership.listen
    servers = Servers(database, lambda address: Admin(instance, server=address), own_address)
    supervisor = StageSupervisor(database, instance.root, StageSettings.from_configuration(tables, configuration))
    reservations = Reservations(database, servers, PoolSettings.from_configuration(tables, configuration))
    settings = uvicorn.Config(
        "",
        http=PeerProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        backlog=_ACCEPTED_AT_ONCE,
    )
    server = _Server(settings)
    slow_calls = SlowCalls()

    def request_exit() -> None:
        server.should_exit = True

    def changed() -> None:
        if slurm is not None:
            try:
                slurm.files.refresh()
            except DisconnectedError:
                pass
            except (NoSpaceError, StorageError) as error:
                # What was asked for is done; what Slurm is told is written again soon.
                _log.warning("what Slurm is told is not up to date: %s", error)

    def find() -> list[Finding]:
        of_jobs = [] if slurm is None else slurm.job_files.findings()
        return [*reservations.findings(), *stage_findings(supervisor.stuck), *of_jobs]

    attachments = Attachments(database, reservations)
    why = Why(database)
    why.away_since = reservations.servers.away_since
    slurm = _slurm_jobs(database, supervisor, reservations, attachments, slow_calls, instance)
    mounts = "" if slurm is None else slurm.settings.node_mounts
    routers = [
        build_instance_router(database, reservations, instance.root, find, request_exit, shared=shared),
        build_reservation_router(database, reservations, slow_calls, instance.root, changed, shared=shared),
        build_pool_router(reservations.pools),
        build_stage_router(supervisor, reservations),
        build_attachment_router(attachments, why),
        build_server_router(reservations, slow_calls, changed),
        build_rule_router(supervisor),
        build_receipt_router(supervisor.receipts),
        build_job_router(JobTable(database), why),
        build_datawarp_router(supervisor, Places(database, reservations, mounts), reservations),
    ]
    if slurm is not None:
        routers += [build_router(slurm, slurm.settings), build_node_router(slurm.job_files)]
        if slurm.job_files.engines is not None and membership is not None:
            routers.append(build_agent_router(slurm.job_files.engines, servers, membership.key))
    scheduler_uid = None if slurm is None else slurm.settings.scheduler_uid
    settings.app = RequestLimits(build_api(routers), lambda peer: peer.is_administrator or peer.uid == scheduler_uid)
    if slurm is not None:
        waiting = WaitingJobs(database, slurm.settings)
        why.of_waiting_job, why.of_schedulers_turn = waiting.tell, waiting.end_of
        files = slurm.job_files
        why.note_on = lambda job: "; ".join(filter(None, (waiting.note_on(job), files.note_on(job))))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, request_exit)
    await asyncio.to_thread(attachments.start)
    await asyncio.to_thread(reservations.pools.start)
    watchers = [
        asyncio.create_task(_watch_server(reservations, slurm, await _reconcile(reservations))),
        asyncio.create_task(_watch_other_servers(reservations)),
        asyncio.create_task(_watch_attachments(attachments, supervisor)),
        asyncio.create_task(_watch_root(instance, lock, listening, server)),
    ]
    try:
        await supervisor.start()
        _tell_ready(ready_fd)
        _log.info("serving %s", instance.root)
        await server.serve(sockets=[listening.listener])
    finally:
        for watcher in watchers:
            watcher.cancel()
        await supervisor.stop()
        slow_calls.close()
        servers.close()
        database.close()


def _tell_ready(ready_fd: int | None) -> None:
    """Whoever connects is served: connections wait in the socket's queue from its creation on."""
    if ready_fd is None:
        return
    try:
        os.write(ready_fd, b"ready\n")
    except BrokenPipeError:
        _log.warning("nobody listens for readiness on descriptor %d", ready_fd)
    os.close(ready_fd)


def _may_use(reservations: Reservations, name: str, uid: int) -> bool:
    """The reservation may be read by the user, of all groups that the system says."""
    try:
        return is_administrator(uid) or may_use(reservations.info(name), user_as_peer(uid))
    except KeyError:  # without an account
        return False


def _slurm_jobs(
    database: Database,
    supervisor: StageSupervisor,
    reservations: Reservations,
    attachments: Attachments,
    slow_calls: SlowCalls,
    instance: Instance,
) -> SlurmJobs | None:
    """Slurm's jobs, if the centre's configuration has a table [slurm]."""
    configuration = configuration_file()
    settings = SlurmSettings.from_configuration(read_configuration(configuration), configuration)
    if settings is None:
        return None
    if settings.scheduler_uid is None:
        _log.warning(
            "there is no user %s ([slurm] scheduler_user): only administrators' calls count", settings.scheduler_user
        )
    variables = program_environment(instance.root)
    job_files = JobFiles(database, reservations, _files_engines(instance, settings, database, reservations))
    reservations.before_destroy(job_files.let_go)
    reservations.have_jobs = True
    if job_files.engines is not None:
        reservations.shows_files = job_files.reaches
        folder, commands = instance.root / "stage-trees", job_files.engines.site_commands
        mounts = NodeMounts(folder, node=STAGES_NODE, commands=commands, options=STAGE_OPTIONS)
        may = partial(_may_use, reservations)
        supervisor.trees = StageTrees(mounts, job_files, database.reservation, may, _MOUNT_SECONDS_MAX)
    return SlurmJobs(
        database,
        supervisor,
        reservations,
        attachments,
        slow_calls,
        instance.root,
        settings,
        variables,
        job_files,
    )


def _files_engines(
    instance: Instance, slurm: SlurmSettings, database: Database, reservations: Reservations
) -> PoolEngines | None:
    """What shows files on the nodes of jobs, if a pool has a driver.

    Raises
    ------
    InvalidArgumentError
        Something that it needs is not configured.
    """
    pools = {pool.files_driver: pool.name for pool in reservations.pools.settings.pools.values() if pool.files_driver}
    if not pools:
        return None
    path = configuration_file()
    tables = read_configuration(path)
    settings = FilesSettings.from_configuration(tables, path)
    title = f"[pools.{next(iter(pools.values()))}] files_driver"
    if settings is None or not settings.home_address:
        raise InvalidArgumentError(f"{title} needs a table [files] with server or address", str(path))
    if not slurm.node_folder:
        raise InvalidArgumentError(f"{title} needs [slurm] node_folder", str(path))
    image = files_image(tables, instance, path)
    if "nfs" in pools and not image:
        raise InvalidArgumentError(f'[pools.{pools["nfs"]}] files_driver needs files_image = "xfs"', str(path))
    if "commands" in pools and image:
        raise InvalidArgumentError(
            f'[pools.{pools["commands"]}] files_driver = "commands" needs files in folders, without files_image',
            str(path),
        )
    engines = FilesEngines(instance.root / "drivers", settings)
    for driver in pools:
        engines.check(driver)
    engines.begin()

    def server_of(reservation_id: str) -> str | None:
        return next((row.server for row in database.reservations_of_ids([reservation_id])), None)

    return PoolEngines(engines, AgentCalls(reservations.servers.root_uuid), server_of)


async def _watch_server(reservations: Reservations, slurm: SlurmJobs | None, first: tuple[int, int] | None) -> None:
    """Reconciles whenever the server has come back, and keeps what Slurm is told up to date."""
    seen = first
    swept_at = time.monotonic()
    while True:
        if slurm is not None:
            try:
                await slurm.write_books_at_leisure()
                await asyncio.to_thread(slurm.job_files.start_ended)
                if seen is not None and time.monotonic() - swept_at > slurm.settings.sweep_seconds:
                    swept_at = time.monotonic()
                    await slurm.sweep()
            except DisconnectedError:
                pass
            except (NoSpaceError, StorageError) as error:
                _log.warning("what Slurm is told is not up to date: %s", error)
            except Exception:
                # The server's return would never be seen again.
                _log.exception("the watch over Slurm's jobs failed")
        await asyncio.sleep(_WATCH_INTERVAL_SECONDS)
        now = await asyncio.to_thread(reservations.servers.own.incarnation)
        if now == seen and not (now is not None and reservations.servers.is_unfinished("")):
            continue
        if now is None:
            _log.warning("the server cannot be reached")
            seen = None
        else:
            seen = await _reconcile(reservations)


async def _watch_other_servers(reservations: Reservations) -> None:
    """Looks after each server that has joined, so that one that does not answer keeps no other waiting."""
    watchers: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            names = {server.name for server in await asyncio.to_thread(reservations.servers.others)}
            for name in names - watchers.keys():
                watchers[name] = asyncio.create_task(_watch_other_server(reservations, name))
            for name in watchers.keys() - names:
                watchers.pop(name).cancel()
            await asyncio.sleep(_WATCH_INTERVAL_SECONDS)
    finally:
        for watcher in watchers.values():
            watcher.cancel()


async def _watch_other_server(reservations: Reservations, name: str) -> None:
    """Reconciles whenever the server has come back, and lets it leave when it is retired and empty."""
    seen: tuple[int, int] | None = None
    while True:
        try:
            now = await asyncio.to_thread(reservations.servers.look_at, name)
            if now is None and seen is not None:
                _log.warning("server %s cannot be reached", name)
            if now is not None and (reservations.servers.is_unfinished(name) or now != seen):
                await asyncio.to_thread(reservations.reconcile_server, name)
            seen = now
            await asyncio.to_thread(reservations.servers.leave_if_retired, name)
        except (DisconnectedError, NoSpaceError, StorageError) as error:
            _log.warning("server %s: %s", name, error)
            seen = None
        except Exception:
            # Its return would never be seen again.
            _log.exception("the watch over server %s failed", name)
            seen = None
        await asyncio.sleep(_WATCH_INTERVAL_SECONDS)


async def _watch_attachments(attachments: Attachments, supervisor: StageSupervisor) -> None:
    """Ends attachments whose process or time is over, and stages that follow files which nobody uses any more; forgets
    limits for stages of reservations that are gone.
    """
    while True:
        try:
            await supervisor.read_concurrency()
            await asyncio.to_thread(attachments.settle)
            if left := await asyncio.to_thread(attachments.left):
                await supervisor.end_following(left)
        except (NoSpaceError, StorageError) as error:
            _log.warning("attachments are not looked at: %s", error)
        except Exception:
            # Attachments would never end again.
            _log.exception("looking at attachments failed")
        await asyncio.sleep(_WATCH_INTERVAL_SECONDS)


async def _watch_root(instance: Instance, lock: int, listening: ManagerSocket, server: _Server) -> None:
    """Ends the manager with its root, and makes its socket again if somebody removed it."""
    while True:
        await asyncio.sleep(_WATCH_INTERVAL_SECONDS)
        if not _is_ours(instance.manager_lock, lock):
            _log.error("the root %s was removed, or is another manager's: this manager ends", instance.root)
            server.should_exit = True
            return
        if server.should_exit or listening.has_its_name:
            continue
        try:
            await server.serve_also(listening.make_again())
            _log.warning("the socket %s was gone, and is made again", listening.path)
        except OSError as error:
            _log.warning("the socket is gone, and cannot be made again: %s", error)


def _is_ours(lock: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(lock.lstat(), os.fstat(descriptor))
    except OSError:
        return False


async def _reconcile(reservations: Reservations) -> tuple[int, int] | None:
    """Reconciles; returns the server that it was done with, None if there was none."""
    incarnation = await asyncio.to_thread(reservations.servers.own.incarnation)
    try:
        await asyncio.to_thread(reservations.reconcile)
        await asyncio.to_thread(reservations.servers.tell_directory, [""])
    except (DisconnectedError, NoSpaceError, StorageError) as error:
        _log.warning("cannot reconcile yet: %s", error)
        return None
    except ForebayError:
        _log.exception("reconciling failed")
    return incarnation


@contextlib.contextmanager
def _lock(instance: Instance) -> Iterator[int]:
    """One manager for an instance. The descriptor of its lock."""
    descriptor = os.open(instance.manager_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BusyError("another manager runs for this instance; `forebay down` ends it", str(instance.root)) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
