# SPDX-License-Identifier: Apache-2.0
"""The stager's process, with a library in it that sees its changes to files, and can end it at one or let that fail.

Starting Python and loading ADIOS2 takes a second, so one process does that, and forks for every run of a stage: the
module is both that process (``python -m tests.support.watched_stager``) and what a test drives it by.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py  # noqa: F401 - loaded before the forks, as bp5 is

import forebay.workflows.staging.bp5  # noqa: F401
from forebay.manager.jobs import Job, job_to_json
from forebay.workflows.staging import __main__ as stager
from tests.support.file_changes import Accident, Change, library, logged_changes

__all__ = ["Run", "WatchedStager"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one process."""

    status: int  #: of its exit; negative: the signal that ended it
    changes: list[Change]  #: as they began; the last one of those that did not end it
    output: str


class WatchedStager:
    """Context manager; its process has the environment that there is when it begins."""

    def __init__(self, scratch: Path) -> None:
        self._log = scratch / "changes"
        self._output = scratch / "output"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env={**os.environ, "LD_PRELOAD": str(library())},
        )

    def run(self, job: Job, folder: Path, accident: Accident | None = None) -> Run:
        """Does the job in a process of its own, with that accident if any; changes in the folder are seen."""
        request = {
            "job": json.dumps(job_to_json(job)),
            "folder": str(folder.resolve(strict=True)),
            "log": str(self._log),
            "output": str(self._output),
            "change": f"{accident.change.kind} {accident.change.path}" if accident else "",
            "occurrence": accident.change.occurrence if accident else 0,
            "moment": accident.moment if accident else 0,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks has ended"
        return Run(int(answer), logged_changes(self._log), self._output.read_text(errors="replace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def _serve() -> None:
    """One fork for each line of standard input; answers with its exit status. In a fork it ends by SystemExit."""
    gc.freeze()  # Each fork that ends by itself would copy all these pages to look at them.
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            _become_stager(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become_stager(request: dict[str, Any]) -> None:
    for path, descriptor, flags in (
        (os.devnull, 0, os.O_RDONLY),
        (request["output"], 1, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    ctypes.CDLL(None).forebay_watch_changes(
        request["folder"].encode(), log, request["change"].encode(), request["occurrence"], request["moment"]
    )
    sys.argv = [stager.__file__, request["job"]]
    sys.exit(stager.main())


if __name__ == "__main__":
    _serve()
