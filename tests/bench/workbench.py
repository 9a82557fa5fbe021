# SPDX-License-Identifier: Apache-2.0
"""Where a case runs: a folder of its own, a staging server that lives as long as the case."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forebay
from tests.support.staging_server import StagingServer

__all__ = ["GIB", "KIB", "MIB", "RESERVATION", "Instance", "Workbench"]

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

#: The reservation's name in every case.
RESERVATION = "bench"


@dataclass(frozen=True, slots=True)
class Instance:
    """A running server with one reservation."""

    server: StagingServer
    environment: dict[str, str]

    def address(self, stream: str = "steps") -> str:
        """Of a stream in the reservation."""
        return f"{RESERVATION}/{stream}"


class Workbench:
    """The folder that cases write to, on the file system that is measured, and how much they do."""

    def __init__(self, folder: Path, *, quick: bool, long: bool = False) -> None:
        self.folder = folder
        self.quick = quick
        self.long = long
        self._numbers = itertools.count()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def steps(self, full: int, quick: int) -> int:
        """How many steps a case takes."""
        return quick if self.quick else full

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A fresh folder, deleted afterwards together with what waits in the page cache to be written back."""
        folder = self.folder / f"case-{next(self._numbers)}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    @contextlib.contextmanager
    def instance(self, capacity_bytes: int, *options: str) -> Iterator[Instance]:
        """A server with a fresh reservation. It is killed at the end: nobody needs its bytes on disk any more."""
        with self.scratch() as folder, contextlib.ExitStack() as stack:
            pool_bytes = capacity_bytes + 256 * MIB
            server = StagingServer(folder / "root", capacity=str(pool_bytes), options=options)
            server.start()
            stack.callback(server.kill)
            before = os.environ.get("FOREBAY_ROOT")
            os.environ["FOREBAY_ROOT"] = str(folder / "root")
            stack.callback(_restore_environment, "FOREBAY_ROOT", before)
            with forebay.Admin() as admin:
                admin.create(RESERVATION, capacity_bytes)
            yield Instance(server, server.environment)


def _restore_environment(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
