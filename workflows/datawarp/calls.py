# SPDX-License-Identifier: Apache-2.0
"""The calls of libdatawarp as requests: what a program may ask of the stages of its files. Contract:
docs/design/libdatawarp.md.

A request is a list of texts, each ended by NUL: the call's name, then names and values in turn. The answer begins with
an error number of Linux, 0 without an error, and NUL; the rest is the call's own. Nothing of it stands in the head of
HTTP, which other nodes do not get.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from forebay.errors import ErrorCode, ForebayError, InvalidArgumentError, NotFoundError
from forebay.manager.jobs import FilesJob
from forebay.manager.records import StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.datawarp.places import Place, Places
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.stages.acting_user import check_may_stage
from forebay.workflows.manager.core.stages.asked_stages import AskedStage, Asking, takes_stages
from forebay.workflows.manager.core.stages.stage_concurrency import STAGES_MAX
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.manager.http.peer import CurrentPeer
from forebay.workflows.manager.http.request_limits import turn_of

__all__ = ["build_datawarp_router"]

_BODY_BYTES_MAX = 65536
_FIELDS_MAX = 16
_WAIT_SECONDS = 20.0  # of one request; the library asks again
_FAILED_SHOWN_MAX = 10_000

_ERRNO = {
    ErrorCode.INVALID_ARGUMENT: errno.EINVAL,
    ErrorCode.PERMISSION_DENIED: errno.EACCES,
    ErrorCode.NOT_FOUND: errno.ENOENT,
    ErrorCode.ALREADY_EXISTS: errno.EEXIST,
    ErrorCode.BUSY: errno.EBUSY,
    ErrorCode.REFUSED: errno.EAGAIN,
    ErrorCode.DISCONNECTED: errno.EHOSTDOWN,
    ErrorCode.NO_SPACE: errno.ENOSPC,
    ErrorCode.UNSUPPORTED: errno.EOPNOTSUPP,
    ErrorCode.CANCELLED: errno.ECANCELED,
}


class _RefusalError(Exception):
    """An answer other than success."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Fields:
    """The texts of one request."""

    def __init__(self, body: bytes) -> None:
        texts = body.split(b"\0")
        if texts.pop() or not texts or len(texts) > 2 * _FIELDS_MAX + 1 or len(texts) % 2 == 0:
            raise InvalidArgumentError("this is no call of libdatawarp")
        self.call = os.fsdecode(texts[0])
        self._values = {
            os.fsdecode(name): os.fsdecode(value) for name, value in zip(texts[1::2], texts[2::2], strict=True)
        }

    def text(self, name: str) -> str:
        try:
            return self._values[name]
        except KeyError:
            raise InvalidArgumentError(f"the call has no {name}") from None

    def number(self, name: str, most: int, base: int = 10) -> int:
        text = self.text(name)
        if not text.isascii() or not text.isalnum() or len(text) > 10:
            raise InvalidArgumentError(f"{name} is no number")
        try:
            number = int(text, base)
        except ValueError:
            raise InvalidArgumentError(f"{name} is no number") from None
        if number > most:
            raise InvalidArgumentError(f"{name} is too large")
        return number

    @property
    def is_directory(self) -> bool:
        kind = self.text("kind")
        if kind not in ("file", "directory"):
            raise InvalidArgumentError("a stage is one of a file or of a directory")
        return kind == "directory"


