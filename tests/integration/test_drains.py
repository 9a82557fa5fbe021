# SPDX-License-Identifier: Apache-2.0
"""A drained server makes no new reservations; what is there can be used and destroyed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.slurm_calls import SlurmCalls

pytestmark = pytest.mark.instance

_JOB = "#DW jobdw capacity=64MiB access_mode=striped type=scratch"


@pytest.fixture
def instance(tmp_path: Path) -> CommandLineInstance:
    return CommandLineInstance(tmp_path / "root")


@pytest.fixture
def slurm(tmp_path: Path, instance: CommandLineInstance) -> Iterator[SlurmCalls]:
    calls = SlurmCalls(tmp_path, instance)
    with instance:
        until((instance.root / "slurm" / "snapshot").exists, "the snapshot")
        yield calls


def free(slurm: SlurmCalls) -> int:
    """Units of the pool that Slurm may give to jobs."""
    return int(json.loads(slurm.ask("pools"))["pools"][0]["free"])


# crash-matrix: A server that is drained | manager, killed | it makes no reservations still; those that are there can be used
def test_a_drained_server_makes_no_reservations(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    instance.ask("create", "mine", "--capacity", "16MiB", "--files", "16MiB")
    script = slurm.script(_JOB)
    slurm.set_up("17", script)
    before = free(slurm)
    assert instance.ask("status")["servers"][0]["drained"] is None

    told = instance.ask("drain", "--reason", "new disks")
    assert told["drained"]["reason"] == "new disks"
    assert free(slurm) == 0  # before that is answered
    instance.kill_manager()
    instance.up()
    assert free(slurm) == 0
    assert instance.ask("drain", "--reason", "new fans")["drained"]["since_ns"] == told["drained"]["since_ns"]

    for refused in (
        instance.run("create", "more", "--capacity", "16MiB"),
        instance.run("change", "mine", "--files", "32MiB"),
    ):
        assert refused.returncode != 0
        assert "is drained (new fans)" in refused.stderr
    refused_job = slurm.call("setup", *slurm.setup_arguments("18", script))
    assert refused_job.returncode == 1
    assert "is drained (new fans)" in refused_job.stdout
    # What is there can be used, and goes.
    instance.ask("attach", "mine", "--as", "me")
    slurm.set_up("17", script)
    slurm.ask("teardown", "--token", "17", "--job", script)
    instance.ask("detach", "mine", "--as", "me")
    until(lambda: instance.ask("ls")["reservations"] == [], "it to go with its last holder")

    (server,) = instance.ask("status")["servers"]
    assert server["drained"]["reason"] == "new fans"
    assert "is drained since" in instance.run("status").stdout
    (row,) = slurm.table("nodes")
    assert (row["node"], row["online"], row["drain"]) == (server["server"], "online", "drain")
    doctor = instance.run("doctor")
    assert doctor.returncode == 0
    assert "is drained (new fans)" in doctor.stdout

    assert instance.ask("undrain")["was_drained"] is True
    assert free(slurm) > before
    assert instance.ask("undrain")["was_drained"] is False
    assert slurm.table("nodes")[0]["drain"] == "fill"
    instance.ask("create", "more", "--capacity", "16MiB")
    assert instance.run("doctor").returncode == 0


def test_whoever_waits_gets_space_when_the_server_is_back(slurm: SlurmCalls, instance: CommandLineInstance) -> None:
    instance.ask("drain")
    with instance.start("create", "later", "--capacity", "16MiB", "--wait") as waiting:
        try:
            until(lambda: [row["name"] for row in instance.ask("status")["queue"]] == ["later"], "it to wait")
            (answer,) = instance.ask("why", "later")["answers"]
            assert "is drained and makes no reservations" in answer["waits_for"]
            assert answer["ends"].startswith("`forebay undrain`")
            assert answer["since_ns"] <= time.time_ns()
            instance.ask("undrain")
            assert waiting.wait(60) == 0
        finally:
            waiting.kill()
            waiting.communicate()
    assert [row["name"] for row in instance.ask("ls")["reservations"]] == ["later"]
