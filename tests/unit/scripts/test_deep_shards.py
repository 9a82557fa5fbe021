# SPDX-License-Identifier: Apache-2.0
"""The shards of the deep suites are together the whole of them, however many there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.deep_shards import SWEEP_SEEDS, Shard, fuzzer_names, native_programs, shards_of
from scripts.suites import ROOT, SUITES, Fuzzers, Native, Program, Pytest, When
from scripts.test import order_of
from tests.support.sweeps import SHARE_MIN, stride_of
from tests.support.time_limits import seconds


def shards(suite: str) -> list[Shard]:
    return [shard for shard in shards_of() if shard.name == suite or shard.name.startswith(f"{suite}-")]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.test", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds(60), check=False)


@pytest.mark.parametrize("count", [1, 2, 5, 7, len(shards_of()), 100])
def test_numbered_shards_are_the_whole(count: int) -> None:
    numbered = [order_of(["deep", "--shard", f"{number}/{count}"]).parts for number in range(1, count + 1)]
    names = [name for parts in numbered for name, _ in parts]
    assert sorted(names) == sorted(shard.name for shard in shards_of())
    assert [name for name, _ in order_of(["deep"]).parts] == [shard.name for shard in shards_of()]


def test_a_commit_chooses_one_shard() -> None:
    assert len(order_of(["deep", "--shard", "commit"]).parts) == 1


def test_continuous_integration_runs_nothing_twice_whichever_shard_the_commit_chooses() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    turns = re.findall(r"\./run test (.*) --shard commit", script)
    assert len(turns) == 1
    for named in turns:
        names = [name for name, _ in order_of(named.split()).parts]
        assert {shard.name for shard in shards_of()} < set(names)
        assert len(names) == len(set(names))


def test_every_deep_suite_has_shards_and_each_shard_is_of_one() -> None:
    deep = [name for name, suite in SUITES.items() if suite.when is When.DEEP]
    assert all(shards(name) for name in deep)
    assert sum(len(shards(name)) for name in deep) == len(shards_of())
    assert len({shard.name for shard in shards_of()}) == len(shards_of())


def test_shards_of_sweeps_take_all_points_for_each_kind_of_sweep() -> None:
    assert stride_of(1000, SWEEP_SEEDS) <= SWEEP_SEEDS <= SHARE_MIN
    for run in SUITES["sweeps"].runs:
        seeds = [shard.suite.sweep_seed for shard in shards("sweeps") if shard.suite.runs == (run,)]
        assert seeds == list(range(SWEEP_SEEDS))
    assert not any(shard.suite.all_points for shard in shards_of())


def test_a_file_that_sweeps_has_a_shard_for_each_seed_with_the_programs_of_its_suite() -> None:
    found = [shard.suite for shard in shards("workloads-weather-kills")]
    assert [suite.sweep_seed for suite in found] == list(range(SWEEP_SEEDS))
    (program,) = [run for run in SUITES["workloads"].runs if isinstance(run, Program)]
    assert all(suite.runs[0] == program for suite in found)
    assert {folder for suite in found for run in suite.runs if isinstance(run, Pytest) for folder in run.folders} == {
        "tests/workloads/test_weather_kills.py"
    }
    assert [shard.suite.sweep_seed for shard in shards("workloads-weather-example")] == [None]


@pytest.mark.parametrize("sanitizer", ["asan", "tsan"])
def test_shards_of_sanitizers_run_every_program(sanitizer: str) -> None:
    runs = [run for shard in shards(sanitizer) for run in shard.suite.runs]
    native = [run for run in runs if isinstance(run, Native)]
    assert sorted(name for run in native for name in run.programs) == sorted(native_programs())
    assert {run.preset for run in native} == {sanitizer}
    assert [run for run in runs if isinstance(run, Pytest)] == [
        run for run in SUITES[sanitizer].runs if isinstance(run, Pytest)
    ]


def test_every_program_of_native_tests_is_known_to_cmake() -> None:
    made = re.findall(r"(?m)^ +add_unit_test\(([a-z]+)", (ROOT / "tests/CMakeLists.txt").read_text(encoding="utf-8"))
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    (slices,) = {
        int(preset["cacheVariables"]["FOREBAY_CLIENT_TEST_SLICES"])
        for preset in presets
        if preset["name"] == "sanitizer"
    }
    programs = {f"test_{layer}" for layer in made if layer != "client"}
    programs |= {f"test_client_{number}" for number in range(1, slices + 1)}
    assert sorted([*programs, "fuzz_corpora"]) == sorted(native_programs())


def test_every_fuzzer_has_a_shard() -> None:
    runs = [run for shard in shards("fuzz") for run in shard.suite.runs]
    assert [name for run in runs if isinstance(run, Fuzzers) for name in run.names] == fuzzer_names()


def test_every_folder_of_tests_belongs_to_a_suite() -> None:
    folders = {
        folder for suite in SUITES.values() for run in suite.runs if isinstance(run, Pytest) for folder in run.folders
    }
    for file in (ROOT / "tests").rglob("test_*.py"):
        assert any(file.is_relative_to(ROOT / folder) for folder in folders), f"{file} belongs to no suite"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nosuch"], "there is no suite 'nosuch'"),
        (["deep", "--shard", "3/2"], "--shard is K/N"),
        (["unit", "--shard", "1/2"], "--shard goes with deep"),
    ],
)
def test_what_is_mistaken_is_told(arguments: list[str], told: str) -> None:
    done = run(*arguments)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_suite_that_ends_without_a_test_is_not_green(tmp_path: Path) -> None:
    """As pytest ends where it collects none."""
    program = (
        "import scripts.test as test, pathlib, sys\n"
        "from scripts.suites import Pytest, Suite\n"
        f"test.RESULTS = pathlib.Path({str(tmp_path)!r})\n"
        "runner = test.Runner([])\n"
        f"runner.run('empty', Suite('nothing', (Pytest(({str(tmp_path)!r},), per_core=0),), seconds_max=60))\n"
        "print(runner.failures)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=seconds(60), check=True
    )
    assert "['empty']" in done.stdout
