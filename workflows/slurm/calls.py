# SPDX-License-Identifier: Apache-2.0
"""The calls of Slurm's plugin `burst_buffer/datawarp`, as its program `dw_wlm_cli` passes them on.

The program opens the script itself, with its own rights, and sends its bytes: the manager opens no path that it is
told. An answer is the text that the program prints and its exit status. Contract: docs/operations/slurm.md.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from forebay.errors import ForebayError, InvalidArgumentError, PermissionDeniedError
from forebay.names import is_valid_name
from forebay.visible_text import visible
from forebay.workflows.directives.directive_lines import parse_slurm_size
from forebay.workflows.directives.directive_parsing import parse_directives
from forebay.workflows.directives.directives import Directives
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.http.peer import CurrentPeer
from forebay.workflows.slurm.jobs import SlurmJobs
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["build_router"]

_BODY_BYTES_MAX = 4 << 20
_ARGUMENTS_MAX = 64
#: create_persistent comes with these.
_SHORT_OPTIONS = {
    "-a": "--access",
    "-c": "--caller",
    "-C": "--capacity",
    "-g": "--groupid",
    "-j": "--job",
    "-t": "--token",
    "-T": "--type",
    "-u": "--user",
}
_TOKEN = re.compile(r"[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the plugin's program."""

    options: dict[str, str]
    flags: frozenset[str]
    script: bytes
    nodes: tuple[str, ...] | None = None  #: that Slurm has chosen; None: it does not say

    def option(self, name: str) -> str:
        try:
            return self.options[name]
        except KeyError:
            raise InvalidArgumentError(f"--{name} is missing") from None

    @property
    def token(self) -> str:
        token = self.option("token")
        if _TOKEN.fullmatch(token) is None:
            raise InvalidArgumentError(f'"{token[:80]}" is no job number')
        return token

    @property
    def persistent_name(self) -> str:
        name = self.option("token")
        if not is_valid_name(name):
            raise InvalidArgumentError(f'"{name[:80]}" is no name of a reservation')
        return name

    def number(self, name: str) -> int:
        text = self.option(name)
        if _NUMBER.fullmatch(text) is None:
            raise InvalidArgumentError(f'--{name} "{text[:80]}" is no number')
        return int(text)


def build_router(jobs: SlurmJobs, settings: SlurmSettings) -> APIRouter:
    """The routes."""
    router = APIRouter()

    def capacity(call: _Call) -> tuple[str, int]:
        pool, _, size = call.option("capacity").rpartition(":")
        return jobs.pool_of(pool), parse_slurm_size(size)

    async def job_process(call: _Call) -> str:
        await jobs.check(await _parsed(call, as_submitted=True))
        return ""

    async def create_persistent(call: _Call) -> str:
        if call.options.get("type", "scratch") != "scratch" or call.options.get("access", "striped") != "striped":
            raise InvalidArgumentError("a persistent reservation has access=striped and type=scratch")
        name = call.persistent_name
        uid = call.number("user")
        await jobs.slow_calls.run(uid, jobs.persistents.create, name, uid, *capacity(call))
        await jobs.write_slurm_files()
        return f"created {name}\n"

    async def setup(call: _Call) -> str:
        directives = await _parsed(call)
        user = call.number("user")
        if not call.options.get("job", "").startswith("/proc/"):
            # Slurm passes the script itself, with its symbols, where it has replaced none of them.
            directives = await jobs.expanded(call.token, user, directives)
        await jobs.setup(call.token, user, call.number("groupid"), *capacity(call), directives)
        return f"created {call.token}\n"

    async def data_in(call: _Call) -> str:
        await jobs.data_in(call.token)
        return ""

    async def real_size(call: _Call) -> str:
        return json.dumps({"units": "bytes", "capacity": await jobs.real_size(call.token)}) + "\n"

    async def pre_run(call: _Call) -> str:
        await jobs.pre_run(call.token, await _parsed(call), call.nodes)
        return ""

    async def post_run(call: _Call) -> str:
        await jobs.post_run(call.token)
        return ""

    async def data_out(call: _Call) -> str:
        await jobs.data_out(call.token)
        return ""

    async def teardown(call: _Call) -> str:
        hurry = "hurry" in call.flags
        if is_valid_name(call.option("token")):  # a job's token begins with a digit
            known = await asyncio.to_thread(jobs.persistents.destroy, call.persistent_name, hurry=hurry)
            await jobs.write_slurm_files()
        else:
            known = await jobs.teardown(call.token, hurry=hurry)
        return "" if known else "token not found: nothing is left of it\n"

    calls: dict[str, Callable[[_Call], Awaitable[str]]] = {
        call.__name__: call
        for call in (
            job_process,
            create_persistent,
            setup,
            data_in,
            real_size,
            pre_run,
            post_run,
            data_out,
            teardown,
        )
    }

    @router.post("/slurm")
    async def call_slurm(request: Request, peer: CurrentPeer) -> Response:
        """One call of `dw_wlm_cli`: its arguments are `a=` of the query, the script is the body."""
        _check_scheduler(peer, settings)
        try:
            call, function = await _read(request)
            if function not in calls:
                raise InvalidArgumentError(f"invalid function {function[:80]}")
            return _answer(await calls[function](call), 0)
        except ForebayError as error:
            # Slurm shows a person the first line.
            where = f" ({error.where})" if error.where else ""
            return _answer(f"{visible(error.what + where)}\n", 1)

    return router


def _check_scheduler(peer: Peer, settings: SlurmSettings) -> None:
    if not peer.is_administrator and peer.uid != settings.scheduler_uid:
        raise PermissionDeniedError(
            f"user {peer.uid} is not the scheduler; [slurm] scheduler_user of the configuration names it"
        )


async def _read(request: Request) -> tuple[_Call, str]:
    arguments = request.query_params.getlist("a")
    if len(arguments) > _ARGUMENTS_MAX:
        raise InvalidArgumentError("too many arguments")
    script = bytearray()
    async for part in request.stream():
        script += part
        if len(script) > _BODY_BYTES_MAX:
            raise InvalidArgumentError(f"the script is larger than {_BODY_BYTES_MAX >> 20} MiB")
    options: dict[str, str] = {}
    flags: set[str] = set()
    at = 0
    while at < len(arguments):
        name = _SHORT_OPTIONS.get(arguments[at], arguments[at])
        if not name.startswith("--") or len(name) < 3:
            raise InvalidArgumentError(f'"{name[:80]}" is no option')
        if at + 1 < len(arguments) and not arguments[at + 1].startswith("-"):
            options[name[2:]] = arguments[at + 1]
            at += 2
        else:
            flags.add(name[2:])
            at += 1
    function = options.get("function", "")
    if "script-bytes" not in options:
        return _Call(options, frozenset(flags), bytes(script)), function
    script_bytes = _Call(options, frozenset(), b"").number("script-bytes")
    nodes = tuple(script[script_bytes:].decode("utf-8", errors="replace").split())
    return _Call(options, frozenset(flags), bytes(script[:script_bytes]), nodes), function


async def _parsed(call: _Call, *, as_submitted: bool = False) -> Directives:
    """What the script asks for. It may be long, and others are answered meanwhile."""
    return await asyncio.to_thread(parse_directives, call.script, as_submitted=as_submitted)


def _answer(text: str, status: int) -> Response:
    return Response(text, media_type="text/plain; charset=utf-8", headers={"X-Forebay-Exit-Status": str(status)})
