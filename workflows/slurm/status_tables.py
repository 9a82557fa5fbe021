# SPDX-License-Identifier: Apache-2.0
"""The tables of `dwstat`: DataWarp's columns, which scripts pick by number, under a head, aligned to the right.

A state has five letters: C (to be there) or D (to go); A if it is; F if something failed; T while it changes; M never.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from forebay.manager.records import JobState
from forebay.visible_text import visible
from forebay.workflows.slurm.sessions import PoolState, Session, Use

__all__ = ["status_tables"]

_UNITS = ("", "KiB", "MiB", "GiB", "TiB", "PiB")
_READY = "CA---"
#: Jobs that wait for the end, and those in which something is under way.
_LEAVING = frozenset({JobState.POST_RUN, JobState.DATA_OUT, JobState.DRAINED})
_CHANGING = frozenset({JobState.SETUP, JobState.DATA_IN, JobState.POST_RUN, JobState.DATA_OUT})


def status_tables(pools: Sequence[PoolState], sessions: Sequence[Session], uses: Sequence[Use]) -> dict[str, str]:
    """Each table's text, by its name."""
    held = [session for session in sessions if session.files_bytes]
    activations = Counter(use.instance for use in uses if use.state is JobState.RUNNING)
    node_counts = {session.id: session.node_count for session in sessions}
    by_name = {pool.name: pool for pool in pools}
    return {
        "pools": _table(
            "pool units quantity free gran",
            (
                (pool.name, "bytes", _units(pool, pool.quantity), _units(pool, pool.free), _units(pool, 1))
                for pool in pools
            ),
        ),
        "sessions": _table(
            "sess state token creator owner created expiration nodes",
            (
                (s.id, _state(s), s.token, "SLURM", s.owner_uid, _time(s.created_seconds), "never", s.node_count)
                for s in sessions
            ),
        ),
        "instances": _table(
            "inst state sess bytes nodes created expiration intact label public confs",
            (
                (
                    *(
                        s.id,
                        _state(s),
                        s.id,
                        _size(s.files_bytes),
                        len(s.servers),
                        _time(s.created_seconds),
                        "never",
                        "true",
                    ),
                    *(s.reservation, "true" if s.state is None else "false", 1),
                )
                for s in held
            ),
        ),
        "configurations": _table(
            "conf state inst type access_type activs",
            ((s.id, _state(s), s.id, "scratch", _access(s), activations[s.id]) for s in held),
        ),
        "registrations": _table(
            "reg state sess conf wait", ((use.id, _READY, use.session, use.instance, "true") for use in uses)
        ),
        "activations": _table(
            "activ state sess conf nodes",
            (
                (use.id, _READY, use.session, use.instance, node_counts.get(use.session, 0))
                for use in uses
                if use.state is JobState.RUNNING
            ),
        ),
        "fragments": _table(
            "frag state inst capacity gran node",
            (
                (number, _state(s), s.id, _size(size), _units(by_name[s.pool], 1), server)
                for s in held
                if s.pool in by_name
                for number, server, size in s.fragments
            ),
        ),
        "nodes": _table(
            "node pool online drain gran capacity insts activs",
            (
                (
                    *(server.name, pool.name, "online" if server.online else "offline"),
                    *("drain" if server.drained else "fill", _units(pool, 1)),
                    _units(pool, server.quantity),
                    sum(s.pool == pool.name and s.lies_on(server.name) for s in held),
                    sum(activations[s.id] for s in held if s.pool == pool.name and s.lies_on(server.name)),
                )
                for pool in pools
                for server in pool.servers
            ),
        ),
    }


def _units(pool: PoolState, count: int) -> str:
    return _size(count * pool.granularity_bytes)


def _state(session: Session) -> str:
    goal = "D" if session.state in _LEAVING else "C"
    actual = "-" if session.state is JobState.SETUP else "A"
    failed = "F" if session.fails else "-"
    changing = "T" if session.state in _CHANGING else "-"
    return f"{goal}{actual}{failed}{changing}-"


def _access(session: Session) -> str:
    return "private" if session.private else "stripe"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def _size(size_bytes: int) -> str:
    """As DataWarp writes it, without a blank: a column each."""
    power = 0
    while power + 1 < len(_UNITS) and size_bytes >= 1024 ** (power + 1):
        power += 1
    number = f"{size_bytes / 1024**power:.2f}"
    return number.rstrip("0").rstrip(".") + _UNITS[power]


def _table(head: str, rows: Iterable[Sequence[object]]) -> str:
    cells = [head.split(), *([visible(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "".join(" ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + "\n" for row in cells)
