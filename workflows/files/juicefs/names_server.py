# SPDX-License-Identifier: Apache-2.0
"""The Redis of a reservation, which has the names of files: its configuration, its users, and a fence in it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from forebay.workflows.files.juicefs.part_state import HOME_NUMBER, PartState
from forebay.workflows.files.juicefs.redis_client import RedisClient
from forebay.workflows.staging.publication import write_whole

__all__ = ["HOME_USER", "admit_user", "free_session", "is_formatted", "node_user", "write_configuration", "write_users"]

#: What formats, collects garbage and fences.
HOME_USER = "home"
# Redis syncs each write before it answers. It forgets nothing to make room. It keeps its title: it is found by its
# configuration's path. It writes its log anew before that has grown far beyond what it holds.
_CONFIGURATION = """\
port 0
unixsocket {socket}
unixsocketperm 700
dir {folder}
aclfile {users}
appendonly yes
appendfsync always
auto-aof-rewrite-min-size 16mb
save ""
maxmemory-policy noeviction
set-proc-title no
daemonize no
"""
#: A node's rights: all that juicefs mounts with, and no setting of Redis.
_NODE_RIGHTS = "~* &* +@all -@admin -@dangerous +info"
_SCAN_COUNT = "1000"
_ENDED = "1"  # seconds since 1970: a session that ends then has ended


def node_user(number: int) -> str:
    """The name of a node's user."""
    return f"n{number}"


def write_configuration(path: Path, users: Path, socket: Path, tree: Path) -> None:
    """What Redis starts with."""
    folder = tree / "redis"
    folder.mkdir(mode=0o700, exist_ok=True)
    write_whole(path, _CONFIGURATION.format(socket=socket, folder=folder, users=users), mode=0o600, durable=False)


def write_users(path: Path, state: PartState) -> None:
    """Those that are allowed, for when Redis starts again; durable."""
    # Nobody can come as `default`, which is off. But Redis reads its own log with these rights, and drops what they do
    # not allow: without them all files would be lost at each start.
    lines = ["user default off resetpass ~* &* +@all"]
    lines.append(f"user {HOME_USER} on {_hash(state.password('redis', HOME_NUMBER))} ~* &* +@all")
    lines += [
        f"user {node_user(node.number)} on {_hash(state.password('redis', node.number))} {_NODE_RIGHTS}"
        for node in state.nodes.values()
        if not node.fenced
    ]
    write_whole(path, "\n".join(lines) + "\n", mode=0o600)


def admit_user(redis: RedisClient, state: PartState, number: int) -> None:
    """From now on this node's user may come; idempotent."""
    password = _hash(state.password("redis", number))
    redis.call("ACL", "SETUSER", node_user(number), "reset", "on", password, *_NODE_RIGHTS.split())


def free_session(redis: RedisClient, number: int) -> None:
    """Frees the locks of a node, whose user is gone, and marks its session as ended: juicefs removes what it held.

    All locks are looked through: a node's root may have left its own out of the list of its session.
    """
    prefix = b"%d_" % number
    for pattern in ("lockf*", "lockp*"):
        cursor = b"0"
        while True:
            cursor, keys = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            for key in keys:
                owners = [owner for owner in redis.call("HKEYS", key) if owner.startswith(prefix)]
                if owners:
                    redis.call("HDEL", key, *owners)
            if cursor == b"0":
                break
    redis.call("DEL", f"locked{number}")
    if redis.call("ZSCORE", "allSessions", str(number)) is not None:
        redis.call("ZADD", "allSessions", _ENDED, str(number))


def is_formatted(redis: RedisClient) -> bool:
    """It has what `juicefs format` writes."""
    return bool(redis.call("EXISTS", "setting"))


def _hash(password: str) -> str:
    return "#" + hashlib.sha256(password.encode()).hexdigest()
