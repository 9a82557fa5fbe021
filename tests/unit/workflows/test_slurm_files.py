# SPDX-License-Identifier: Apache-2.0
"""What Slurm is told after many changes, of which only the rows that changed are read again."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay.manager.records import (
    AttachmentKind,
    AttachmentRow,
    JobState,
    MemberRow,
    ReservationRow,
    ReservationState,
)
from forebay.records import ServerInfo
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.pools.placement import Reach
from forebay.workflows.manager.core.pools.pool_settings import PoolSettings
from forebay.workflows.manager.core.pools.pools import Pools
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.slurm import slurm_files
from forebay.workflows.slurm.sessions import Session
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.slurm_files import SlurmFiles
from forebay.workflows.slurm.snapshot_sections import PARTS
from forebay.workflows.slurm.status_tables import status_tables
from tests.support.randomness import TEST_SEED


class _Server:
    """One that is there, with nothing in its pool taken but what a test says."""

    def __init__(self, size_bytes: int = 1 << 40, taken_bytes: int = 0, uuid: str = "") -> None:
        self._size_bytes = size_bytes
        self._taken_bytes = taken_bytes
        self._uuid = uuid

    def server(self) -> ServerInfo:
        return ServerInfo("1", "/", 1, 1, self._size_bytes, self._taken_bytes, 1, 0, 0, self._uuid, 1)

    def reservations(self, **_: bool) -> list[Any]:
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as opened:
        yield opened


def slurm_files_of(root: Path, database: Database) -> SlurmFiles:
    root.mkdir(exist_ok=True)
    pools = Pools(database, Servers(database, lambda _address: cast(Any, _Server())), PoolSettings())
    return SlurmFiles(
        root,
        SlurmSettings(),
        database,
        pools,
        lambda job: {"FOREBAY_RESERVATION": job.reservation},
        lambda _pool: Reach(),
    )


def told(root: Path) -> tuple[Any, ...]:
    """Lists and variables, without an order; and the tables."""
    texts = [path.read_text() for path in (root / "slurm").glob("snapshot*")]
    assert len(texts) == 1 + PARTS
    assert all(text.endswith("== end\n") for text in texts)
    sections = [section for text in texts for section in text.split("== ")]
    lists: dict[str, list[Any]] = {name: [] for name in ("sessions", "instances", "configurations")}
    for section in sections:
        name, _, items = section.partition("\n")
        if name in lists:
            lists[name] += json.loads(f"[{items}]")
    ordered = {name: sorted(items, key=lambda item: str(item["id"])) for name, items in lists.items()}
    others = sorted(section for section in sections if section.startswith(("paths", "pools")))
    return ordered, others, (root / "slurm" / "dwstat").read_text()


@pytest.mark.parametrize("tables_at_once_max", [0, 1000])
def test_what_changed_alone_is_read_again_and_all_is_told(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, tables_at_once_max: int
) -> None:
    monkeypatch.setattr(slurm_files, "_TABLES_AT_ONCE_MAX", tables_at_once_max)
    monkeypatch.setattr(slurm_files, "_TABLES_PAUSE", 0)
    chance = random.Random(TEST_SEED)
    kept = slurm_files_of(tmp_path / "kept", database)
    jobs, attachments = JobTable(database), AttachmentTable(database)
    present = SimpleNamespace(state=ReservationState.PRESENT, created_ns=10**9, files_bytes=1 << 20)
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            token = str(chance.randrange(1, 6))
            job = jobs.current(token)
            if job is None or job.state.is_final:
                job = jobs.add(token, 7, 7, chance.choice([0, 1 << 20]), {})
                if job.reservation:
                    database.put_reservation(ReservationRow(job.reservation, 0, True, 7, 7, **vars(present)))
                    attachments.put(AttachmentRow(job.reservation, AttachmentKind.JOB, job.holder, 7))
            else:
                state = chance.choice([*JobState])
                if state is JobState.GONE:
                    database.forget_reservation(job.reservation)
                jobs.change(job.id, state=state)
            name = f"mesh{chance.randrange(5)}"
            persistent = chance.random() < 0.8
            database.put_reservation(ReservationRow(name, 0, persistent, 8, 8, **vars(present)))
            if chance.random() < 0.3:
                database.forget_reservation(name)
            elif chance.random() < 0.3:
                database.set_reservation_state(name, ReservationState.DESTROYING)
        kept.refresh(at_leisure=True)
        slurm_files_of(tmp_path / "fresh", database).refresh(at_leisure=True)
        assert told(tmp_path / "kept") == told(tmp_path / "fresh")


def test_tables_that_took_long_do_not_replace_newer_ones(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow_tables(*arguments: Any) -> Any:
        made = status_tables(*arguments)
        if threading.current_thread() is not threading.main_thread():
            began.set()
            assert go_on.wait(60)
        return made

    monkeypatch.setattr(slurm_files, "status_tables", slow_tables)
    monkeypatch.setattr(slurm_files, "_TABLES_AT_ONCE_MAX", 0)
    jobs = JobTable(database)
    kept = slurm_files_of(tmp_path / "kept", database)
    jobs.add("17", 7, 7, 0, {})
    slow = threading.Thread(target=lambda: kept.refresh(at_leisure=True))
    slow.start()
    try:
        assert began.wait(60)
        jobs.add("18", 7, 7, 0, {})
        kept.refresh(at_leisure=True)
    finally:
        go_on.set()
        slow.join()
    kept.refresh(at_leisure=True)
    slurm_files_of(tmp_path / "fresh", database).refresh(at_leisure=True)
    assert told(tmp_path / "kept") == told(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("reach", "free", "quantity", "largest"),
    [
        (Reach(), 2 + 1, 6 + 3, 6),  # of each server whole units; half a unit is left on both
        (Reach(without={"ssd2": "no agent runs there"}), 2, 6 + 3, 6),
        (Reach(("ssd2",)), 1, 3, 3),
    ],
)
def test_what_is_free_is_what_servers_can_have(
    tmp_path: Path, database: Database, reach: Reach, free: int, quantity: int, largest: int
) -> None:
    unit = 24 << 20  # with the share for streams
    at = {"": _Server(6 * unit, 4 * unit - unit // 2), "node2:7460": _Server(3 * unit, 2 * unit - unit // 2, "r2")}
    servers = Servers(database, lambda address: cast(Any, at[address]), "node1:7460")
    servers.join("ssd2", "node2:7460")
    pools = Pools(database, servers, PoolSettings())
    (tmp_path / "root").mkdir()
    files = SlurmFiles(tmp_path / "root", SlurmSettings(), database, pools, lambda _: {}, lambda _: reach)
    files.refresh(at_leisure=True)
    known = files.pools["forebay"]
    assert (known.free, known.quantity, known.largest) == (free, quantity, largest)
    assert largest * (16 << 20) == known.largest_bytes
    nodes = [line.split() for line in told(tmp_path / "root")[2].partition("== nodes\n")[2].splitlines()[1:3]]
    assert [words[0] for words in nodes if len(words) == 8] == [server.name for server in known.servers]


def test_the_tables_have_a_row_for_each_server_of_an_instance(tmp_path: Path, database: Database) -> None:
    members = (MemberRow("", "u1", 16 << 20), MemberRow("ssd2", "u2", 32 << 20))
    row = ReservationRow("wide", 48 << 20, True, 7, 7, created_ns=1, files_bytes=1 << 30, members=members)
    database.put_reservation(replace(row, state=ReservationState.PRESENT))
    slurm_files_of(tmp_path / "root", database).refresh(at_leisure=True)
    tables = told(tmp_path / "root")[2]
    rows = {
        title: [line.split() for line in text.splitlines()[1:] if line and not line.startswith("==")]
        for title, _, text in (section.partition("\n") for section in tables.split("== "))
    }
    assert [(words[3], words[5]) for words in rows["fragments"]] == [("1GiB", server_name()), ("32MiB", "ssd2")]
    assert len({words[0] for words in rows["fragments"]}) == 2
    assert [words[4] for words in rows["instances"]] == ["2"]


def test_names_in_tables_move_no_cursor_and_forge_no_row() -> None:
    session = Session(1, "17\n18\x1b[2J", 7, 0, 1, "na\u202eme", "pool\x9b31m", (("node1", 1),))
    tables = status_tables([], [session], [])
    assert r"17\x0a18\x1b[2J" in tables["sessions"]
    assert r"na\u202eme" in tables["instances"]
    assert [len(tables[name].splitlines()) for name in ("sessions", "instances")] == [2, 2]
    assert not [text for text in tables.values() if set(text) & {"\x1b", "\x9b", "\u202e"}]
