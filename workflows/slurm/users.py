# SPDX-License-Identifier: Apache-2.0
"""Users for whom the scheduler may act, and what is read with their rights."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd

from forebay.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from forebay.workflows.manager.core.access import Peer

__all__ = ["check_user", "primary_group", "read_as_user", "user_as_peer"]

_FILE_BYTES_MAX = 1 << 20
_READ_SECONDS_MAX = 30.0
_COMPLAINT_BYTES_MAX = 4096


def check_user(uid: int, gid: int, uid_min: int) -> None:
    """Refuses whoever gets no reservations through the scheduler. Groups come from the system, not from the caller.

    Raises
    ------
    PermissionDeniedError, NotFoundError
        The user is too low, has no account, or is no member of the group.
    """
    account = _account(uid, uid_min)
    if gid not in os.getgrouplist(account.pw_name, account.pw_gid):
        raise PermissionDeniedError(f"user {account.pw_name} is no member of group {gid}")


def primary_group(uid: int, uid_min: int) -> int:
    """The user's own group; refuses as `check_user` does."""
    return _account(uid, uid_min).pw_gid


def user_as_peer(uid: int) -> Peer:
    """The user as somebody who asks, with all groups that the system says."""
    account = pwd.getpwuid(uid)
    return Peer(uid, account.pw_gid, frozenset(os.getgrouplist(account.pw_name, account.pw_gid)))


async def read_as_user(path: str, uid: int, gid: int) -> bytes:
    """A small file's content, read by a process of the user's; InvalidArgumentError if that cannot be."""
    account = pwd.getpwuid(uid)
    identity = {}
    if uid != os.geteuid():
        identity = {"user": uid, "group": gid, "extra_groups": os.getgrouplist(account.pw_name, gid)}
    process = await asyncio.create_subprocess_exec(
        "head",
        f"--bytes={_FILE_BYTES_MAX + 1}",
        "--",
        path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C"},
        start_new_session=True,
        **identity,  # type: ignore[arg-type]
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # The process is its user's, who may write into these pipes whatever they like.
    complaining = asyncio.create_task(_read_some(process.stderr, _COMPLAINT_BYTES_MAX))
    try:
        async with asyncio.timeout(_READ_SECONDS_MAX):
            content = await _read_some(process.stdout, _FILE_BYTES_MAX + 1)
            if len(content) > _FILE_BYTES_MAX:
                raise InvalidArgumentError(f"the list is larger than {_FILE_BYTES_MAX >> 20} MiB", path)
            complaint = await complaining
            await process.wait()
    except TimeoutError:
        raise InvalidArgumentError(f"the list cannot be read within {_READ_SECONDS_MAX:g} s", path) from None
    finally:
        complaining.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Somebody else may hold the pipes, and nothing more is to be read. asyncio has no other way to close them.
        process._transport.close()  # type: ignore[attr-defined]
    if process.returncode != 0:
        reason = complaint.decode(errors="replace").strip().rpartition(": ")[2]
        raise InvalidArgumentError(f"the list cannot be read: {reason}", path)
    return content


async def _read_some(pipe: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Up to so many bytes."""
    content = bytearray()
    while len(content) < bytes_max and (piece := await pipe.read(bytes_max - len(content))):
        content += piece
    return bytes(content)


def _account(uid: int, uid_min: int) -> pwd.struct_passwd:
    if uid == 0 or uid < uid_min:
        raise PermissionDeniedError(f"user {uid} gets no reservations through the scheduler; the lowest is {uid_min}")
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise NotFoundError(f"user {uid} has no account on the node of the manager") from None
