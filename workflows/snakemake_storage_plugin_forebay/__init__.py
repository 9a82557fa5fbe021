# SPDX-License-Identifier: Apache-2.0
"""Snakemake's storage plugin `forebay`: streams, steps and files of reservations as inputs and outputs of rules.

Streams and steps are handed to rules as addresses: ``storage.fb("forebay://RES/STREAM@17", retrieve=False)``; no byte
is copied. Files are retrieved and stored as by any other storage. A stream exists when its writers have ended it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_storage_plugins.io import IOCacheStorageInterface, Mtime
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_object import (
    StorageObjectGlob,
    StorageObjectRead,
    StorageObjectTouch,
    StorageObjectWrite,
)
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    Operation,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)
from snakemake_storage_plugin_forebay.declared import DeclaredReservation
from snakemake_storage_plugin_forebay.query import Kind, Query, check_pattern, parse_query
from snakemake_storage_plugin_forebay.snapshot import ReservationSnapshot, Snapshots

import forebay
from forebay.records import StepSummary, StreamStatus

_NS = 1e9


@dataclass
class StorageProviderSettings(StorageProviderSettingsBase):
    """Settings, in the Snakefile, a profile, or as ``--storage-forebay-…``."""

    root: str | None = field(
        default=None,
        metadata={
            "help": "The instance's root; default: $FOREBAY_ROOT, as for the command line. Commands of rules find it "
            "there, too: with several roots, the one of the storage that was declared last.",
            "env_var": False,
        },
    )
    keep_streams: bool = field(
        default=False,
        metadata={
            "help": "Snakemake removes a rule's outputs before it runs the rule again. With this, streams stay, for a "
            "producer that goes on where it was killed.",
            "env_var": False,
        },
    )
    reservation: str | None = field(
        default=None,
        metadata={
            "help": "A reservation that belongs to the workflow: it is made when the workflow first asks for what is "
            "in it. Not given: reservations must exist.",
            "env_var": False,
        },
    )
    capacity: str | None = field(
        default=None,
        metadata={"help": "How much the streams of that reservation may hold, for example 2GiB.", "env_var": False},
    )
    files: str = field(
        default="0",
        metadata={"help": "How much its files may hold, beside that, for example 1GiB.", "env_var": False},
    )
    lifetime: str = field(
        default="workflow",
        metadata={
            "help": "workflow: the reservation is destroyed when Snakemake has ended, however it ended, and nobody "
            "writes into it any more. persistent: it stays until `forebay destroy`.",
            "env_var": False,
        },
    )


class StorageProvider(StorageProviderBase):
    """One instance. Built several times in a process: does nothing until it is asked something."""

    settings: StorageProviderSettings | None
    instance: forebay.Instance | None  #: None: the one that the environment names
    snapshots: Snapshots

    def __post_init__(self) -> None:
        settings = self.settings or StorageProviderSettings()
        self.instance = forebay.Instance.below(settings.root) if settings.root else None
        declared = None
        if settings.reservation:
            declared = DeclaredReservation(
                self.instance, settings.reservation, settings.capacity or "", settings.files, settings.lifetime
            )
        self.snapshots = Snapshots(self.instance, declared)
        if self.instance is not None:
            # For the commands of rules alone: the address that they are given names no instance.
            os.environ["FOREBAY_ROOT"] = str(self.instance.root)

    @property
    def keeps_streams(self) -> bool:
        """Streams stay when Snakemake removes outputs."""
        return self.settings is not None and self.settings.keep_streams

    @classmethod
    def example_queries(cls) -> list[ExampleQuery]:
        return [
            ExampleQuery("forebay://run1/flow", "a stream, when its writers have ended it", QueryType.ANY),
            ExampleQuery("forebay://run1/flow@{step}", "a step of a stream", QueryType.ANY),
            ExampleQuery("forebay://run1/files/mesh.h5", "a file of a reservation", QueryType.ANY),
        ]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        return None

    def default_max_requests_per_second(self) -> float:
        return 1e6

    def use_rate_limiter(self) -> bool:
        return False

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        try:
            check_pattern(query)
        except ValueError as error:
            return StorageQueryValidationResult(query, valid=False, reason=str(error))
        return StorageQueryValidationResult(query, valid=True)


class StorageObject(StorageObjectRead, StorageObjectWrite, StorageObjectGlob, StorageObjectTouch):
    """One address of a rule."""

    provider: StorageProvider
    query: str

    def local_suffix(self) -> str:
        return self.query.removeprefix("forebay://")

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """Enters the whole reservation, so that nothing else has to be asked for."""
        query = self._parsed
        parent = self.get_inventory_parent()
        seen = getattr(cache.exists_in_storage, "has_inventory", None)
        if parent is None or (seen is not None and parent in seen):
            return
        snapshot = self._snapshot
        if snapshot.files is None:
            return
        for name, info in snapshot.streams.items():
            steps = self.provider.snapshots.steps(query.reservation, name)
            for number, step in steps.items():
                self._enter(cache, Query(Kind.STEP, query.reservation, name, number), step.time_ns, step.size_bytes)
            if snapshot.finished(name):
                newest = max((step.time_ns for step in steps.values()), default=0)
                self._enter(cache, Query(Kind.STREAM, query.reservation, name), newest, info.size_bytes)
        for path in _regular_files(snapshot.files):
            status = path.stat()
            file = Query(Kind.FILE, query.reservation, path=str(path.relative_to(snapshot.files)))
            self._enter(cache, file, status.st_mtime_ns, status.st_size)
        if seen is not None:
            seen.add(parent)

    def _enter(self, cache: IOCacheStorageInterface, query: Query, time_ns: int, size_bytes: int) -> None:
        key = self.cache_key(query.suffix)
        cache.exists_in_storage[key] = True
        cache.mtime[key] = Mtime(storage=time_ns / _NS)
        cache.size[key] = size_bytes

    def get_inventory_parent(self) -> str | None:
        return str(self.cache_key(self._parsed.reservation))

    def cleanup(self) -> None:
        """Nothing is left where nothing was retrieved."""

    def exists(self) -> bool:
        query = self._parsed
        if query.kind is Kind.FILE:
            path = self._file
            return path is not None and path.exists()
        if query.kind is Kind.STREAM:
            return self._snapshot.finished(query.stream) is not None
        return query.step in self.provider.snapshots.steps(query.reservation, query.stream)

    def mtime(self) -> float:
        query = self._parsed
        if query.kind is Kind.FILE:
            return self._present_file.stat().st_mtime
        steps = self.provider.snapshots.steps(query.reservation, query.stream)
        if query.kind is Kind.STREAM:
            return max((step.time_ns for step in steps.values()), default=0) / _NS
        return self._step.time_ns / _NS

    def size(self) -> int:
        query = self._parsed
        if query.kind is Kind.FILE:
            return self._present_file.stat().st_size
        if query.kind is Kind.STREAM:
            info = self._snapshot.streams.get(query.stream)
            if info is None:
                raise WorkflowError(f"there is no stream {self.query}")
            return info.size_bytes
        return self._step.size_bytes

    def local_footprint(self) -> int:
        return self.size() if self._parsed.kind is Kind.FILE else 0

    def retrieve_object(self) -> None:
        if self._parsed.kind is not Kind.FILE:
            raise WorkflowError(self._not_a_file())
        shutil.copy2(self._present_file, self.local_path())

    def store_object(self) -> None:
        """A file appears whole: it is copied under another name and renamed."""
        if self._parsed.kind is not Kind.FILE:
            raise WorkflowError(self._not_a_file())
        target = self._file
        if target is None:
            raise WorkflowError(f"there is no reservation {self._parsed.reservation}; make it with `forebay create`")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
        try:
            shutil.copy2(self.local_path(), partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        self._changed()

    def remove(self) -> None:
        query = self._parsed
        if query.kind is Kind.FILE:
            path = self._file
            if path is not None and path.is_dir():
                shutil.rmtree(path)
            elif path is not None:
                path.unlink(missing_ok=True)
        elif self.provider.keeps_streams:
            return
        elif query.kind is Kind.STREAM or self._is_left_over:
            with forebay.Admin(self.provider.instance) as admin:
                if query.stream in self._snapshot.streams:
                    admin.remove_stream(f"{query.reservation}/{query.stream}")
        elif self.exists():
            raise WorkflowError(
                f"{self.query}: a single step cannot be removed; make the whole stream the rule's output, or give the "
                "stream a retention"
            )
        self._changed()

    def touch(self) -> None:
        if self._parsed.kind is Kind.FILE:
            os.utime(self._present_file)
            self._changed()
        elif not self.exists():
            raise WorkflowError(f"{self.query} is not there, so it cannot be touched")

    def list_candidate_matches(self) -> Iterable[str]:
        """All addresses of the reservation that the query's constant part names."""
        reservation = self.query.removeprefix("forebay://").split("/")[0]
        snapshot = self.provider.snapshots.of(reservation)
        if snapshot.files is None:
            return
        for name in snapshot.streams:
            if snapshot.finished(name):
                yield f"forebay://{reservation}/{name}"
            for number in self.provider.snapshots.steps(reservation, name):
                yield f"forebay://{reservation}/{name}@{number}"
        for path in _regular_files(snapshot.files):
            yield f"forebay://{reservation}/files/{path.relative_to(snapshot.files)}"

    @property
    def _parsed(self) -> Query:
        try:
            return parse_query(self.query)
        except ValueError as error:
            raise WorkflowError(f"{self.query}: {error}") from None

    @property
    def _snapshot(self) -> ReservationSnapshot:
        return self.provider.snapshots.of(self._parsed.reservation)

    @property
    def _file(self) -> Path | None:
        """Where the file lies; None without its reservation."""
        files = self._snapshot.files
        return None if files is None else files / self._parsed.path

    @property
    def _present_file(self) -> Path:
        path = self._file
        if path is None or not path.exists():
            raise WorkflowError(f"there is no file {self.query}")
        return path

    @property
    def _step(self) -> StepSummary:
        query = self._parsed
        try:
            return self.provider.snapshots.steps(query.reservation, query.stream)[query.step]
        except KeyError:
            raise WorkflowError(f"there is no step {self.query}") from None

    @property
    def _is_left_over(self) -> bool:
        """The stream's writers were lost: its steps are those of a rule that was killed and begins anew."""
        info = self._snapshot.streams.get(self._parsed.stream)
        return info is not None and info.status is StreamStatus.INTERRUPTED

    def _changed(self) -> None:
        self.provider.snapshots.forget(self._parsed.reservation)

    def _not_a_file(self) -> str:
        return (
            f'{self.query} is no file: write storage.fb("{self.query}", retrieve=False), and the rule gets the address'
        )


def _regular_files(folder: Path) -> Iterable[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
