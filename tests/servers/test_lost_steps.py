# SPDX-License-Identifier: Apache-2.0
"""Steps that go with a member's power while readers hold them, and readers beside a server that is restarted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.manager.jobs import StepsJob
from forebay.workflows.staging.merged import stage_into_one
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.servers.three_servers import be_far, problems, three_servers, wait_until_present
from tests.support.load import until
from tests.support.server_pool import ServerPool
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(60)]

#: Elements of an array that is spread over all three servers.
LENGTH = 1_000_000


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerPool]:
    """Three servers; this process is on another node."""
    with three_servers(tmp_path) as made:
        be_far(made, tmp_path, monkeypatch)
        yield made


def be_on_node_of(pool: ServerPool, server: int, environment: pytest.MonkeyPatch) -> None:
    """This process is on that server's node from now on."""
    for name in ("FOREBAY_SERVER", "FOREBAY_TOKEN_FILE", "FOREBAY_TRANSPORT"):
        environment.delenv(name, raising=False)
    environment.setenv("FOREBAY_ROOT", str(pool.servers[server].root))


def write(stream: forebay.WritableStream, number: int, *, large: bool = False) -> None:
    """A step that lies on the home, or on all servers."""
    with stream.step() as step:
        step["n"] = number
        if large:
            step["T"] = np.full(LENGTH, float(number))


def stage(job: StepsJob) -> dict[str, Any]:
    return (stage_into_one if job.into else stage_steps)(job, JsonReporter(StringIO()))


def lose_power(pool: ServerPool, server: int) -> None:
    """What the server has not synced is gone when it is back."""
    pool.servers[server].kill()
    for segment in (pool.servers[server].root / "reservations").glob("*/segments/*"):
        segment.write_bytes(bytes(segment.stat().st_size))
    (pool.servers[server].root / "boot-id").write_text("another boot\n")
    pool.servers[server].start()
    pool.tell()
    until(lambda: f"member {server} (server{server}) has lost its power" in pool.servers[0].log(), "the home knows")


# crash-matrix: bytes on another member of the reservation | that member's node, with its power, while a reader holds a step that was not durable there | no other reader is given the step; who holds it is told that it is gone, and reads no bytes that are not its own
@pytest.mark.parametrize("holder_is_near", [False, True], ids=["far from the home", "on the home's node"])
def test_a_lost_step_that_a_reader_holds_is_given_to_nobody(
    pool: ServerPool, monkeypatch: pytest.MonkeyPatch, holder_is_near: bool
) -> None:
    with forebay.open("run1/flow", "w", checksums=False) as writer:
        write(writer, 0)
        write(writer, 1, large=True)
        write(writer, 2)
    with monkeypatch.context() as environment:
        if holder_is_near:
            be_on_node_of(pool, 0, environment)
        holder = forebay.open("run1/flow", verify="none")
    with holder:
        follower = holder.follow(timeout=seconds(20))
        assert next(follower).number == 0
        held = next(follower)
        assert held["n"] == 1
        lose_power(pool, 2)
        with pytest.raises(forebay.StepGoneError, match="step 1 is lost"):
            held["T"][...]
        with forebay.open("run1/flow", verify="none") as other:
            assert [(step.number, step.skipped) for step in other.follow(timeout=seconds(20))] == [(0, 0), (2, 1)]
        with forebay.open("run1/flow", verify="none") as other:
            assert [step.number for step in other.steps()] == [0, 2]
            with pytest.raises(forebay.StepGoneError, match="step 1 is lost"):
                other[1]
        assert problems(pool) == []
        del held
        assert next(follower).number == 2


# crash-matrix: stages | a member's node, with its power, before the stage-out, and then the home's server | the stage-out names the steps that went with it
@pytest.mark.parametrize("options", [{}, {"follow": True}, {"into": "all.h5"}], ids=["kept", "followed", "into one"])
def test_a_stage_out_names_steps_that_were_lost_before_it_began(
    pool: ServerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any]
) -> None:
    with forebay.open("run1/flow", "w") as writer:
        for number in range(5):
            write(writer, number, large=number in (1, 4))
    lose_power(pool, 2)
    present = pool.servers[0].log().count("is there")
    pool.servers[0].kill()
    pool.servers[0].start()
    pool.tell()
    wait_until_present(pool, present + 2)
    be_on_node_of(pool, 0, monkeypatch)
    with forebay.open("run1/flow") as stream:
        assert stream.info.lost == (forebay.StepRange(1, 1), forebay.StepRange(4, 4))
        with pytest.raises(forebay.StepGoneError, match="step 4 is lost"):
            stream[4]
    job = StepsJob("run1/flow", str(tmp_path / "out"), **options)
    with pytest.raises(forebay.StepGoneError, match="the chosen steps 1, 4 were dropped by retention, or went with a"):
        stage(job)
    result = stage(replace(job, accept_gaps=True))
    assert (result["staged"] + result["kept"], result["lost"]) == ([0, 2, 3], [1, 4])
    again = stage(replace(job, accept_gaps=True))
    assert (again["staged"], again["kept"], again["lost"]) == ([], [0, 2, 3], [1, 4])
    # What is not among the chosen steps is not named, and what is named need not be there.
    assert stage(replace(job, steps="0,2:4", replace=True))["lost"] == []
    with pytest.raises(forebay.StepGoneError, match="the chosen steps 4 were"):
        stage(replace(job, steps="4"))


# crash-matrix: read a step of several servers | a member's server, or the home's, whose node the reader is on or is not, between two reads | the next read finds it again
@pytest.mark.parametrize("restarted", [0, 1])
def test_a_reader_on_a_members_node_goes_on_when_a_server_was_restarted(
    pool: ServerPool, monkeypatch: pytest.MonkeyPatch, restarted: int
) -> None:
    with forebay.open("run1/flow", "w", durability="durable") as writer:
        for number in range(4):
            write(writer, number, large=True)
    with monkeypatch.context() as environment:
        be_on_node_of(pool, 1, environment)
        with forebay.open("run1/flow") as stream:
            for number in range(4):
                assert np.array_equal(stream[number]["T"][...], np.full(LENGTH, float(number)))
                present = pool.servers[0].log().count("is there")
                pool.servers[restarted].kill()
                pool.servers[restarted].start()
                pool.tell()
                wait_until_present(pool, present + (1 if restarted else 2))
