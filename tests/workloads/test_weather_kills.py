# SPDX-License-Identifier: Apache-2.0
"""The weather example killed at 200 places: no half file is ever opened, and the results are those of a run that nobody
killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from tests.support.example_programs import EXAMPLES
from tests.support.file_changes import Accident, Change, Moment, deaths, quick_folder
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.snakemake import needs_snakemake
from tests.support.sweeps import Sweep
from tests.support.time_limits import seconds
from tests.support.weather import CYCLES, HOURS, WeatherWorkflow, watched

pytestmark = [needs_snakemake, pytest.mark.timeout(seconds(6000))]

POINTS = 100  # of each form of the output
_DRAWS_MAX = 5


class Victim(StrEnum):
    """Who dies when a change of a file begins."""

    PROCESS = "the process that makes the change, in the middle of it"
    WORKFLOW = "Snakemake with all of its jobs"
    SNAKEMAKE = "Snakemake alone: its jobs go on"
    SERVER = "the server, which comes up again"


@dataclass(frozen=True)
class Point:
    """One way to be killed."""

    victim: Victim
    accident: Accident
    aggregators: int
    retries: int  #: how often Snakemake itself runs a job again that was killed


@dataclass(frozen=True)
class Undisturbed:
    """What a run makes that nobody kills."""

    results: dict[str, bytes]
    changes: list[Change]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory, where there is room; all that the workflow changes lies in it."""
    with quick_folder(tmp_path) as quick:
        yield quick


@pytest.fixture
def instance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    """Server and manager."""
    with CommandLineInstance(folder / "root") as up:
        for name, value in up.environment.items():
            monkeypatch.setenv(name, value)
        yield up


def undisturbed(instance: CommandLineInstance, folder: Path, output: str) -> Undisturbed:
    lines: list[str] = []
    with WeatherWorkflow(instance, folder / "work", output=output, aggregators=8) as work:
        with watched(folder, folder / "pipe", lines.append) as environment:
            assert work.start(environment=environment).wait(seconds(240)) == 0, work.told()
        assert work.check_hours() == CYCLES * (HOURS + 1)
        assert [work.processed(cycle) for cycle in range(CYCLES)] == CYCLES * [list(range(HOURS + 1))]
        results = work.results()
    # The first of each kind: what comes later in a process may be another number in the next run.
    kinds_and_paths = [line.partition(" ")[::2] for line in dict.fromkeys(lines)]
    return Undisturbed(results, [Change(kind, path, 1) for kind, path in kinds_and_paths if "told.txt" not in path])


def draw(number: int, attempt: int, output: str, changes: list[Change]) -> Point:
    """The same in each run."""
    random_numbers = random.Random(f"{output} {number} {attempt}")
    aggregators = number % 8 + 1
    victim = random_numbers.choices(list(Victim), weights=[12, 4, 2, 2])[0]
    of_snakemake = victim is Victim.SNAKEMAKE and random_numbers.random() < 0.5
    possible = [
        accident
        for accident in deaths(changes)
        if ("/.snakemake/" in accident.change.path) == of_snakemake
        # Parts that fewer aggregators do not write.
        and accident.change.path.rpartition("/part")[2] not in map(str, range(aggregators, 8))
        # The log is for this test: half a line would say something else.
        and not (accident.change.path.endswith("processed.log") and accident.moment is Moment.HALFWAY)
    ]
    # First the file, then the change: otherwise, places with many changes would be all.
    path = random_numbers.choice(sorted({accident.change.path for accident in possible}))
    accident = random_numbers.choice([accident for accident in possible if accident.change.path == path])
    return Point(victim, accident, aggregators, random_numbers.choice([0, 1]))


