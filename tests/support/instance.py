# SPDX-License-Identifier: Apache-2.0
"""A real instance for tests - server and manager - driven by the command line as a user would."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from tests.support.manager_database import configuration_line
from tests.support.processes import processes_where
from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds

__all__ = ["CommandLineInstance"]

_COMMAND_SECONDS_MAX = seconds(120)


class CommandLineInstance:
    """An instance below ``root``. A context manager: taken down by force at the end."""

    def __init__(
        self, root: Path, *, capacity: str = "1GiB", python: Path | None = None, up_options: tuple[str, ...] = ()
    ) -> None:
        self.root = root
        self._python = str(python or sys.executable)
        self.files = Instance(root)
        self.environment = {"FOREBAY_ROOT": str(root), "FOREBAY_SERVER_BINARY": str(forebayd())}
        self._capacity = capacity
        self._up_options = up_options
        self.database = configuration_line()
        if self.database:
            configuration = root.with_name(f"{root.name}.toml")
            configuration.write_text(self.database)
            self.environment["FOREBAY_CONFIG"] = str(configuration)

    def command(self, *arguments: str) -> list[str]:
        """The command line ``forebay ARGUMENTS``."""
        return [self._python, "-m", "forebay", *arguments]

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs ``forebay ARGUMENTS``, whatever comes of it."""
        return subprocess.run(
            self.command(*arguments),
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
            **options,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts ``forebay ARGUMENTS``."""
        return subprocess.Popen(
            self.command(*arguments),
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Runs ``forebay ARGUMENTS --json``, which must succeed, and returns what it prints."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, f"forebay {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @property
    def up_command(self) -> tuple[str, ...]:
        """How this instance is started: ``run(*up_command)`` for an `up` that may fail."""
        return ("up", "--capacity", self._capacity, *self._up_options)

    def up(self) -> dict[str, Any]:
        """``forebay up``."""
        return self.ask(*self.up_command)

    def manager(self) -> ManagerClient:
        """A connection to the manager."""
        return ManagerClient(self.files)

    def server_pid(self) -> int:
        """Of the running server."""
        return _pid(self.files.server_identity)

    def manager_pid(self) -> int:
        """Of the running manager."""
        return _pid(self.files.manager_identity)

    def kill_manager(self) -> None:
        """The manager dies without a word; returns when it is gone."""
        _kill(self.manager_pid())

    def kill_server(self) -> None:
        """The server dies without a word; returns when it is gone."""
        _kill(self.server_pid())

    def stagers(self) -> list[int]:
        """Processes that stage for this instance."""
        return processes_where(
            lambda process: (
                b"forebay.workflows.staging" in (process / "cmdline").read_bytes()
                and f"FOREBAY_ROOT={self.root}".encode() in (process / "environ").read_bytes().split(b"\0")
            )
        )

    def kill_stagers(self) -> int:
        """Kills them; how many there were, for one may have ended meanwhile."""
        killed = 0
        for pid in self.stagers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    def logs(self) -> str:
        """What server and manager have written."""
        return "".join(path.read_text() for path in (self.files.server_log, self.files.manager_log) if path.exists())

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        done = self.run("down", "--force")
        assert done.returncode == 0, done.stderr + self.logs()


def _pid(identity: Path) -> int:
    pid: int = json.loads(identity.read_text())["pid"]
    return pid


def _kill(pid: int) -> None:
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        # Readable when it has ended; nobody but its parent could wait for it otherwise.
        assert select.select([process], [], [], 30)[0]
    finally:
        os.close(process)
