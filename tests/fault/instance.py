# SPDX-License-Identifier: Apache-2.0
"""A server with what a fault test does to it, and the check of what must hold afterwards."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import forebay
from forebay import Admin, Finding, Severity
from tests.support.load import LoadProcess, check, follow, write
from tests.support.staging_server import StagingServer

__all__ = ["Instance"]


class Instance(StagingServer):
    """A :class:`StagingServer` whose load processes end with it."""

    def __init__(
        self,
        root: Path,
        *,
        capacity: str = "1GiB",
        restart_grace_ms: int = 60_000,
        flush_interval_ms: int = 500,
        user: int | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        options = ("--restart-grace-ms", str(restart_grace_ms), "--flush-interval-ms", str(flush_interval_ms))
        super().__init__(root, capacity=capacity, options=options, user=user, prefix=prefix)
        self._processes = ExitStack()

    def admin(self) -> Admin:
        """A new connection for administration; a context manager."""
        return Admin(self.socket())

    def socket(self) -> str:
        """Path of the server's socket."""
        return (self.root / "endpoint").read_text().strip()

    def create(self, name: str, capacity: str, **options: Any) -> None:
        """Makes a reservation."""
        with self.admin() as admin:
            admin.create(name, capacity, **options)

    def write(self, address: str, **options: object) -> LoadProcess:
        """Starts a writing rank."""
        return self._processes.enter_context(write(self.environment, address, **options))

    def group(self, address: str, ranks: int, group: str = "", **options: Any) -> list[LoadProcess]:
        """Starts all ranks of a writer group and waits until it has formed."""
        writers = [self.write(address, rank=rank, ranks=ranks, group=group or None, **options) for rank in range(ranks)]
        for writer in writers:
            writer.wait_for("opened")
        return writers

    def follow(self, address: str, **options: object) -> LoadProcess:
        """Starts a reader."""
        return self._processes.enter_context(follow(self.environment, address, **options))

    def check(self, address: str) -> dict[int, int]:
        """Reads every kept step in another process, and returns the incarnation of each."""
        return {event["step"]: event["incarnation"] for event in check(self.environment, address)}

    def problems(self) -> list[Finding]:
        """What an audit that reads all data finds wrong."""
        with self.admin() as admin:
            return [finding for finding in admin.audit(read_data=True) if finding.severity == Severity.PROBLEM]

    def check_disk_use(self, name: str) -> None:
        """What a reservation takes on the device, journals included, is no more than its capacity."""
        with self.admin() as admin:
            info = admin.reservation(name)
        taken = sum(path.lstat().st_blocks * 512 for path in Path(info.files_path).parent.rglob("*"))
        assert taken <= info.capacity_bytes, f"{taken} bytes on disk of a capacity of {info.capacity_bytes}"

    def steps(self, address: str) -> list[forebay.StepSummary]:
        """The kept steps."""
        with self.admin() as admin:
            return admin.steps(address)

    def stream(self, address: str) -> forebay.StreamInfo:
        """What is known of a stream."""
        with self.admin() as admin:
            return admin.stream(address)

    def restart(self, fail_point: str | None = None) -> None:
        """Kills it where it still runs, and starts it again."""
        if self.running():
            self.kill()
        self.start(fail_point)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()
        super().__exit__(kind, error, trace)
