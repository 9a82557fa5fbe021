# SPDX-License-Identifier: Apache-2.0
"""`./run test`: runs suites one after the other, each within its time, and ends with the count over all of them.

What there is stands in scripts/suites.py. Reports are left in build/test-results: NAME.xml of each run in JUnit's
format, and what sweeps tried in sweeps.jsonl.
"""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, replace

from scripts.deep_shards import SWEEP_SEEDS, Shard, shards_of
from scripts.suites import FUZZ_SECONDS, ROOT, SUITES, Fuzzers, Native, Program, Pytest, Run, Suite, When, suite_of
from scripts.summarize_tests import Figures, summarize
from scripts.sweeps_in_sources import native_sweeps

RESULTS = ROOT / "build" / "test-results"
# As in tests/support/time_limits.py, which needs no more than the standard library either.
TIME_SCALE = float(os.environ.get("FOREBAY_TEST_TIME_SCALE") or 1)
CORES = len(os.sched_getaffinity(0))
# The seed says which share of the tests with instances of their own the quick suites run; without that they would take
# twice as long.
QUICK_INSTANCE_SHARES = 5


@dataclass(frozen=True)
class Order:
    """What the command line asks for: suites and shards under the names of their reports."""

    parts: list[tuple[str, Suite]]
    pytest_arguments: list[str]


