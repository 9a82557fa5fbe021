# SPDX-License-Identifier: Apache-2.0
"""Reads Darshan logs with PyDarshan, in a process of its own.

Logs come from anywhere, and PyDarshan's native library takes a damaged one for whole: it reads beyond its buffers, and
the process dies. So `read_log` starts this module as a program, bounds its memory and its time, and reads its answer.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.cli.following import needs_packages
from forebay.errors import CorruptError, DeadlineExceededError, InvalidArgumentError, NotFoundError
from forebay.workflows.advice.log_facts import LogFacts

if TYPE_CHECKING:
    from forebay.workflows.advice.log_counters import LogRecords, ModuleRecords, Striping

__all__ = ["read_log"]

_SECONDS_MAX = 600
_MEMORY_MAX = 16 << 30

#: Of the program: the log cannot judge, and its output says why.
_REFUSED = 3


def read_log(path: Path) -> LogFacts:
    """The facts of a log.

    Raises
    ------
    NotFoundError
        The file cannot be read.
    UnsupportedError
        PyDarshan is not installed.
    InvalidArgumentError
        It is no Darshan log, or one that cannot judge, for example without the module POSIX.
    CorruptError
        PyDarshan's library died while it read the log.
    DeadlineExceededError
        Reading took longer than ten minutes.
    """
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise NotFoundError(f"the log cannot be read: {error.strerror}", str(path)) from None
    needs_packages("reading a Darshan log", "darshan", "darshan")
    # Only this program's own modules: not what lies in the working directory.
    command = [sys.executable, "-P", "-m", __name__, os.path.abspath(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise DeadlineExceededError(f"PyDarshan did not read the log within {_SECONDS_MAX} s", str(path)) from None
    if done.returncode < 0:
        killer = signal.Signals(-done.returncode).name
        raise CorruptError(f"PyDarshan's library died ({killer}) on this log: it is damaged or cut off", str(path))
    if done.returncode == _REFUSED:
        raise InvalidArgumentError(json.loads(done.stdout)["refused"], str(path))
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
        raise CorruptError(f"PyDarshan cannot read the log: {last}", str(path))
    return LogFacts.of_json(json.loads(done.stdout))


class _CannotJudgeError(Exception):
    """The log lacks what a judgement needs."""


def _records_of(path: str) -> LogRecords:
    """What is in the log."""
    import darshan

    from forebay.workflows.advice.log_counters import LogRecords, ModuleRecords

    try:
        report = darshan.DarshanReport(path, read_all=False)
    except RuntimeError:
        raise _CannotJudgeError("this is no Darshan log, or one of a version that PyDarshan does not know") from None
    if "POSIX" not in report.modules:
        there = ", ".join(report.modules) or "none"
        raise _CannotJudgeError(
            f"the log cannot judge: it has no module POSIX, which counts reads and writes (it has: {there}). Run the "
            "program again with Darshan's POSIX module, which is on by default"
        )
    job = report.metadata["job"]
    if job["nprocs"] < 1 or job["run_time"] <= 0:
        raise _CannotJudgeError(
            f"the log cannot judge: it says {job['nprocs']} processes and a run time of {job['run_time']} s"
        )
    report.read_name_records()
    modules = {
        name: _module(report, module) if module in report.modules else ModuleRecords.none()
        for name, module in (("posix", "POSIX"), ("mpiio", "MPI-IO"), ("stdio", "STDIO"))
    }
    read = ("POSIX", "MPI-IO", "STDIO", "LUSTRE")
    return LogRecords(
        program=report.metadata["exe"].strip(),
        processes=job["nprocs"],
        run_seconds=job["run_time"],
        names=report.name_records,
        stripings=_stripings(report) if "LUSTRE" in report.modules else {},
        uses_hdf5=bool({"H5F", "H5D"} & report.modules.keys()),
        partial_modules=tuple(name for name in read if report.modules.get(name, {}).get("partial_flag")),
        **modules,
    )


def _module(report: Any, module: str) -> ModuleRecords:
    import numpy as np

    from forebay.workflows.advice.log_counters import ModuleRecords

    report.mod_read_all_records(module, dtype="numpy")
    records = report.records[module].to_numpy()
    prefix = f"{module.replace('-', '')}_"
    values = {}
    for kind in ("counters", "fcounters"):
        table = np.array([record[kind] for record in records])
        names = report.counters[module][kind]
        for column, name in enumerate(names if len(records) else ()):
            values[name.removeprefix(prefix)] = table[:, column]
    return ModuleRecords(
        np.array([record["id"] for record in records], np.uint64),
        np.array([record["rank"] for record in records], np.int64),
        values,
    )


def _stripings(report: Any) -> dict[int, Striping]:
    """Of each file; of one with several components the last that has targets, where most of a large file lies."""
    from forebay.workflows.advice.log_counters import Striping

    report.mod_read_all_lustre_records(dtype="numpy")
    count = report.counters["LUSTRE"]["counters"].index("LUSTRE_COMP_STRIPE_COUNT")
    found = {}
    for record in report.records["LUSTRE"].to_numpy():
        for component in record["components"]:
            if targets := tuple(int(ost) for ost in component["ost_ids"] if ost >= 0):
                found[record["id"]] = Striping(int(component["counters"][count]), targets)
    return found


def _main(path: str) -> int:
    """Prints the facts, or why there are none, as one document of JSON."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = resource.getrlimit(resource.RLIMIT_AS)[1]
    bound = _MEMORY_MAX if memory == resource.RLIM_INFINITY else min(_MEMORY_MAX, memory)
    resource.setrlimit(resource.RLIMIT_AS, (bound, memory))
    from forebay.workflows.advice.log_counters import facts_of

    try:
        records = _records_of(path)
    except _CannotJudgeError as refusal:
        json.dump({"refused": str(refusal)}, sys.stdout)
        return _REFUSED
    json.dump(facts_of(records).as_json(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
