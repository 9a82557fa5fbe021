# SPDX-License-Identifier: Apache-2.0
"""The demo's own instance, driven by the command `forebay` as a user would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from programs import DemoError, processes_of_instance, wait_for_end

import forebay

#: Settings of this machine's installation; all other FOREBAY_ variables of the caller would change what the demo shows.
_KEPT_VARIABLES = ("FOREBAY_ADIOS2_LIBRARY", "FOREBAY_SERVER_BINARY", "FOREBAY_BUILD_DIR")
_COMMAND_SECONDS_MAX = 120.0


def _find_command() -> str:
    beside = Path(sys.executable).with_name("forebay")
    command = str(beside) if beside.is_file() else shutil.which("forebay")
    if command is None:
        raise DemoError("there is no command `forebay`: run ./run build, then ./run demo")
    return command


class Instance:
    """An instance below ``root``. A context manager: it is taken down at the end, by force if need be."""

    #: Of `forebay create`.
    create_options: tuple[str, ...] = ()

    def __init__(self, root: Path) -> None:
        self.root = root
        self.command = _find_command()
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FOREBAY_") or name in _KEPT_VARIABLES
        } | {"FOREBAY_ROOT": str(root)}
        # For the demo's own connections.
        os.environ["FOREBAY_ROOT"] = str(root)
        os.environ.pop("FOREBAY_SOCKET", None)

    def run(self, *arguments: str) -> str:
        """Runs `forebay ARGUMENTS` and returns what it prints; DemoError if it fails."""
        done = self._run(*arguments)
        if done.returncode != 0:
            raise DemoError(
                f"`forebay {' '.join(arguments)}` ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def up(self) -> None:
        """Starts what does not run of server and manager."""
        self.run("up")

    def simulation_environment(self, stream: str) -> dict[str, str]:
        """What `eval "$(forebay env RES/STREAM)"` puts into a shell."""
        variables: dict[str, str] = json.loads(self.run("env", stream, "--json"))
        return self.environment | variables

    def server_pid(self) -> int:
        with forebay.Admin() as admin:
            return admin.server().pid

    def doctor(self) -> dict[str, Any]:
        """The findings of `forebay doctor --read-data`, and whether it calls the instance clean."""
        done = self._run("doctor", "--read-data", "--json")
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
            return {"clean": answer["clean"] and done.returncode == 0, "findings": answer["findings"]}
        except (ValueError, KeyError):
            raise DemoError(f"`forebay doctor` said:\n{done.stdout}{done.stderr}") from None

    def down(self) -> list[int]:
        """Takes it down; returns the processes that are left, of which there should be none."""
        serving = processes_of_instance(self.root)
        self.run("down")
        return wait_for_end(serving, 5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not processes_of_instance(self.root):
            return
        self._run("down")
        for pid in processes_of_instance(self.root):
            os.kill(pid, signal.SIGKILL)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self.command, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS_MAX,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise DemoError(
                f"`forebay {' '.join(arguments)}` has not ended within {_COMMAND_SECONDS_MAX:g} s"
            ) from None
