# SPDX-License-Identifier: Apache-2.0
"""A real staging server for tests: a forebayd on a root of its own, which may be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from forebay import parse_size
from forebay.instance import server_binary
from tests.support.time_limits import seconds

__all__ = ["StagingServer", "StartError", "forebayd"]


def forebayd() -> Path:
    """The server's program: what CMake built where ``$FOREBAY_BUILD_DIR`` says, else the installed one."""
    build = os.environ.get("FOREBAY_BUILD_DIR")
    if build and (built := Path(build) / "staging-servers" / "forebayd").is_file():
        return built
    return server_binary()


class StartError(RuntimeError):
    """The server ended, with this status, before clients could connect."""

    def __init__(self, status: int, log: str) -> None:
        super().__init__(f"forebayd did not start (status {status}): {log}")
        self.status = status


class StagingServer:
    """One instance, run by ``user`` if root chooses one. ``environment`` is what its clients need in theirs.

    ``prefix`` is a command that becomes the server's, ``ip netns exec NAME`` for example. ``program`` is another one
    than forebayd that takes its options.
    """

    def __init__(
        self,
        root: Path,
        *,
        capacity: str = "1GiB",
        options: tuple[str, ...] = (),
        user: int | None = None,
        prefix: tuple[str, ...] = (),
        program: Path | None = None,
    ) -> None:
        self.root = root
        self.environment = {"FOREBAY_ROOT": str(root)}
        self._arguments = [
            *prefix,
            str(program or forebayd()),
            "--root",
            str(root),
            "--capacity",
            str(parse_size(capacity)),
            *options,
        ]
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self, fail_point: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Returns when clients can connect. ``fail_point`` as in core/base/fail_point.h: where it is to die.

        ``environment`` is added to this process's own.
        """
        assert self._process is None
        added = {**(environment or {}), **({"FOREBAY_FAIL_POINT": fail_point} if fail_point else {})}
        ready, tell = os.pipe()
        try:
            with (self.root.parent / f"{self.root.name}.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._arguments, "--ready-fd", str(tell)],
                    pass_fds=[tell],
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                    env={**os.environ, **added},
                    user=self._user,
                    group=self._user,
                    extra_groups=None if self._user is None else [],
                )
        finally:
            os.close(tell)
        with os.fdopen(ready, "rb") as end:
            if end.read() != b"ready\n":
                raise StartError(self.stop(), self.log())

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """Ends the server and returns its exit status; nothing happens where it is not running."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(sent)
        try:
            return process.wait(seconds(60))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def wait(self, timeout: float = seconds(60)) -> int:
        """Waits for its end by itself and returns its exit status (negative: the signal)."""
        assert self._process is not None
        status = self._process.wait(timeout)
        self._process = None
        return status

    def running(self) -> bool:
        """Started, and not ended."""
        return self._process is not None and self._process.poll() is None

    def send(self, sent: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._process is not None
        self._process.send_signal(sent)

    def kill(self) -> None:
        """The server dies without a word."""
        self.stop(signal.SIGKILL)

    def log(self) -> str:
        """What it has written to its log."""
        return (self.root.parent / f"{self.root.name}.log").read_text()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
