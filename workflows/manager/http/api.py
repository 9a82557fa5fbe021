# SPDX-License-Identifier: Apache-2.0
"""The manager's HTTP interface: reservations, stages, health. Callers are known by their socket's peer credentials."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from forebay.errors import ErrorCode, ForebayError, InvalidArgumentError, PermissionDeniedError
from forebay.manager.jobs import job_from_json
from forebay.near_names import near_names
from forebay.records import Finding
from forebay.sizes import parse_size
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database, ReservationRow, StageRow, no_stage
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.pools.pools import Place
from forebay.workflows.manager.core.reservations.in_use import refuse_if_in_use
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.manager.core.stages.acting_user import check_may_act, check_may_stage
from forebay.workflows.manager.core.stages.stage_findings import stage_findings
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.manager.http.numbers import StageNumber
from forebay.workflows.manager.http.peer import CurrentPeer
from forebay.workflows.manager.http.request_limits import turn_of

__all__ = ["build_api"]

_HTTP_STATUS = {
    ErrorCode.INVALID_ARGUMENT: 400,
    ErrorCode.PERMISSION_DENIED: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.ALREADY_EXISTS: 409,
    ErrorCode.BUSY: 409,
    ErrorCode.REFUSED: 409,
    ErrorCode.DISCONNECTED: 503,
    ErrorCode.NO_SPACE: 507,
}
_WAIT_SECONDS_MAX = 30.0
_JOB_CHARACTERS_MAX = 65536


class _AsciiResponse(JSONResponse):
    """Texts may have bytes that are no UTF-8, such as names of files."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


class ReservationRequest(BaseModel):
    """A reservation to create."""

    name: str
    capacity: int | str = Field(description='for streams: bytes, or a text such as "2GiB"')
    files: int | str = Field(default=0, description="for files/, beside that")
    persistent: bool = False
    pool: str = Field(default="", description="none: the default pool")
    account: str = Field(default="", description="whose quota it counts in, beside the user's; none: no account's")
    on: list[str] = Field(default_factory=list, max_length=1000, description="only on these servers")
    servers: int = Field(default=0, ge=0, le=1024, description="on how many; 0: on all that `on` names, else on one")
    wait: bool = Field(
        default=False,
        description='where there is no room now, the answer is a place in the queue: {"waiting": …}; it is lost when '
        "the same request is not made again within 30 s",
    )


class ReservationChange(BaseModel):
    """What a reservation is to have from now on; null: as it is."""

    persistent: bool | None = None
    files: int | str | None = Field(default=None, description='for files/: bytes, or a text such as "2GiB"')


class StageRequest(BaseModel):
    """A stage to run."""

    job: dict[str, Any] = Field(description="see forebay.manager.jobs")
    umask: int = Field(default=0o022, ge=0, le=0o777)


class ShutdownRequest(BaseModel):
    """The instance goes down."""

    force: bool = Field(
        default=False,
        description="destroy reservations although jobs, holders, writers or unstaged precious steps are in them",
    )


