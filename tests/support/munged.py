# SPDX-License-Identifier: Apache-2.0
"""A munged of a test's own, for all nodes of one machine."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.load import until

__all__ = ["Munged", "why_no_munge"]


def why_no_munge() -> str:
    """Why there can be none; "" if there can."""
    return "" if shutil.which("munged") else "munged is not installed: apt install munge"


class Munged:
    """Runs while the context lasts."""

    def __init__(self) -> None:
        # A short path, of which every folder is root's and nobody else's.
        self._folder = tempfile.TemporaryDirectory(prefix="munged-", dir="/run")
        self.folder = Path(self._folder.name)
        self.socket = self.folder / "socket"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.chmod(0o755)
        key = self.folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(64))
        files = {name: self.folder / name for name in ("log-file", "pid-file", "seed-file")}
        self._process = subprocess.Popen(
            [
                "munged",
                "--foreground",
                f"--key-file={key}",
                f"--socket={self.socket}",
                *(f"--{name}={path}" for name, path in files.items()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        process = self._process
        until(lambda: self.socket.exists() or process.poll() is not None, "munged listens")
        if process.poll() is not None and process.stderr is not None:
            raise AssertionError(f"munged ended: {process.stderr.read().decode()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
        self._folder.cleanup()