class Runner:
    """Runs suites, and knows which runs failed."""

    def __init__(self, pytest_arguments: list[str]) -> None:
        self.failures: list[str] = []
        self.figures: dict[str, Figures] = {}
        self._pytest_arguments = pytest_arguments

    def run(self, name: str, suite: Suite) -> None:
        """All runs of a suite."""
        print(f"\n== {name}: {suite.purpose}", flush=True)
        if not self._prepare(name, suite):
            return
        for number, run in enumerate(suite.runs, start=1):
            report = name if len(suite.runs) == 1 else f"{name}-{number}-{_kind_of(run)}"
            if isinstance(run, Native):
                self._native(report, suite, run)
            elif isinstance(run, Pytest):
                self._pytest(report, suite, run)
            elif isinstance(run, Fuzzers):
                self._fuzz(report, suite, run)
            else:
                self._within(report, suite, list(run.command))

    def _prepare(self, name: str, suite: Suite) -> bool:
        """Installs what the suite alone needs."""
        if not (suite.extras or suite.packages):
            return True
        done = subprocess.run(["scripts/build", "--python-only", "--suite", suite_of(name)], check=False)
        return self._note(f"{name}-packages", done.returncode)

    def _compile(self, report: str, preset: str, targets: list[str]) -> bool:
        """Configures and builds targets of a preset."""
        began = time.monotonic()
        before = _cpu_seconds()
        status = 0
        if not (ROOT / "build" / preset / "build.ninja").exists():
            status = subprocess.run(["cmake", "--fresh", "--preset", preset], stdout=subprocess.DEVNULL).returncode
        if status == 0:
            status = subprocess.run(["cmake", "--build", "--preset", preset, "--target", *targets]).returncode
        self.figures[f"{report}-build"] = Figures(time.monotonic() - began, _cpu_seconds() - before)
        return self._note(f"{report}-build", status)

    def _native(self, report: str, suite: Suite, run: Native) -> None:
        targets = [*run.programs]
        if not self._compile(report, run.preset, targets or ["native_tests"]):
            return
        command = ["ctest", "--preset", run.preset, "--parallel", str(2 * CORES), "--no-tests=error", "--progress"]
        command += ["--output-on-failure", "--output-junit", str(RESULTS / f"{report}.xml")]
        if run.sweeps_only:
            names = [sweep.name for sweep in native_sweeps()]
            command += ["--tests-regex", f"^({'|'.join(name.replace('.', '[.]') for name in names)})$"]
        elif run.programs:
            command += ["--label-regex", f"^({'|'.join(run.programs)})$"]
        # Tests that start a server from several threads do it by fork. Of many servers none need wait a second to end.
        self._within(report, suite, command, {"TSAN_OPTIONS": "die_after_fork=0:atexit_sleep_ms=0"})

    def _pytest(self, report: str, suite: Suite, run: Pytest) -> None:
        if run.targets and not self._compile(report, run.preset, list(run.targets)):
            return
        command = [sys.executable, "-m", "pytest", "--quiet", *run.folders, f"--junit-xml={RESULTS / report}.xml"]
        if run.per_core:
            command += ["-n", str(run.per_core * CORES), "--dist", run.distribution]
        if run.marker:
            command += ["-m", run.marker]
        environment = {"FOREBAY_BUILD_DIR": str(ROOT / "build" / run.preset)}
        self._within(report, suite, [*command, *self._pytest_arguments], environment)

    def _fuzz(self, report: str, suite: Suite, run: Fuzzers) -> None:
        names = run.names or tuple(sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cpp")))
        if not self._compile(report, "fuzz", list(names)):
            return
        for name in names:
            self._within(f"{report}-{name}", suite, ["scripts/run-fuzzer", name, str(FUZZ_SECONDS)])

    def _within(self, report: str, suite: Suite, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Runs a command within the suite's time. One that is interrupted still reports what it did."""
        seconds_max = int(os.environ.get("FOREBAY_TEST_SECONDS_MAX") or suite.seconds_max * TIME_SCALE)
        added = {"FOREBAY_TEST_SWEEPS_LOG": str(RESULTS / f"{report}.sweeps.jsonl")}
        added["FOREBAY_TEST_INSTANCE_SHARES"] = str(suite.instance_shares)
        if suite.all_points:
            added["FOREBAY_TEST_STRIDE_MAX"] = "1"
        if suite.sweep_seed is not None:
            seed = int(os.environ["FOREBAY_TEST_SEED"])
            added["FOREBAY_TEST_STRIDE_MAX"] = str(SWEEP_SEEDS)
            added["FOREBAY_TEST_SEED"] = str(seed - seed % SWEEP_SEEDS + suite.sweep_seed)
        began = time.monotonic()
        before = _cpu_seconds()
        limit = ["timeout", "--foreground", "--signal=INT", "--kill-after=30", str(seconds_max)]
        status = subprocess.run([*limit, *command], env={**os.environ, **added, **(environment or {})}).returncode
        if status == 124:
            print(f"run test: {report} did not end within its {seconds_max} s (FOREBAY_TEST_SECONDS_MAX changes that)")
        self.figures[report] = Figures(time.monotonic() - began, _cpu_seconds() - before)
        # pytest's status when it finds no test: what follows -- may choose none of this suite.
        nothing_chosen = status == 5 and bool(self._pytest_arguments)
        self._note(report, 0 if nothing_chosen else status, reported=(RESULTS / f"{report}.xml").exists())

    def _note(self, report: str, status: int, *, reported: bool = False) -> bool:
        """Keeps whether it failed, and writes the report of what writes none itself, as one test case."""
        if status != 0:
            self.failures.append(report)
        compiled = report.endswith(("-build", "-packages"))
        if not reported and (status != 0 or not compiled):
            suite = ElementTree.Element("testsuite")
            case = ElementTree.SubElement(suite, "testcase", name=report)
            if status != 0:
                ElementTree.SubElement(case, "failure", message=f"exit status {status}")
            ElementTree.ElementTree(suite).write(RESULTS / f"{report}.xml")
        return status == 0


def _kind_of(run: Run) -> str:
    return {Native: "native", Pytest: "python", Fuzzers: "fuzzers", Program: "program"}[type(run)]


def _cpu_seconds() -> float:
    """Of all processes that ran until now, but for those that nobody waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def list_suites() -> None:
    """The table, for people."""
    for name, suite in SUITES.items():
        needs = "; needs " + ", ".join((*suite.extras, *suite.packages)) if suite.extras or suite.packages else ""
        print(f"{name:12} {suite.when.value:6} {suite.seconds_max:5} s  {suite.purpose}{needs}")
    print("\nquick: ./run test; all of them: ./run test all; deep: ./run test deep [--shard K/N], in these shards:")
    for number, shard in enumerate(shards_of(), start=1):
        print(f"{number:3}  {shard.name}")


def shard_chosen(text: str) -> tuple[int, int]:
    """K/N, or N shards of which the commit chooses one."""
    if text == "commit":
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
        count = len(shards_of())
        return int(commit[:8], 16) % count + 1, count
    number, _, count_text = text.partition("/")
    if not (number.isdecimal() and count_text.isdecimal() and 1 <= int(number) <= int(count_text)):
        sys.exit(f"run test: --shard is K/N with K from 1 to N, or commit, not {text!r}")
    return int(number), int(count_text)


def order_of(arguments: list[str]) -> Order:
    """Reads the command line."""
    pytest_arguments: list[str] = []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, pytest_arguments = arguments[:cut], arguments[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog="./run test",
        description="Without a name: the quick suites.",
        epilog="example: ./run test unit -- -k cursor",
    )
    parser.add_argument("names", nargs="*", metavar="SUITE", help="a suite, or quick, deep, all")
    parser.add_argument(
        "--shard", metavar="K/N", help="with deep: the K-th of N shards; commit: one that follows from it"
    )
    parser.add_argument("--list", action="store_true", help="what suites and shards there are")
    asked = parser.parse_args(arguments)
    if asked.list:
        list_suites()
        sys.exit(0)
    if asked.shard and "deep" not in asked.names:
        sys.exit("run test: --shard goes with deep")
    parts: list[tuple[str, Suite]] = []
    for name in asked.names or ["quick"]:
        if name == "deep":
            number, count = shard_chosen(asked.shard or "1/1")
            shards: list[Shard] = shards_of()[number - 1 :: count]
            print(f"deep shard {number}/{count}: {', '.join(shard.name for shard in shards) or 'nothing'}")
            parts += [(shard.name, shard.suite) for shard in shards]
        elif name == "quick":
            shares = 1 if pytest_arguments else QUICK_INSTANCE_SHARES
            quick = {each: suite for each, suite in SUITES.items() if suite.when is When.QUICK}
            parts += [(each, replace(suite, instance_shares=shares)) for each, suite in quick.items()]
        elif name == "all":
            parts += SUITES.items()
        elif name in SUITES:
            parts.append((name, SUITES[name]))
        else:
            sys.exit(f"run test: there is no suite {name!r}; there are: {', '.join(SUITES)}, or quick, deep, all")
    return Order(parts, pytest_arguments)


def main(arguments: list[str]) -> int:
    """The exit status."""
    order = order_of(arguments)
    # Each run tries other places, and one number repeats it.
    seed = os.environ.setdefault("FOREBAY_TEST_SEED", str(secrets.randbelow(1 << 32)))
    print(f"FOREBAY_TEST_SEED={seed}", flush=True)
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    runner = Runner(order.pytest_arguments)
    try:
        for name, suite in order.parts:
            runner.run(name, suite)
    except KeyboardInterrupt:
        runner.failures.append("interrupted")
    print("\n== summary")
    whole = summarize(RESULTS, runner.figures)
    if runner.failures:
        print(f"failed: {', '.join(runner.failures)}; FOREBAY_TEST_SEED={seed} repeats what was drawn")
    print(whole)
    # What ran no test has shown nothing.
    return 1 if runner.failures or whole.failed or not whole.passed else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
