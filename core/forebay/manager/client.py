# SPDX-License-Identifier: Apache-2.0
"""Talking to the manager over its Unix socket; errors come back as what the manager raised."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from forebay import _core
from forebay.closing import Closing
from forebay.errors import DisconnectedError, ForebayError, NotFoundError, ProtocolError, error_of_code
from forebay.instance import Instance, server_place
from forebay.manager.pool_membership import PoolMembership
from forebay.manager.process_identity import process_identity
from forebay.manager.records import (
    Answer,
    AttachmentRow,
    Destruction,
    Drain,
    GivenUp,
    Health,
    JobRow,
    NodeAnswer,
    NodeReported,
    PoolServer,
    PoolSpace,
    QueuePlace,
    QueueRow,
    ReceiptRow,
    ReservationRow,
    Retirement,
    ServerStatus,
    StageRow,
    StageStatus,
    Undrained,
)
from forebay.manager.unix_path import short_path
from forebay.records import Finding, Record, ReservationInfo

if TYPE_CHECKING:
    from forebay.manager.jobs import Job

__all__ = ["ManagerClient", "follow_stage", "parse_answer"]

Json = dict[str, Any]
_R = TypeVar("_R", bound=Record)

_TIMEOUT_SECONDS = 60.0
_RECONNECT_SECONDS = 60.0
_WAIT_SECONDS = 10.0
_REFUSAL_CHARACTERS_MAX = 200
_OK = 200


class ManagerClient(Closing):
    """A connection to the instance's manager. A context manager.

    Raises
    ------
    DisconnectedError
        There is no manager.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        membership = PoolMembership.read(instance)
        self._http: http.client.HTTPConnection | _PoolConnection
        if membership is not None and membership.manager:
            self._http = _PoolConnection(instance)
        elif os.environ.get("FOREBAY_SERVER") and not os.path.exists(instance.manager_endpoint):
            self._http = _PoolConnection(None)
        else:
            self._http = _UnixConnection(self._socket_path())

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def health(self) -> Health:
        """Version, root, and the server that the manager sees."""
        return Health.from_native(self._ask("GET", "/health"))

    def findings(self) -> list[Finding]:
        """What the manager has for `forebay doctor`."""
        return self._ask_records(Finding, "/findings")

    def create(
        self,
        name: str,
        capacity: int | str,
        *,
        files: int | str = 0,
        persistent: bool,
        pool: str = "",
        account: str = "",
        on: Sequence[str] = (),
        servers: int = 0,
    ) -> ReservationInfo:
        """Creates a reservation, on so many of the servers that `on` names, if it names any; 0 are all of these, else
        one.
        """
        request = {
            "name": name,
            "capacity": capacity,
            "files": files,
            "persistent": persistent,
            "pool": pool,
            "account": account,
            "on": list(on),
            "servers": servers,
        }
        return ReservationInfo.from_native(self._ask("POST", "/reservations", body=request))

    def create_or_wait(self, name: str, capacity: int | str, **options: Any) -> ReservationInfo | QueuePlace:
        """As `create`; without room, a place in the queue for space. It is kept by asking again within 30 seconds, and
        given up by `leave_queue`.
        """
        request = {"name": name, "capacity": capacity, "wait": True, **options}
        answer = self._ask("POST", "/reservations", body=request)
        if "waiting" in answer:
            return QueuePlace.from_native(answer["waiting"])
        return ReservationInfo.from_native(answer)

    def change(self, name: str, *, persistent: bool | None = None, files: int | str | None = None) -> ReservationInfo:
        """Changes lifetime and capacity for files of a reservation; None: as it is."""
        request = {"persistent": persistent, "files": files}
        return ReservationInfo.from_native(self._ask("PATCH", f"/reservations/{quote(name, safe='')}", body=request))

    def destroy(self, name: str, *, force: bool) -> Destruction:
        """Destroys a reservation; says whether it existed, and else which names are near."""
        answer = self._ask("DELETE", f"/reservations/{quote(name, safe='')}", query={"force": force})
        return Destruction.from_native(answer)

    def reservations(self) -> list[ReservationRow]:
        """The caller's reservations, as they were asked for."""
        return self._ask_records(ReservationRow, "/reservations")

    def usable_reservations(self) -> tuple[list[ReservationInfo], list[str]]:
        """What the caller may read at least, on all servers, as these know it; and the servers that are away."""
        answer = self._ask("GET", "/usable-reservations")
        return [ReservationInfo.from_native(info) for info in answer["reservations"]], answer["away"]

    def pools(self) -> list[PoolSpace]:
        """The pools, with what of each is free."""
        return self._ask_records(PoolSpace, "/pools")

    def servers(self) -> list[ServerStatus]:
        """The servers: `drained` is None, or says since when and why it makes no new reservations."""
        return self._ask_records(ServerStatus, "/servers")

    def join(self, name: str, address: str) -> PoolServer:
        """Has a server of this name, at ``"HOST:PORT"``, in the pool from now on; idempotent."""
        return PoolServer.from_native(self._ask("POST", "/servers", body={"name": name, "address": address}))

    def retire(self, name: str) -> Retirement:
        """Lets a server of the pool take nothing new, and leave the pool with its last reservation."""
        return Retirement.from_native(self._ask("POST", f"/servers/{quote(name, safe='')}/retire"))

    def forget_server(self, name: str) -> GivenUp:
        """Gives up a server of the pool that will not come back, with its reservations."""
        return GivenUp.from_native(self._ask("DELETE", f"/servers/{quote(name, safe='')}"))

    def files_on_node(self, job: str, node: str) -> NodeAnswer:
        """What a node of a Slurm job mounts; for root of that node."""
        return NodeAnswer.from_native(self._ask("POST", "/slurm/nodes/begin", body={"job": job, "node": node}))

    def report_node(self, job: str, run: int, node: str, state: str, reason: str = "") -> NodeReported:
        """Tells that a node has mounted a job's files, or has let go of them."""
        body = {"job": job, "run": run, "node": node, "state": state, "reason": reason}
        return NodeReported.from_native(self._ask("POST", "/slurm/nodes/report", body=body))

    def agent_turn(self, turn: Json) -> Json:
        """Tells what a server's agent shows and has done; what it is to do next."""
        return self._ask("POST", "/files/agents/turn", body=turn)

    def drain(self, reason: str = "", server: str = "") -> Drain:
        """Lets a server make no new reservations; "": the one on the manager's node."""
        answer = self._ask("POST", "/servers/drain", body={"reason": reason, "server": server})
        return Drain.from_native(answer["drained"])

    def undrain(self, server: str = "") -> Undrained:
        """Lets a server make reservations again; `was_drained` says whether it made none."""
        return Undrained.from_native(self._ask("POST", "/servers/undrain", body={"server": server}))

    def queue(self) -> list[QueueRow]:
        """The caller's reservations that wait for space."""
        return self._ask_records(QueueRow, "/queue")

    def leave_queue(self, name: str) -> bool:
        """Waits no longer; False if nobody waits there."""
        return bool(self._ask("DELETE", f"/queue/{quote(name, safe='')}")["left"])

    def submit(self, job: Job) -> StageStatus:
        """Queues a stage, with this process's umask."""
        from forebay.manager.jobs import job_to_json  # which most commands do not need

        umask = os.umask(0o077)
        os.umask(umask)
        return StageStatus.from_native(self._ask("POST", "/stages", body={"job": job_to_json(job), "umask": umask}))

    def stages(self) -> list[StageRow]:
        """The caller's stages."""
        return self._ask_records(StageRow, "/stages")

    def stage(self, stage_id: int, *, seen: int = -1, wait_seconds: float = 0.0) -> StageStatus:
        """One stage; with `seen`, the version that the caller has, waits for a newer one."""
        query = {"seen": seen, "wait_seconds": wait_seconds}
        return StageStatus.from_native(self._ask("GET", f"/stages/{stage_id}", query=query))

    def cancel(self, stage_id: int) -> StageStatus:
        """Cancels a stage."""
        return StageStatus.from_native(self._ask("POST", f"/stages/{stage_id}/cancel"))

    def receipts(self, place: str = "", *, count: int = 1000) -> list[ReceiptRow]:
        """The caller's newest receipts, without their rows; with `place`, a path or RES:PATH, of what lies there."""
        return self._ask_records(ReceiptRow, "/receipts", query={"place": place, "count": count})

    def receipt(self, stage_id: int) -> Iterator[bytes]:
        """The lines of a stage's receipt, one after another.

        Raises
        ------
        NotFoundError
            There is none.
        """
        with self._away_errors():
            self._http.request("GET", f"/receipts/{stage_id}")
            response = self._http.getresponse()
            if response.status != _OK:
                raise _refusal(response.status, response.read(), f"/receipts/{stage_id}")
        return self._lines(response)

    def remove_receipt(self, stage_id: int) -> bool:
        """Removes a stage's receipt; False if there is none."""
        return bool(self._ask("DELETE", f"/receipts/{stage_id}")["removed"])

    def attach(
        self, reservation: str, holder: str, *, pid: int | None = None, ttl_seconds: float | None = None
    ) -> AttachmentRow:
        """Keeps a reservation in use until the process ends, for a time, or until `detach`; the same holder renews.

        Raises
        ------
        NotFoundError
            There is no such reservation or process.
        """
        identity = None
        if pid is not None:
            identity = process_identity(pid)
            if identity is None:
                raise NotFoundError(f"there is no process {pid}, or it has ended")
        request = {
            "reservation": reservation,
            "holder": holder,
            "pid": pid,
            "process": identity,
            "ttl_seconds": ttl_seconds,
        }
        return AttachmentRow.from_native(self._ask("POST", "/attachments", body=request))

    def extend(self, reservation: str, holder: str, *, ttl_seconds: float | None) -> AttachmentRow:
        """Lets an attachment last this long from now; None: until `detach`."""
        request = {"reservation": reservation, "holder": holder, "ttl_seconds": ttl_seconds}
        return AttachmentRow.from_native(self._ask("POST", "/attachments/extend", body=request))

    def detach(self, reservation: str, holder: str) -> bool:
        """Ends an attachment; False if there was none."""
        request = {"reservation": reservation, "holder": holder}
        return bool(self._ask("POST", "/attachments/detach", body=request)["detached"])

    def attachments(self) -> list[AttachmentRow]:
        """The caller's attachments, and those to the caller's reservations."""
        return self._ask_records(AttachmentRow, "/attachments")

    def why(self, what: str) -> list[Answer]:
        """What a reservation, job or stage waits for."""
        return self._ask_records(Answer, "/why", query={"what": what})

    def jobs(self) -> list[JobRow]:
        """The caller's jobs of a scheduler."""
        return self._ask_records(JobRow, "/jobs")

    def shut_down(self, *, force: bool) -> tuple[list[str], list[str]]:
        """Destroys what is not persistent, and asks the manager to end; returns what was destroyed, and what is to be
        once its server is back.
        """
        answer = self._ask("POST", "/shutdown", body={"force": force})
        return answer["destroyed"], answer["to_destroy"]

    def _socket_path(self) -> str:
        try:
            return self._instance.manager_endpoint.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise self._away("no manager was ever started") from None

    def _away(self, reason: str) -> DisconnectedError:
        return DisconnectedError(
            f"the manager cannot be reached ({reason}); start it with `forebay up`", str(self._instance.root)
        )

    def _ask(self, method: str, path: str, **arguments: Any) -> Json:
        document = self._request(method, path, **arguments)
        if not isinstance(document, dict):
            raise ProtocolError("the manager's answer is no object", path)
        return document

    def _ask_list(self, method: str, path: str, **arguments: Any) -> list[Json]:
        document = self._request(method, path, **arguments)
        if not isinstance(document, list):
            raise ProtocolError("the manager's answer is no list", path)
        return document

    def _ask_records(self, kind: type[_R], path: str, **arguments: Any) -> list[_R]:
        return [kind.from_native(row) for row in self._ask_list("GET", path, **arguments)]

    def _request(self, method: str, path: str, *, body: Json | None = None, query: dict[str, Any] | None = None) -> Any:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {} if body is None else {"Content-Type": "application/json"}
        with self._away_errors():
            self._http.request(method, target, None if body is None else json.dumps(body), headers)
            response = self._http.getresponse()
            text = response.read()
        return parse_answer(response.status, text, path)

    def _lines(self, response: http.client.HTTPResponse | _Response) -> Iterator[bytes]:
        while True:
            with self._away_errors():
                line = response.readline()
            if not line:
                return
            yield line

    @contextlib.contextmanager
    def _away_errors(self) -> Iterator[None]:
        """What the connection raises, as an error that says what to do."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ForebayError):
                raise
            self._http.close()
            raise self._away(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None


def parse_answer(status: int, text: bytes, path: str) -> Any:
    """The document that the manager answered a request for `path` with, or what it raised."""
    if not 200 <= status < 300:
        raise _refusal(status, text, path)
    try:
        return json.loads(text)
    except ValueError:
        raise ProtocolError("the manager's answer is no JSON; see ROOT/log/manager.log", path) from None


def _refusal(status: int, text: bytes, path: str) -> ForebayError:
    try:
        document = json.loads(text)
    except ValueError:
        return ProtocolError(f"the manager failed with status {status}; see ROOT/log/manager.log", path)
    if "error" in document:
        error = document["error"]
        return error_of_code(error["code"], error["what"], error["where"])
    return ProtocolError(f"the manager refused the request: {str(document)[:_REFUSAL_CHARACTERS_MAX]}", path)


def follow_stage(instance: Instance, stage_id: int, show: Callable[[StageStatus], None] | None = None) -> StageStatus:
    """The stage when it is over; a manager that is restarting is waited for.

    Parameters
    ----------
    show : callable, optional
        Called with the stage whenever it has changed.
    """
    deadline = time.monotonic() + _RECONNECT_SECONDS
    while True:
        try:
            with ManagerClient(instance) as manager:
                seen = -1
                while True:
                    row = manager.stage(stage_id, seen=seen, wait_seconds=_WAIT_SECONDS)
                    deadline = time.monotonic() + _RECONNECT_SECONDS
                    seen = row.version
                    if show is not None:
                        show(row)
                    if row.state.is_final:
                        return row
        except DisconnectedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class _PoolConnection:
    """The same by the servers: the one of this node introduces the caller to the one on the manager's node, which asks
    the manager.
    """

    def __init__(self, instance: Instance | None) -> None:
        self._instance = instance  # None: there is no server on this node
        self._admin: _core.Admin | None = None
        self._response = _Response(0, b"")

    def request(self, method: str, target: str, body: str | None = None, headers: Mapping[str, str] = {}) -> None:
        """Asks, and waits for the whole answer."""
        if self._admin is None:
            place = _core.pool_server(server_place(self._instance), "")
            self._admin = _core.Admin.connect(place, 0)
        self._response = _Response(*self._admin.call_manager(method, target, (body or "").encode()))

    def getresponse(self) -> _Response:
        """The answer to the last request."""
        return self._response

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None


class _Response:
    """What `http.client.HTTPResponse` gives, of an answer that is here."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = io.BytesIO(body)
        self.read = self._body.read
        self.readline = self._body.readline


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("manager", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The kernel waits where the queue of connections is full. With a timeout of Python's it would be an error.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_TIMEOUT_SECONDS), 0))
            with short_path(self._path) as path:
                connection.connect(path)
            connection.settimeout(_TIMEOUT_SECONDS)
        except OSError:
            connection.close()
            raise
        self.sock = connection
