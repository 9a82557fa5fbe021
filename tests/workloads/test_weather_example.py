# SPDX-License-Identifier: Apache-2.0
"""The weather example: stages and cycles overlap, all ways and numbers of aggregators have the same results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.example_programs import EXAMPLES
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.snakemake import PYTHON, needs_snakemake
from tests.support.time_limits import seconds
from tests.support.weather import CYCLES, HOURS, WeatherWorkflow, hours_module

pytestmark = [needs_snakemake, pytest.mark.timeout(600)]


def test_all_ways_have_the_same_results_and_a_row_each(instance: CommandLineInstance, tmp_path: Path) -> None:
    output = tmp_path / "out"
    options = ["--cycles", "2", "--hours", "2", "--grid", "64", "--steps", "2", "--output", str(output), "--json"]
    done = subprocess.run(
        [str(PYTHON), str(EXAMPLES / "28_weather" / "weather.py"), *options],
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        timeout=seconds(400),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    assert [(row["output"], row["jobs"]) for row in table["ways"]] == [
        ("directory", 1), ("directory", 2), ("files", 2), ("stream", 2)
    ]  # fmt: skip
    assert all(row["seconds"] > 0 and row["first_product"] > 0 for row in table["ways"])
    assert [(row["aggregators"], row["files_an_hour"]) for row in table["aggregators"]] == [
        (1, 1), (2, 2), (4, 4), (8, 8)
    ]  # fmt: skip
    scores = (output / "way3" / "cycle1" / "scores.csv").read_text().splitlines()
    assert len(scores) == 4
    # A cycle that begins with what stations observed knows more than the one before.
    first = (output / "way3" / "cycle0" / "scores.csv").read_text().splitlines()
    assert float(scores[1].split(",")[2]) < float(first[1].split(",")[2])


@pytest.mark.parametrize("output", ["files", "stream"])
def test_a_stage_begins_while_the_one_before_runs_and_a_cycle_while_the_last_is_postprocessed(
    instance: CommandLineInstance, tmp_path: Path, output: str
) -> None:
    with WeatherWorkflow(instance, tmp_path / "work", output=output) as work:
        with work.start(hours=40, steps=20, timeout=seconds(200)) as running:
            until(lambda: len(work.hours_there(0)) > 0, "the first hour is there")
            (forecast,) = work.processes("forecast --start cycle0", is_child_of_flock=True)
            os.kill(forecast, signal.SIGSTOP)
            assert not (work.folder / "cycle0/forecast.done").exists()
            products = work.folder / "cycle0" / "products"
            until(lambda: any(products.glob("hour*")), "an hour is processed while the forecast is in the middle")
            (postprocess,) = work.processes("postprocess --output cycle0", is_child_of_flock=True)
            os.kill(postprocess, signal.SIGSTOP)
            os.kill(forecast, signal.SIGCONT)
            until(lambda: len(work.processes("forecast --start cycle1")) > 0, "the next cycle is forecast")
            assert not (work.folder / "cycle0/products.csv").exists()
            os.kill(postprocess, signal.SIGCONT)
            assert running.wait(seconds(240)) == 0, work.told()
        assert work.processed(0) == work.processed(1) == list(range(41))


def test_results_do_not_depend_on_the_aggregators(instance: CommandLineInstance, tmp_path: Path) -> None:
    found = []
    for aggregators, output in ((1, "files"), (8, "files"), (3, "stream")):
        with WeatherWorkflow(instance, tmp_path / "work", output=output, aggregators=aggregators) as work:
            assert work.start().wait(seconds(240)) == 0, work.told()
            assert work.check_hours() == CYCLES * (HOURS + 1)
            if output == "files":
                assert len(list((work.hours_folder(0) / "hour001").iterdir())) == aggregators
            found.append(work.results())
    assert len(found[0]) == CYCLES * (2 + HOURS + 1)
    assert found[0] == found[1] == found[2]


def test_half_a_file_is_noticed_wherever_it_ends(tmp_path: Path) -> None:
    hours = hours_module()
    path, rows = tmp_path / "part0", np.ones((4, 3, 5), np.float32)
    hours.write_rows(path, 7, 0, rows)
    np.testing.assert_array_equal(hours.read_rows(path, 7)[1], rows)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(hours.HalfFileError):
            hours.read_rows(path, 7)
    path.write_bytes(whole)
    with pytest.raises(hours.HalfFileError):
        hours.read_rows(path, 8)


def test_a_place_that_is_none_is_refused_with_the_forms_that_there_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(PYTHON), str(EXAMPLES / "28_weather" / "stages.py"), "postprocess", "--place", "nowhere", "--output",
         str(tmp_path / "products.csv"), "--log", str(tmp_path / "log"), "--hours", "1", "--timeout", "1"],
        capture_output=True, text=True, timeout=seconds(60),
    )  # fmt: skip
    assert done.returncode == 1
    assert "write directory:PATH, files:RES:DIR or stream:RES/STREAM" in done.stderr
