# SPDX-License-Identifier: Apache-2.0
"""Asks a Ganesha by its private bus: with `dbus-send`, so that no library is needed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import DeadlineExceededError, StorageError
from forebay.workflows.files.daemons import program_path

__all__ = ["GaneshaBus"]

_NOT_THERE = "Export id not found"
_THERE = "already active"


@dataclass(frozen=True, slots=True)
class GaneshaBus:
    """The bus at this socket."""

    socket: Path
    deadline: float  #: on the monotonic clock

    def is_open(self) -> bool:
        """The bus takes connections. Its socket has a name before it does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(max(0.1, self.deadline - time.monotonic()))
            try:
                client.connect(os.fspath(self.socket))
            except OSError:
                return False
        return True

    def answers(self) -> bool:
        """Ganesha serves. It takes its name on the bus last."""
        try:
            done = self._call("ShowExports")
        except DeadlineExceededError:
            return False
        return done.returncode == 0

    def add(self, configuration: Path, number: int) -> None:
        """Opens an export that the file describes; idempotent.

        Raises
        ------
        StorageError
            Ganesha does not take it.
        """
        done = self._call("AddExport", f"string:{configuration}", f"string:EXPORT(Export_Id={number})")
        if done.returncode != 0 and _THERE not in done.stderr:
            raise StorageError(f"the NFS server does not open the export: {_last_line(done.stderr)}")

    def remove(self, number: int) -> None:
        """Takes an export away; idempotent. When it returns, what was inside has landed and nothing more can.

        Raises
        ------
        StorageError
            It does not say so.
        """
        done = self._call("RemoveExport", f"uint16:{number}")
        if done.returncode != 0 and _NOT_THERE not in done.stderr:
            raise StorageError(f"the NFS server does not close the export: {_last_line(done.stderr)}")

    def _call(self, method: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        left = self.deadline - time.monotonic()
        command = [
            program_path("dbus-send", "dbus-bin"),
            f"--bus=unix:path={self.socket}",
            "--print-reply",
            f"--reply-timeout={max(1, round(left * 1000))}",
            "--dest=org.ganesha.nfsd",
            "/org/ganesha/nfsd/ExportMgr",
            f"org.ganesha.nfsd.exportmgr.{method}",
            *arguments,
        ]
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=max(0.1, left), check=False
            )
        except subprocess.TimeoutExpired:
            raise DeadlineExceededError(f"the NFS server does not answer {method} in time", str(self.socket)) from None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it does not say why"])[-1][:200]
