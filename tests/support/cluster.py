# SPDX-License-Identifier: Apache-2.0
"""A cluster for tests, driven by the command line as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds

__all__ = ["CommandLineCluster"]

_COMMAND_SECONDS_MAX = seconds(180)


class CommandLineCluster:
    """`forebay cluster` below ``folder``. A context manager.

    Parameters
    ----------
    python : str
        With forebay; one that other users may run, where they are to have stages.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        server_binary: Path | None = None,
        python: str = sys.executable,
        **variables: str,
    ) -> None:
        self.folder = folder
        self._python = python
        self._options = options
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")},
            "FOREBAY_CLUSTER": str(folder),
            "FOREBAY_SERVER_BINARY": str(server_binary or forebayd()),
            **variables,
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs ``forebay cluster ARGUMENTS``, whatever comes of it."""
        return subprocess.run(
            [self._python, "-m", "forebay", "cluster", *arguments],
            env=self._environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
        )

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Starts ``forebay cluster ARGUMENTS``, beside others."""
        return subprocess.Popen(
            [self._python, "-m", "forebay", "cluster", *arguments],
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Runs it with ``--json``, which must succeed, and returns what it prints."""
        answer: dict[str, Any] = json.loads(self.must(*arguments, "--json"))
        return answer

    def must(self, *arguments: str, **environment: str) -> str:
        """Runs it, which must succeed, and returns what it prints."""
        done = self.run(*arguments, **environment)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def on(self, node: int, *command: str, **environment: str) -> str:
        """Runs a command on a node, which must succeed, and returns what it prints."""
        return self.must("exec", str(node), "--", *command, **environment)

    def forebay(self, node: int, *arguments: str, **environment: str) -> str:
        """`forebay ARGUMENTS` on a node, likewise."""
        return self.on(node, self._python, "-m", "forebay", *arguments, **environment)

    def __enter__(self) -> Self:
        self.must("up", *self._options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (self.folder / "cluster.json").exists():
            self.must("down")
