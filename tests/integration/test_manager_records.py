# SPDX-License-Identifier: Apache-2.0
"""The client's records have all that the manager tells, and the commands print that in the same order."""

from __future__ import annotations

import json
from pathlib import Path

from forebay.manager import MemberRow, ReservationRow, ReservationState
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.slurm_calls import SlurmCalls

#: What the manager tells of each kind, in this order.
_FIELDS = {
    "attachments": [
        "reservation",
        "kind",
        "holder",
        "owner_uid",
        "pid",
        "process",
        "ttl_seconds",
        "expires_ns",
        "created_ns",
        "id",
    ],
    "pools": ["name", "capacity_bytes", "free_bytes", "granularity_bytes", "waiting_bytes"],
    "jobs": [
        "id",
        "token",
        "run",
        "state",
        "owner_uid",
        "owner_gid",
        "capacity_bytes",
        "reservation",
        "directives",
        "stages",
        "reason",
        "created_ns",
        "changed_ns",
        "quiet",
        "node_count",
        "deadline_ns",
    ],
    "receipts": [
        "format",
        "version",
        "forebay",
        "stage",
        "uid",
        "begun_ns",
        "job",
        "ended_ns",
        "result",
        "files",
        "size_bytes",
        "crc32c",
        "path",
    ],
    "reservations": [
        "name",
        "capacity_bytes",
        "persistent",
        "owner_uid",
        "owner_gid",
        "state",
        "id",
        "force",
        "created_ns",
        "files_bytes",
        "pool",
        "account",
        "server",
        "members",
    ],
    "servers": [
        "server",
        "uuid",
        "address",
        "drained",
        "retired",
        "away_since_ns",
        "capacity_bytes",
        "free_bytes",
        "reservations",
    ],
    "queue": ["id", "name", "pool", "account", "size_bytes", "owner_uid", "created_ns", "seen_ns", "ahead"],
}


def test_records_become_the_json_that_the_manager_tells(tmp_path: Path) -> None:
    instance = CommandLineInstance(tmp_path / "root", capacity="256MiB")
    slurm = SlurmCalls(tmp_path, instance)
    with instance:
        until((instance.root / "slurm" / "snapshot").exists, "the snapshot")
        slurm.set_up("17", slurm.script("#DW jobdw capacity=64MiB access_mode=striped type=scratch"))
        instance.ask("create", "held", "--capacity", "128MiB", "--files", "1MiB")
        instance.ask("stage-in", "/etc/hostname", "held:file")
        attached = instance.ask("attach", "held", "--as", "other")["attachment"]
        drained = instance.ask("drain", "--reason", "new disks")["drained"]
        assert list(drained) == ["server", "reason", "by_uid", "since_ns"]
        with instance.manager() as manager:
            assert manager.attachments()[-1].as_dict() == attached
            assert manager.drain("new disks").as_dict() == drained
            manager.create_or_wait("later", "160MiB", persistent=False)
        printed = instance.ask("status", "--all")
        with instance.manager() as manager:
            for kind, fields in _FIELDS.items():
                told = manager._ask_list("GET", f"/{kind}")
                assert told, kind
                assert [list(document) for document in told] == [fields] * len(told), kind
                records = getattr(manager, kind)()
                assert json.dumps([record.as_dict() for record in records]) == json.dumps(told)
                if kind in printed:
                    assert json.dumps(printed[kind]) == json.dumps(told)
        assert instance.ask("servers")["servers"] == printed["servers"]


def test_reservation_on_several_servers_survives_json() -> None:
    members = (MemberRow("", "u1", 1), MemberRow("ssd2", "u2", 2, lost=True))
    row = ReservationRow(
        "wide", 3, persistent=True, owner_uid=1, owner_gid=1, state=ReservationState.PRESENT, members=members
    )
    assert ReservationRow.from_native(json.loads(json.dumps(row.as_dict()))) == row
