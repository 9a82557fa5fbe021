# SPDX-License-Identifier: Apache-2.0
"""Snakemake's storage plugin `forebay`: streams, steps and files of reservations as inputs and outputs of rules.

Streams and steps are handed to rules as addresses: ``storage.fb("forebay://RES/STREAM@17", retrieve=False)``; no byte
is copied. Without ``retrieve=False`` a rule gets a ticket, a small file, or with ``?format=h5`` the step in a file of
that format. Files are retrieved and stored as by any other storage. A stream exists when its writers have ended it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterable, Iterator
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
from snakemake_storage_plugin_forebay.query import ENDINGS, Kind, Query, check_pattern, local_suffix, parse_query
from snakemake_storage_plugin_forebay.retrieving import retrieve_step
from snakemake_storage_plugin_forebay.snapshot import Snapshots

import forebay
from forebay.errors import ForebayError, InvalidArgumentError
from forebay.files.by_descriptor import copy_out, found_entry, found_place
from forebay.new_output import new_output, remove_left
from forebay.records import StepSummary, StreamInfo, StreamStatus
from forebay.ticket import Ticket

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
            ExampleQuery("forebay://run1/flow@17?format=h5", "a step as an HDF5 file", QueryType.INPUT),
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
        return local_suffix(self.query)

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """Enters the whole reservation, so that nothing else has to be asked for."""
        reservation = self._parsed.reservation
        parent = self.get_inventory_parent()
        seen = getattr(cache.exists_in_storage, "has_inventory", None)
        if parent is None or (seen is not None and parent in seen):
            return
        whole = self._snapshots.whole(reservation)
        if whole.files is None:
            return
        for name, info in whole.streams.items():
            steps = whole.steps.get(name, {})
            for number, step in steps.items():
                for wanted in ENDINGS:
                    query = Query(Kind.STEP, reservation, name, number, format=wanted)
                    self._enter(cache, query, step.time_ns, step.size_bytes)
            if whole.finished(name):
                newest = max((step.time_ns for step in steps.values()), default=0)
                self._enter(cache, Query(Kind.STREAM, reservation, name), newest, info.size_bytes)
        for path in _regular_files(whole.files):
            status = path.stat()
            file = Query(Kind.FILE, reservation, path=str(path.relative_to(whole.files)))
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
        """Snakemake removes files that were retrieved, but no folders."""
        if self._parsed.format and not self.keep_local and self.local_path().is_dir():
            shutil.rmtree(self.local_path())

    def exists(self) -> bool:
        query = self._parsed
        if query.kind is Kind.FILE:
            with self._found() as file:
                return file is not None
        if query.kind is Kind.STREAM:
            return self._snapshots.finished(query.reservation, query.stream) is not None
        return self._snapshots.step(query.reservation, query.stream, query.step) is not None

    def mtime(self) -> float:
        query = self._parsed
        if query.kind is Kind.FILE:
            with self._present() as file:
                return file.stat().st_mtime
        if query.kind is Kind.STREAM:
            steps = self._snapshots.steps(query.reservation, query.stream)
            return max((step.time_ns for step in steps.values()), default=0) / _NS
        return self._step.time_ns / _NS

    def size(self) -> int:
        query = self._parsed
        if query.kind is Kind.FILE:
            with self._present() as file:
                return 0 if file.is_dir() else file.stat().st_size
        return self._stream.size_bytes if query.kind is Kind.STREAM else self._step.size_bytes

    def local_footprint(self) -> int:
        """A ticket takes next to nothing."""
        query = self._parsed
        return self.size() if query.kind is Kind.FILE or query.format else 0

    def retrieve_object(self) -> None:
        query = self._parsed
        try:
            if query.kind is Kind.FILE:
                with self._present() as file:
                    copy_out(file, self.local_path())
            elif query.format:
                retrieve_step(query.address, query.format, self.local_path(), self.provider.instance)
            else:
                Ticket.of(query.address, instance=self.provider.instance).write(self.local_path())
        except ForebayError as error:
            raise WorkflowError(f"{self.query}: {error}") from None

    def store_object(self) -> None:
        """A file appears whole: it is copied under another name and renamed. A stream is there already."""
        query = self._parsed
        if query.kind is not Kind.FILE:
            self._check_ticket()
            return
        target = self._file
        if target is None:
            raise WorkflowError(f"there is no reservation {query.reservation}; make it with `forebay create`")
        with self._errors(), found_place(target, makes=True) as place:
            # Of a Snakemake that was killed here: one workflow at a time stores this file.
            for left in place.parent.glob(f".{glob.escape(place.name)}.*.part"):
                remove_left(left)
            # Others may write beside it.
            with new_output(place) as hidden:
                _copy(self.local_path(), hidden)
                if place.is_dir() and not place.is_symlink():
                    # A folder cannot be replaced at once; it is away for a moment.
                    shutil.rmtree(place)

    def _check_ticket(self) -> None:
        """What a rule wrote in place of a stream is a ticket for it."""
        address = f"forebay://{self._parsed.address}"
        advice = (
            f'write storage.fb("{self.query}", retrieve=False), and the rule gets the address; or let the rule end '
            f"with `forebay ticket {address} --output {{output}}`"
        )
        if self._parsed.format:
            raise WorkflowError(f"{self.query}: a rule writes steps, not files of them: {advice}")
        try:
            found = Ticket.read(self.local_path()).address
        except (InvalidArgumentError, OSError) as error:
            raise WorkflowError(f"{self.query} is no file: {advice} ({error})") from None
        if str(found) != self._parsed.address:
            raise WorkflowError(f"{self.query}: the rule wrote a ticket for {found}")
        if not self.exists():
            raise WorkflowError(f"{self.query} is not there, although the rule wrote a ticket for it")

    def remove(self) -> None:
        query = self._parsed
        if query.kind is Kind.FILE:
            path = self._file
            if path is not None:
                with self._errors(), contextlib.suppress(FileNotFoundError), found_place(path) as place:
                    _remove(place)
            return
        if self.provider.keeps_streams:
            return
        # What is remembered may be from before the rule that is run again.
        self._snapshots.forget(query.reservation)
        stream = self._snapshots.of(query.reservation).streams.get(query.stream)
        if stream is None:
            return
        try:
            with forebay.Admin(self.provider.instance) as admin:
                # The writers were lost: its steps are those of a rule that was killed and begins anew.
                if query.kind is Kind.STREAM or stream.status is StreamStatus.INTERRUPTED:
                    admin.remove_stream(f"{query.reservation}/{query.stream}")
                elif self.exists():
                    admin.drop_steps(f"{query.reservation}/{query.stream}", [query.step])
        except ForebayError as error:
            raise WorkflowError(f"{self.query} is not removed: {error}") from None
        self._snapshots.forget(query.reservation)

    def touch(self) -> None:
        if self._parsed.kind is Kind.FILE:
            with self._present() as file:
                os.utime(file)
        elif not self.exists():
            raise WorkflowError(f"{self.query} is not there, so it cannot be touched")

    def list_candidate_matches(self) -> Iterable[str]:
        """All addresses of the reservation that the query's constant part names."""
        place, question, wanted = self.query.partition("?")
        reservation = place.removeprefix("forebay://").split("/")[0]
        whole = self._snapshots.whole(reservation)
        if whole.files is None:
            return
        for name in whole.streams:
            if whole.finished(name):
                yield f"forebay://{reservation}/{name}"
            for number in whole.steps.get(name, {}):
                yield f"forebay://{reservation}/{name}@{number}{question}{wanted}"
        for path in _regular_files(whole.files):
            yield f"forebay://{reservation}/files/{path.relative_to(whole.files)}"

    @property
    def _snapshots(self) -> Snapshots:
        return self.provider.snapshots

    @property
    def _parsed(self) -> Query:
        try:
            return parse_query(self.query)
        except ValueError as error:
            raise WorkflowError(f"{self.query}: {error}") from None

    @property
    def _file(self) -> Path | None:
        """Where the file lies; None without its reservation."""
        query = self._parsed
        files = self._snapshots.of(query.reservation).files
        return None if files is None else files / query.path

    @contextlib.contextmanager
    def _found(self) -> Iterator[Path | None]:
        """The file by its descriptor; None if it is not there."""
        path = self._file
        with self._errors(), contextlib.ExitStack() as stack:
            file = None
            if path is not None:
                with contextlib.suppress(FileNotFoundError):
                    file = stack.enter_context(found_entry(path))
            yield file

    @contextlib.contextmanager
    def _present(self) -> Iterator[Path]:
        with self._found() as file:
            if file is None:
                raise WorkflowError(f"there is no file {self.query}")
            yield file

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ForebayError as error:
            raise WorkflowError(f"{self.query}: {error}") from None

    @property
    def _stream(self) -> StreamInfo:
        query = self._parsed
        found = self._snapshots.finished(query.reservation, query.stream)
        if found is None:
            raise WorkflowError(f"there is no stream {self.query} that has ended")
        return found

    @property
    def _step(self) -> StepSummary:
        query = self._parsed
        found = self._snapshots.step(query.reservation, query.stream, query.step)
        if found is None:
            raise WorkflowError(f"there is no step {self.query}")
        return found


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _regular_files(folder: Path) -> Iterable[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