def build_api(
    database: Database,
    reservations: Reservations,
    supervisor: StageSupervisor,
    slow_calls: SlowCalls,
    root: Path,
    request_exit: Callable[[], None],
    *,
    shared: bool,
    changed: Callable[[], None] = lambda: None,
    more_findings: Callable[[], list[Finding]] = list,
) -> FastAPI:
    """The application over these parts.

    Parameters
    ----------
    request_exit : callable
        Called when the instance is to go down.
    shared : bool
        Users other than its own may have reservations.
    changed : callable
        Called when reservations were made or destroyed, before that is answered.
    more_findings : callable
        What `forebay doctor` should know of what is not the manager's own.
    """
    api = FastAPI(title="Forebay manager", version=version("forebay"), default_response_class=_AsciiResponse)
    started_ns = time.time_ns()

    @api.exception_handler(ForebayError)
    async def tell_error(_request: Request, error: ForebayError) -> JSONResponse:
        content = {"error": {"code": error.code.value, "what": error.what, "where": error.where}}
        return _AsciiResponse(content, status_code=_HTTP_STATUS.get(error.code, 500))

    @api.exception_handler(UnicodeEncodeError)
    async def tell_no_text(_request: Request, _error: UnicodeEncodeError) -> JSONResponse:
        what = "a text of the request has characters that no text has"
        content = {"error": {"code": ErrorCode.INVALID_ARGUMENT, "what": what, "where": ""}}
        return _AsciiResponse(content, status_code=400)

    @api.exception_handler(RequestValidationError)
    async def tell_mistake(_request: Request, error: RequestValidationError) -> JSONResponse:
        mistakes = [f"{'.'.join(map(str, found['loc']))[-80:]}: {found['msg'][:120]}" for found in error.errors()[:3]]
        content = {"error": {"code": ErrorCode.INVALID_ARGUMENT, "what": "; ".join(mistakes), "where": ""}}
        return _AsciiResponse(content, status_code=400)

    @api.get("/health")
    def health() -> dict[str, Any]:
        """The manager is alive; can it reach the server?"""
        incarnation = reservations.servers.own.incarnation()
        return {
            "version": version("forebay"),
            "root": str(root),
            "started_ns": started_ns,
            "shared": shared,
            "server_pid": None if incarnation is None else incarnation[0],
        }

    @api.get("/findings")
    def findings(peer: CurrentPeer) -> list[dict[str, Any]]:
        """What `forebay doctor` should know."""
        if not peer.is_administrator:
            return []
        found = [*reservations.findings(), *stage_findings(supervisor.stuck), *more_findings()]
        return [finding.as_dict() for finding in found]

    @api.get("/reservations")
    def list_reservations(peer: CurrentPeer) -> list[dict[str, Any]]:
        """The caller's reservations as they were asked for; an administrator's request gives all."""
        return [asdict(row) for row in database.reservations() if peer.may_see(row.owner_uid)]

    @api.get("/jobs")
    def list_jobs(peer: CurrentPeer) -> list[dict[str, Any]]:
        """The caller's jobs of a scheduler; an administrator's request gives all."""
        jobs = JobTable(database).all()
        return [asdict(job) for job in jobs if peer.may_see(job.owner_uid)]

    @api.post("/reservations")
    async def create_reservation(request: ReservationRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Creates a reservation; idempotent."""
        if not shared and not peer.is_administrator:
            raise PermissionDeniedError(
                f"this instance is user {os.geteuid()}'s own and takes no reservations of others; ask them for "
                "`forebay up --shared`, or start one of your own with `forebay up`",
                str(root),
            )
        wanted = ReservationRow(
            name=request.name,
            capacity_bytes=parse_size(request.capacity),
            files_bytes=parse_size(request.files),
            persistent=request.persistent,
            owner_uid=peer.uid,
            owner_gid=peer.gid,
            created_ns=time.time_ns(),
            pool="" if request.pool == "default" else request.pool,
            account=request.account,
        )
        create = reservations.create_or_wait if request.wait else reservations.create
        made = await slow_calls.run(peer.uid, create, wanted, on=request.on, servers=request.servers)
        await asyncio.to_thread(changed)
        return {"waiting": asdict(made)} if isinstance(made, Place) else made.as_dict()

    @api.patch("/reservations/{name:path}")
    async def change_reservation(name: str, request: ReservationChange, peer: CurrentPeer) -> dict[str, Any]:
        """Changes lifetime and capacity for files of a reservation; idempotent."""
        info = await slow_calls.run(
            peer.uid,
            reservations.change,
            name,
            persistent=request.persistent,
            files_bytes=None if request.files is None else parse_size(request.files),
            by=peer,
        )
        await asyncio.to_thread(changed)
        return info.as_dict()

    @api.get("/pools")
    def list_pools() -> list[dict[str, Any]]:
        """The pools: name, capacity, what of it is free, what those who wait ask for."""
        pools = reservations.pools
        spaces = pools.spaces()
        rows = []
        for key, pool in pools.settings.pools.items():
            capacity_bytes, free_bytes = pools.capacity(key, spaces)
            rows.append(
                {
                    "name": pool.name,
                    "capacity_bytes": capacity_bytes,
                    "free_bytes": free_bytes,
                    "granularity_bytes": pool.granularity_bytes,
                    "waiting_bytes": pools.waiting_bytes(key),
                }
            )
        return rows

    @api.get("/queue")
    def list_queue(peer: CurrentPeer) -> list[dict[str, Any]]:
        """Reservations of the caller's that wait for space, with how many came before; an administrator sees all."""
        return [
            {**asdict(row), "ahead": number}
            for number, row in enumerate(reservations.pools.queue())
            if peer.may_see(row.owner_uid)
        ]

    @api.delete("/queue/{name:path}")
    def leave_queue(name: str, peer: CurrentPeer) -> dict[str, Any]:
        """Waits no longer; idempotent."""
        return {"left": reservations.pools.leave(name, peer.whose)}

    @api.delete("/reservations/{name:path}")
    async def destroy_reservation(name: str, peer: CurrentPeer, force: bool = False) -> dict[str, Any]:
        """Destroys a reservation; idempotent. Where there was none, `near` has names that may have been meant."""
        existed = await slow_calls.run(peer.uid, reservations.destroy, name, force=force, by=peer)
        await asyncio.to_thread(changed)
        near = [] if existed else await asyncio.to_thread(lambda: near_names(name, reservations.names_of(peer.whose)))
        return {"destroyed": name, "existed": existed, "near": near}

    async def tell_whole(row: StageRow) -> dict[str, Any]:
        receipt = await asyncio.to_thread(supervisor.receipts.find, row.id, row.owner_uid)
        place = None if receipt is None else {"path": str(receipt.path), "crc32c": receipt.end["crc32c"]}
        return _tell(row, supervisor.version(row.id)) | {"receipt": place}

    @api.get("/stages")
    async def list_stages(peer: CurrentPeer) -> Response:
        """The caller's stages; an administrator's request gives all."""
        rows = await supervisor.stages(peer.whose)

        def build() -> Response:
            # One after another: the event loop's thread has its turn in between.
            bodies = (json.dumps(_tell(row, 0), separators=(",", ":")).encode() for row in rows)
            return Response(b"[" + b",".join(bodies) + b"]", media_type="application/json")

        return await asyncio.to_thread(build)

    @api.post("/stages")
    async def submit_stage(request: StageRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Queues a stage."""
        if len(json.dumps(request.job)) > _JOB_CHARACTERS_MAX:  # as its process gets it
            raise InvalidArgumentError(
                "the stage's description is too long; use ranges for steps, fewer variables, or several stages"
            )
        job = job_from_json(request.job)
        check_may_stage(peer)
        check_may_act(job, peer)
        await asyncio.to_thread(reservations.check_stages_here, job)
        return await tell_whole(await supervisor.submit(job, peer.uid, peer.gid, request.umask))

    @api.get("/stages/{stage_id}")
    async def show_stage(
        stage_id: StageNumber,
        peer: CurrentPeer,
        request: Request,
        seen: int = -1,
        wait_seconds: Annotated[float, Query(ge=0, le=_WAIT_SECONDS_MAX)] = 0.0,
    ) -> dict[str, Any]:
        """One stage; with `seen`, the version that the caller has, waits for a newer one."""
        _check_may_see(await supervisor.stage(stage_id), peer)
        if wait_seconds:
            async with turn_of(request).given_back():
                await supervisor.wait_for_change(stage_id, seen, wait_seconds)
        return await tell_whole(await supervisor.stage(stage_id))

    @api.post("/stages/{stage_id}/cancel")
    async def cancel_stage(stage_id: StageNumber, peer: CurrentPeer) -> dict[str, Any]:
        """Cancels a stage; idempotent."""
        _check_may_see(await supervisor.stage(stage_id), peer)
        return await tell_whole(await supervisor.cancel(stage_id))

    @api.post("/shutdown")
    async def shut_down(request: ShutdownRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Destroys the reservations that are not persistent, and ends the manager."""
        peer.must_be_administrator("only the instance's own user and root may take it down")
        if not request.force:
            await asyncio.to_thread(refuse_if_in_use, database)
        destroyed, to_destroy = await asyncio.to_thread(reservations.destroy_non_persistent, force=request.force)
        request_exit()
        return {"destroyed": destroyed, "to_destroy": to_destroy}

    return api


def _check_may_see(row: StageRow, peer: Peer) -> None:
    """To others there is no such stage."""
    if not peer.may_see(row.owner_uid):
        raise no_stage(row.id)


def _tell(row: StageRow, version_number: int) -> dict[str, Any]:
    return {**{field.name: getattr(row, field.name) for field in fields(row)}, "version": version_number}
