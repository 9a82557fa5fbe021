# SPDX-License-Identifier: Apache-2.0
"""The stage-outs of a soak: submitted, killed with their processes, taken up again, and compared with the formula."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adios2

import forebay
from forebay.manager.jobs import StepsJob
from tests.soak.cast import Cast
from tests.soak.content import wrong_in_step
from tests.support.instance import CommandLineInstance
from tests.support.staged_output import check_destination, recorded_entries, stray_names
from tests.support.time_limits import seconds

__all__ = ["StageOuts"]

_FINAL = ("succeeded", "failed", "cancelled")
#: Outputs of each stage that are read again; the rest is compared with the receipt's checksums.
_OUTPUTS_READ_MAX = 12
#: In one round.
_STAGES_MAX = 3
#: Longest time without an output.
_SECONDS_MAX = seconds(90)


@dataclass
class _Stage:
    cast: Cast
    number: int
    job: StepsJob
    since_ns: int


class StageOuts:
    """All that run in one round. A stage that failed by what was done to it must succeed when it is run again."""

    def __init__(self, instance: CommandLineInstance, folder: Path, chance: random.Random) -> None:
        self._instance = instance
        self._folder = folder
        self._chance = chance
        self._stages: list[_Stage] = []
        self.staged = 0

    def submit(self, cast: Cast) -> None:
        """Steps of a stream by a rule: until it ends, or those that are there."""
        if len(self._stages) >= _STAGES_MAX:
            return
        # Each output costs some syncs.
        every = self._chance.choice([2, 5, 10]) if (cast.newest() or 0) < 200 else 40
        job = StepsJob(
            stream=cast.address,
            destination=str(self._folder / f"stage{len(self._stages)}"),
            every=every,
            follow=self._chance.random() < 0.5,
            accept_unchecked=True,
            accept_gaps=True,
        )
        since = time.monotonic_ns()
        cast.log.tell("director", "staging", stream=cast.address, destination=job.destination)
        try:
            with self._instance.manager() as manager:
                number = manager.submit(job).id
        except forebay.ForebayError:
            return
        self._stages.append(_Stage(cast, number, job, since))

    def kill(self) -> bool:
        """Every process that stages dies; the manager starts them again."""
        return self._instance.kill_stagers() > 0

    def finish(self) -> None:
        """Waits for all, runs once more what failed, and tells what lies at the destinations."""
        for stage in self._stages:
            if stage.cast.newest() is None and not self._is_over(stage.number):
                # It would wait for a stream that has gone, or that nobody has begun, to begin.
                with self._instance.manager() as manager:
                    manager.cancel(stage.number)
            state = self._await(stage.number)
            if state == "failed":
                # Followers of an interrupted stream fail by rule, and so does what was killed too often.
                job = StepsJob(**{**vars_of(stage.job), "follow": False})
                stage.since_ns = time.monotonic_ns()
                with self._instance.manager() as manager:
                    state = self._await(manager.submit(job).id, stage)
            self._tell(stage, state)
            shutil.rmtree(stage.job.destination, ignore_errors=True)
        self._stages.clear()

    def _is_over(self, number: int) -> bool:
        with self._instance.manager() as manager:
            return manager.stage(number).state in _FINAL

    def _await(self, number: int, stage: _Stage | None = None) -> str:
        with self._instance.manager() as manager:
            row = manager.stage(number)
            advanced = time.monotonic()
            while row.state not in _FINAL:
                newer = manager.stage(number, seen=row.version, wait_seconds=5.0)
                if newer.version != row.version:
                    advanced = time.monotonic()
                assert time.monotonic() < advanced + _SECONDS_MAX, f"stage {number} gets no further: {newer}"
                row = newer
        failure = row.failure or {}
        if stage is not None and row.state == "failed" and failure["code"] != "not_found":
            stage.cast.log.tell("stage", "breach", rule="staged", what=f"{stage.job.stream}: {failure}")
        return str(row.state)

    def _tell(self, stage: _Stage, state: str) -> None:
        destination = Path(stage.job.destination)
        entries = []
        receipt = recorded_entries(destination)
        if receipt:
            try:
                check_destination(destination)
                strays = stray_names(destination)
                if state != "succeeded":
                    # What a killed stage has left is dealt with by the next that gets to its stream; this one is gone.
                    strays = {name for name in strays if not name.startswith(".")}
                wrong = f"not in the receipt: {strays}" if strays else ""
            except (AssertionError, OSError) as error:
                wrong = f"what lies there does not match the receipt: {error}"
            read = set(self._chance.sample(sorted(receipt), min(len(receipt), _OUTPUTS_READ_MAX)))
            for number, entry in receipt.items():
                found = wrong or (_wrong_output(stage.job.stream, destination, entry) if number in read else "")
                entries.append([number, entry["epoch"], found])
        self.staged += len(entries)
        stage.cast.log.tell(
            "director",
            "staged",
            stream=stage.job.stream,
            destination=stage.job.destination,
            state=state,
            every=stage.job.every,
            since_ns=stage.since_ns,
            entries=entries,
        )


def vars_of(job: StepsJob) -> dict[str, Any]:
    """The fields of a job."""
    return {name: getattr(job, name) for name in job.__dataclass_fields__}


def _wrong_output(stream: str, destination: Path, entry: dict[str, Any]) -> str:
    with adios2.FileReader(str(destination / entry["output"])) as reader:
        step, epoch, _, wrong = wrong_in_step(stream.partition("/")[2], reader.read)
    if (step, epoch) != (entry["step"], entry["epoch"]):
        return f"the receipt says step {entry['step']} of epoch {entry['epoch']}, the output {step} of {epoch}"
    return wrong