def run_killed(instance: CommandLineInstance, folder: Path, work: WeatherWorkflow, point: Point) -> bool:
    """Runs the workflow and kills the victim once; whether it came to that."""
    is_asked = threading.Event()
    told = f"{point.accident.change.kind} {point.accident.change.path}"

    def hear(line: str) -> None:
        if line == told and point.victim is not Victim.PROCESS:
            is_asked.set()

    dies_itself = point.victim is Victim.PROCESS or (
        point.victim is Victim.SNAKEMAKE and "/.snakemake/" in point.accident.change.path
    )
    pipe = folder / "pipe"
    with watched(folder, pipe, hear, point.accident if dies_itself else None) as environment:
        # Who follows a forecast that is killed for good waits so long for it.
        running = work.start("--retries", str(point.retries), environment=environment, timeout=5)
        until(
            lambda: running.poll() is not None or (is_asked.is_set() and not dies_itself),
            "the workflow comes there or ends",
            seconds(240),
        )
        if not dies_itself and running.poll() is None:
            if point.victim is Victim.WORKFLOW:
                os.killpg(running.pid, signal.SIGKILL)
            elif point.victim is Victim.SNAKEMAKE:
                running.kill()
            else:
                instance.kill_server()
                instance.up()
        status = running.wait(seconds(240))
        # Jobs that it left go on, and tell what they do.
        assert status in (0, 1, -signal.SIGKILL), work.told()
        happened = not pipe.with_suffix(".token").exists() if dies_itself else is_asked.is_set()
        if status != 0:
            work.check_hours()
            work.finish()
        until(lambda: not work.processes(), "all have ended")
    return happened


# crash-matrix: A Snakemake workflow | in cycles of prepare, forecast, post-process, verify (example 28): a process in the middle of any change of a file; Snakemake with its jobs or without; the server; each at one of 200 places | run again, or retried by Snakemake, it finishes. No half file of an hour ever has its name or is opened; each hour is in the results once, which equal those of an undisturbed run
@pytest.mark.parametrize("output", ["files", "stream"])
def test_no_half_file_is_opened_wherever_the_cycle_is_killed(
    instance: CommandLineInstance, folder: Path, sweep: Sweep, output: str
) -> None:
    expected = undisturbed(instance, folder, output)
    for number in sweep.among(range(POINTS)):
        for attempt in range(_DRAWS_MAX):
            point = draw(number, attempt, output, expected.changes)
            where = f"{output}, point {number}, attempt {attempt}: {point}"
            with WeatherWorkflow(instance, folder / "work", output=output, aggregators=point.aggregators) as work:
                happened = run_killed(instance, folder, work, point)
                assert "is not whole" not in work.told(), f"{where}\n{work.told()}"
                assert work.check_hours() == CYCLES * (HOURS + 1), where
                assert work.results() == expected.results, where
                for cycle in range(CYCLES):
                    processed = work.processed(cycle)
                    assert set(processed) == set(range(HOURS + 1)), where
                    # Once more where it was killed between an hour and its note that it is done.
                    assert len(processed) <= HOURS + 2, f"{where}: {processed}"
            if happened:
                break
        else:
            pytest.fail(f"{output}, point {number}: nothing was killed in {_DRAWS_MAX} runs")
        print(where, flush=True)
    assert instance.run("doctor").returncode == 0


def test_a_forecast_that_writes_under_the_final_name_is_found_out(
    instance: CommandLineInstance, folder: Path, tmp_path: Path
) -> None:
    """The test above would see half a file."""
    example = tmp_path / "28_weather"
    shutil.copytree(EXAMPLES / "28_weather", example)
    source = (example / "hours.py").read_text()
    changed = source.replace('hour{hour:03d}.temp"', 'hour{hour:03d}"')
    assert changed != source
    (example / "hours.py").write_text(changed)
    with WeatherWorkflow(instance, folder / "work", example=example) as work:
        path = (work.hours_folder(0) / "hour001" / "part1").relative_to(folder)
        uuid = path.parts[2]
        accident = Accident(Change("write", f"./{path}".replace(uuid, "?"), 1), Moment.HALFWAY)
        with watched(folder, folder / "pipe", lambda _: None, accident) as environment:
            assert work.start(environment=environment, timeout=5).wait(seconds(240)) == 1
        with pytest.raises(ValueError, match=r"hour001/part1 is not whole"):
            work.check_hours()
