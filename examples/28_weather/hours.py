# SPDX-License-Identifier: Apache-2.0
"""The hours of one forecast: where they lie, the aggregators that write them, and how they are read, each as a whole.

A place is written ``directory:PATH``, ``files:RES:DIR`` (files of a reservation) or ``stream:RES/STREAM``. In files an
hour is a folder with one file of each aggregator, and gets its name by one rename when all of them are written. In a
stream an hour is a step, which is there when all ranks have ended it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from model import State

import forebay

_GRACE_SECONDS = 120.0

#: Writes its rows of an hour: the number, the first row, how many rows all have, and the rows.
WriteRows = Callable[[int, int, int, State], None]


class HalfFileError(ValueError):
    """A file does not hold what was written: its checksum differs, or some of it is missing."""


def write_rows(path: Path, hour: int, first: int, rows: State) -> None:
    """One file: a line of JSON with the checksum of what follows, the CRC-32C, then the numbers."""
    data = rows.tobytes()
    head = {"hour": hour, "first_row": first, "shape": rows.shape, "crc32c": f"{forebay.crc32c(data):08x}"}
    with path.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n")
        file.write(data)


def read_rows(path: Path, hour: int) -> tuple[int, State]:
    """Which row is the first, and the rows; HalfFileError if they are not what was written."""
    line, _, data = path.read_bytes().partition(b"\n")
    try:
        head = json.loads(line)
        if head["hour"] == hour and head["crc32c"] == f"{forebay.crc32c(data):08x}":
            return head["first_row"], np.frombuffer(data, np.float32).reshape(head["shape"])
    except (ValueError, KeyError, TypeError):
        pass
    raise HalfFileError(f"{path} is not whole")


class FileHours:
    """In a folder; that of a reservation can be followed."""

    def __init__(self, folder: Path, followed: str = "") -> None:
        self._folder = folder
        self._followed = followed

    def newest(self) -> int | None:
        """The last hour that is there."""
        found = sorted(self._folder.glob("hour[0-9][0-9][0-9]"))
        return int(found[-1].name[4:]) if found else None

    def read(self, hour: int) -> State:
        """An hour, from the parts of all aggregators."""
        folder = self._folder / f"hour{hour:03d}"
        parts = sorted(read_rows(path, hour) for path in folder.iterdir())
        return np.concatenate([rows for _, rows in parts], axis=1)

    def follow(self, last: int, timeout: float) -> Iterator[tuple[int, State]]:
        """Those that the consumer ``postprocess`` has not done: each is done when the next one is asked for."""
        if not self._followed:
            yield from ((hour, self.read(hour)) for hour in range(last + 1))
            return
        until = f"hour{last:03d}"
        with forebay.follow_files(
            self._followed, "hour???", consumer="postprocess", until=until, timeout=timeout
        ) as files:
            for file in files:
                hour = int(file.name[4:])
                yield hour, self.read(hour)

    @contextlib.contextmanager
    def writer(self, rank: int, ranks: int) -> Iterator[WriteRows]:
        """Of one aggregator."""

        def write(hour: int, first: int, all_rows: int, rows: State) -> None:
            write_rows(self._temporary(hour) / f"part{rank}", hour, first, rows)

        yield write

    def begin(self, hour: int) -> None:
        """Before the aggregators write it; one that was begun before is begun anew."""
        shutil.rmtree(self._temporary(hour), ignore_errors=True)
        self._temporary(hour).mkdir(parents=True)

    def end(self, hour: int) -> None:
        """All have written it: now it appears."""
        self._temporary(hour).rename(self._folder / f"hour{hour:03d}")

    def _temporary(self, hour: int) -> Path:
        return self._folder / f"hour{hour:03d}.temp"


class StreamHours:
    """In a stream; the aggregators are the ranks of its writer group."""

    def __init__(self, address: str) -> None:
        self._address = address

    def newest(self) -> int | None:
        with forebay.Admin() as admin:
            try:
                steps = admin.steps(self._address)
            except forebay.NotFoundError:
                return None
        return steps[-1].number if steps else None

    def read(self, hour: int) -> State:
        with forebay.open_step(f"{self._address}@{hour}") as step:
            return self._checked(step)

    def follow(self, last: int, timeout: float) -> Iterator[tuple[int, State]]:
        with forebay.open(self._address, timeout=timeout) as stream:
            for step in stream.follow("postprocess", timeout=timeout):
                yield step.number, self._checked(step)

    @contextlib.contextmanager
    def writer(self, rank: int, ranks: int) -> Iterator[WriteRows]:
        # Consumers wait so long for a forecast that was killed and begins again.
        with forebay.open(self._address, mode="a", rank=rank, ranks=ranks, grace=_GRACE_SECONDS) as stream:

            def write(hour: int, first: int, all_rows: int, rows: State) -> None:
                fields, _, columns = rows.shape
                checksum = np.array([forebay.crc32c(rows.tobytes())], np.uint32)
                with stream.step(hour) as step:
                    step.write("state", rows, shape=(fields, all_rows, columns), start=(0, first, 0))
                    step.write("crc32c", checksum, shape=(ranks,), start=(rank,))

            yield write

    def begin(self, hour: int) -> None:
        """The ranks begin the step."""

    def end(self, hour: int) -> None:
        """The last rank's end of the step has ended it."""

    def _checked(self, step: forebay.Step) -> State:
        state, checksums = step["state"], step["crc32c"][...]
        for block in state.blocks:
            first, count = block.start[1], block.count[1]
            if forebay.crc32c(state[:, first : first + count].tobytes()) != checksums[block.rank]:
                raise HalfFileError(f"{self._address}@{step.number}, rank {block.rank}, is not whole")
        return np.asarray(state[...])