class _Calls:
    """What programs may ask, by the names of the calls."""

    def __init__(self, supervisor: StageSupervisor, places: Places, reservations: Reservations) -> None:
        self._supervisor = supervisor
        self._asked = supervisor.asked
        self._places = places
        self._reservations = reservations

    async def stage_in(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """Copies a file, or a folder's contents, into the reservation."""
        await self._stage(fields, peer, inward=True, deferred=False)
        return ""

    async def stage_out(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """Copies a file, or a folder's contents, out of it, at once."""
        await self._stage(fields, peer, inward=False, deferred=False)
        return ""

    async def defer(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """Copies it out when the job has ended, or when it is activated."""
        await self._stage(fields, peer, inward=False, deferred=True)
        return ""

    async def revoke(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """What was deferred is not copied. Asked again, the answer is the same: EINVAL means that there was none."""
        stage = await self._deferred(fields, peer)
        if not await self._supervisor.revoke(stage.id):
            raise _RefusalError(errno.EINVAL)
        return ""

    async def activate(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """What was deferred is copied now."""
        stage = await self._deferred(fields, peer)
        await self._supervisor.activate(stage.id)
        return ""

    async def query(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """How many files are complete, pending, deferred, failed."""
        place = await self._place(fields, peer)
        if not fields.is_directory:
            stage = await self._known(place, peer, directory=False)
            row = await self._supervisor.stage(stage.id)
            await self._note_told(request, {stage: row})
            return _counted(row, 1)
        below = await self._asked.newest_below(peer.uid, place.reservation.id, place.path)
        if not below:
            # A folder inside one that is staged as a whole.
            below[place.path] = await self._known(place, peer, directory=True)
        counts = [0, 0, 0, 0]
        rows = {stage: await self._supervisor.stage(stage.id) for stage in below.values()}
        await self._note_told(request, rows)
        for stage, row in rows.items():
            for number, count in enumerate(_counts(row, None if stage.directory else 1)):
                counts[number] += count
        return " ".join(map(str, counts))

    async def wait(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """Returns when the stage is over, with its error; EAGAIN: ask again."""
        stage = await self._known(await self._place(fields, peer), peer, directory=fields.is_directory)
        row = await self._supervisor.stage(stage.id)
        if row.state is StageState.DEFERRED:
            raise _RefusalError(errno.EDEADLK)  # for the end of the job, which waits here
        return await self._until_over(stage, row, request)

    async def terminate(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """Ends the stage; returns when nothing is written any more. EAGAIN: ask again. A file of a folder that is
        staged whole has none of its own to end.
        """
        place = await self._place(fields, peer)
        stage = await self._known(place, peer, directory=fields.is_directory)
        if stage.path != place.path:
            raise _RefusalError(errno.EINVAL)
        row = await self._supervisor.stage(stage.id)
        if row.state is StageState.DEFERRED and await self._supervisor.revoke(row.id):
            return ""
        if not row.cancel:
            row = await self._supervisor.cancel(stage.id)
        try:
            return await self._until_over(stage, row, request)
        except _RefusalError as refusal:
            row = await self._supervisor.stage(row.id)
            if refusal.number == errno.EAGAIN and not row.state.is_final:
                raise
            await self._note_told(request, {stage: row})
            return ""  # how it ended is not the question

    async def concurrency(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """So many of the caller's stages of the reservation run side by side."""
        place = await self._place(fields, peer)
        stages_max = fields.number("stages", STAGES_MAX)
        if not stages_max:
            raise _RefusalError(errno.EINVAL)
        reservation = place.reservation
        write = self._supervisor.concurrency.write
        await asyncio.to_thread(write, reservation.name, reservation.id, peer.uid, stages_max)
        await self._supervisor.read_concurrency()
        return ""

    async def failed(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """The stages that failed: a path and an error number of each, all ended by NUL."""
        place = await self._place(fields, peer)
        below = await self._asked.newest_below(peer.uid, place.reservation.id, place.path)
        failed = [stage for _, stage in sorted(below.items()) if stage.state is StageState.FAILED]
        rows = {stage: await self._supervisor.stage(stage.id) for stage in failed[:_FAILED_SHOWN_MAX]}
        await self._note_told(request, rows)
        return "".join(f"{place.files}/{stage.path}\0{_error_of(row)}\0" for stage, row in rows.items())

    async def place(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """Nothing but that the path lies in a reservation."""
        await self._place(fields, peer)
        return ""

    async def accounting(self, fields: _Fields, peer: Peer, request: Request) -> str:
        """What the reservation's files may take, as JSON."""
        place = await self._place(fields, peer)
        info = await asyncio.to_thread(self._reservations.info, place.reservation.name, count_files=True)
        fragment = {
            "server_hostname": os.uname().nodename,
            "capacity_used": info.files_used_bytes,
            "capacity_max": info.files_bytes,
        }
        realm = {"realm_id": place.reservation.name, "namespace_count": 1, "server_count": 1, "fragments": [fragment]}
        return json.dumps({"realm": realm})

    async def _place(self, fields: _Fields, peer: Peer) -> Place:
        return await asyncio.to_thread(self._places.find, fields.text("path"), peer)

    async def _known(self, place: Place, peer: Peer, *, directory: bool) -> AskedStage:
        """The stage of this path, or of the nearest folder above it that is staged whole."""
        parts = place.path.split("/") if place.path else []
        paths = ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]
        found = await self._asked.newest_at(peer.uid, place.reservation.id, paths)
        for path in paths:
            stage = found.get(path)
            if stage is not None and (stage.directory if path != place.path else stage.directory is directory):
                return stage
        raise _RefusalError(errno.EINVAL)

    async def _own(self, place: Place, peer: Peer) -> AskedStage | None:
        """The newest stage of this very path."""
        found = await self._asked.newest_at(peer.uid, place.reservation.id, [place.path])
        return found.get(place.path)

    async def _deferred(self, fields: _Fields, peer: Peer) -> AskedStage:
        check_may_stage(peer)
        stage = await self._own(await self._place(fields, peer), peer)
        if stage is None or stage.state is not StageState.DEFERRED or stage.directory is not fields.is_directory:
            raise _RefusalError(errno.EINVAL)
        return stage

    async def _stage(self, fields: _Fields, peer: Peer, *, inward: bool, deferred: bool) -> None:
        check_may_stage(peer)
        place = await self._place(fields, peer)
        job = FilesJob(
            reservation=place.reservation.name,
            path=place.path,
            outside=fields.text("pfs"),
            inward=inward,
            only="directory" if fields.is_directory else "file",
        )
        if not os.path.isabs(job.outside):
            raise InvalidArgumentError("the end outside has no absolute path")
        umask = fields.number("umask", 0o777, base=8)
        async with self._asked.turn(peer.uid):
            if await self._is_there(place, peer, job, deferred=deferred):
                return
            of = await asyncio.to_thread(self._places.job_of, place, fields.text("job"), peer)
            if of is not None and not takes_stages(of):
                of = None
            if deferred and of is None:
                raise _RefusalError(errno.EINVAL)  # no job of the caller's that could end
            asking = Asking(
                peer.uid,
                place.reservation.id,
                place.path,
                fields.is_directory,
                of.id if of is not None and not inward else 0,
            )
            await self._supervisor.submit(job, peer.uid, peer.gid, umask, asking=asking, deferred=deferred)

    async def _is_there(self, place: Place, peer: Peer, job: FilesJob, *, deferred: bool) -> bool:
        """The same is under way or kept already: a request that comes twice, or a program that asks again."""
        own = await self._own(place, peer)
        if own is None or own.state.is_final:
            return False
        row = await self._supervisor.stage(own.id)
        if row.state.is_final:
            return False
        same = (row.job["outside"], row.job["inward"], row.job["only"]) == (job.outside, job.inward, job.only)
        if not same or (deferred and row.state is not StageState.DEFERRED):
            raise _RefusalError(errno.EBUSY)
        if row.state is StageState.DEFERRED and not deferred:
            await self._supervisor.activate(row.id)
        return True

    async def _note_told(self, request: Request, rows: Mapping[AskedStage, StageRow]) -> None:
        """The program learns from the answer which of these failed, unless it has gone meanwhile."""
        fresh = [stage.id for stage, row in rows.items() if row.state is StageState.FAILED and not stage.is_told]
        if fresh and not await request.is_disconnected():
            with contextlib.suppress(ForebayError):  # the job keeps its data, which does no harm
                await self._asked.note_told(fresh)

    async def _until_over(self, stage: AskedStage, row: StageRow, request: Request) -> str:
        if not row.state.is_final:
            async with turn_of(request).given_back():
                await self._supervisor.wait_for_change(row.id, self._supervisor.version(row.id), _WAIT_SECONDS)
            row = await self._supervisor.stage(row.id)
        if not row.state.is_final:
            raise _RefusalError(errno.EAGAIN)
        await self._note_told(request, {stage: row})
        if row.state is not StageState.SUCCEEDED:
            raise _RefusalError(_error_of(row))
        return ""


def build_datawarp_router(supervisor: StageSupervisor, places: Places, reservations: Reservations) -> APIRouter:
    """The route."""
    router = APIRouter()
    calls = _Calls(supervisor, places, reservations)
    known: dict[str, Callable[[_Fields, Peer, Request], Awaitable[str]]] = {
        call.__name__: call
        for call in (
            calls.stage_in,
            calls.stage_out,
            calls.defer,
            calls.revoke,
            calls.activate,
            calls.query,
            calls.wait,
            calls.terminate,
            calls.concurrency,
            calls.failed,
            calls.place,
            calls.accounting,
        )
    }

    @router.post("/datawarp")
    async def call_datawarp(request: Request, peer: CurrentPeer) -> Response:
        """One call of libdatawarp: its texts are the body, each ended by NUL."""
        try:
            fields = _Fields(await _body(request))
            if fields.call not in known:
                return _answer("", errno.ENOSYS)
            return _answer(await known[fields.call](fields, peer, request), 0)
        except _RefusalError as refusal:
            return _answer("", refusal.number)
        except NotFoundError as error:
            # It lies in no reservation, or its stage is forgotten.
            return _answer(error.what, errno.EINVAL)
        except ForebayError as error:
            return _answer(error.what, _ERRNO.get(error.code, errno.EIO))

    return router


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _BODY_BYTES_MAX:
            raise InvalidArgumentError("the call is too long")
    return bytes(body)


def _counted(row: StageRow, files: int) -> str:
    return " ".join(map(str, _counts(row, files)))


def _counts(row: StageRow, files: int | None) -> tuple[int, int, int, int]:
    """Of one stage: complete, pending, deferred, failed; `files` of them if that is known. One of them is never 0."""
    done = row.progress.get("items_done", 0) if files is None else 0
    total = files if files is not None else row.progress.get("items_total") or 0
    if row.state is StageState.SUCCEEDED:
        return max(1, total), 0, 0, 0
    if row.state is StageState.DEFERRED:
        return 0, 0, max(1, total), 0
    rest = max(1, total - done)
    if row.state.is_final:
        return done, 0, 0, rest
    return done, rest, 0, 0


def _error_of(row: StageRow) -> int:
    """Why a stage that is over has not succeeded."""
    failure: dict[str, Any] | None = row.failure
    if row.state is not StageState.FAILED or failure is None:
        return errno.ECANCELED
    try:
        number = _ERRNO.get(ErrorCode(failure["code"]), errno.EIO)
        return errno.EDQUOT if number == errno.EAGAIN else number  # EAGAIN asks the library to come again
    except ValueError:  # "killed" and "internal", which no call of the library raises
        return errno.EIO


def _answer(text: str, number: int) -> Response:
    return Response(b"%d\0" % number + os.fsencode(text), media_type="application/octet-stream")