Hours = FileHours | StreamHours


def hours_at(place: str) -> Hours:
    """What a place names."""
    kind, _, where = place.partition(":")
    if kind == "directory":
        return FileHours(Path(where))
    if kind == "stream":
        return StreamHours(where)
    if kind == "files":
        reservation, _, folder = where.partition(":")
        with forebay.Admin() as admin:
            return FileHours(Path(admin.reservation(reservation).files_path) / folder, where)
    raise SystemExit(f"{place!r} is no place: write directory:PATH, files:RES:DIR or stream:RES/STREAM")


class Aggregators:
    """Processes that write hours, each its share of the rows. A context manager."""

    def __init__(self, hours: Hours, count: int) -> None:
        self._hours = hours
        self._ends: list[Connection] = []
        self._processes = []
        importlib.import_module("forebay.writable_stream")  # once, instead of in each of them
        context = multiprocessing.get_context("fork")
        for rank in range(count):
            ours, theirs = context.Pipe()
            self._ends.append(ours)
            arguments = (hours, rank, count, theirs, list(self._ends))
            process = context.Process(target=_aggregate, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)

    def write(self, hour: int, state: State) -> None:
        """Returns when the hour is there."""
        self._hours.begin(hour)
        rows, count = state.shape[1], len(self._ends)
        for rank, end in enumerate(self._ends):
            first, behind = rows * rank // count, rows * (rank + 1) // count
            end.send((hour, first, rows, np.ascontiguousarray(state[:, first:behind])))
        for rank, end in enumerate(self._ends):
            try:
                end.recv()
            except EOFError:
                raise SystemExit(f"aggregator {rank} has ended while it wrote hour {hour}") from None
        self._hours.end(hour)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return  # They go with this process.
        for end in self._ends:
            end.send(None)
        for process in self._processes:
            process.join()
            if process.exitcode != 0:
                raise SystemExit(f"an aggregator ended with status {process.exitcode}")


def _aggregate(hours: Hours, rank: int, ranks: int, end: Connection, others: list[Connection]) -> None:
    for other in others:
        other.close()  # or nobody would learn that the forecast is gone
    with hours.writer(rank, ranks) as write:
        while True:
            try:
                message = end.recv()
            except EOFError:
                os._exit(1)  # as if this one had died as well
            if message is None:
                return
            write(*message)
            end.send(message[0])
