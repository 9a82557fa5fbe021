# SPDX-License-Identifier: Apache-2.0
"""A stream as a folder of files: what `forebay mount` shows.

``flow@17.h5`` is step 17 in each format that holds it, ``flow@17/T.npy`` one variable, and ``flow@latest…`` a link to
the newest. Names come and go with the steps; a file's bytes never change.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

from forebay.datatypes import STRING_DTYPE, ShapeKind
from forebay.errors import ForebayError, NotFoundError, StepGoneError, UnsupportedError
from forebay.step import Step
from forebay.step_metadata import StepMetadata
from forebay.stream import Stream
from forebay.views.formats import format_named
from forebay.views.sealed_file import ArrayRun, SealedFile, read_part

if TYPE_CHECKING:
    from forebay._fuse import Content

__all__ = ["FILE", "FOLDER", "LINK", "ShownStream"]

FOLDER, FILE, LINK = 0, 1, 2
_LATEST = "latest"
_ONE_VARIABLE = "npy"
# Files whose layout is remembered. Most take some 10 KiB; a writer decides how many small arrays a step has.
_REMEMBERED_MAX = 512
_REMEMBERED_BYTES_MAX = 64 << 20
_RUN_BYTES = 200


class ShownStream:
    """See the module; a `forebay._fuse.Tree`.

    Parameters
    ----------
    stream : Stream
        Open for reading.
    formats : sequence of str
        The ends of names that are shown, of `forebay.views.formats.format_names`.
    """

    def __init__(self, stream: Stream, formats: Sequence[str]) -> None:
        self._stream = stream
        self._whole = [name for name in formats if name != _ONE_VARIABLE]
        self._has_variables = _ONE_VARIABLE in formats
        name = stream.address.stream
        ends = "|".join(map(re.escape, self._whole))
        self._name = re.compile(
            rf"{re.escape(name)}@(?P<step>0|[1-9][0-9]{{0,18}}|{_LATEST})(?:\.(?P<format>{ends or '(?!)'}))?"
        )
        self._lock = Lock()
        # Guarded by _lock:
        self._laid_out: OrderedDict[tuple[int, int, str, str | None], SealedFile] = OrderedDict()
        self._laid_out_bytes = 0
        self._held: dict[bytes, list[str]] = {}  # formats that hold steps of a layout, by its digest

    def look_up(self, path: bytes) -> tuple[int, int, int, bytes, int]:
        """Kind, size, time, target of a link, and epoch of what has this name."""
        number, ending, inside = self._parsed(path)
        if number is None:
            newest = os.fsencode(self._top_name(self._newest(), ending))
            if inside:
                _refuse(errno.ENOENT)
            return LINK, 0, 0, newest, 0
        with self._step(number) as step:
            if ending is not None:
                size = self._sealed(step, ending, None).size_bytes
                return FILE, size, step.time_ns, b"", step.epoch
            if variable := _variable_of(inside):
                if variable in _npy_names(step):
                    size = self._sealed(step, _ONE_VARIABLE, variable).size_bytes
                    return FILE, size, step.time_ns, b"", step.epoch
            elif not inside:
                return FOLDER, 0, step.time_ns, b"", step.epoch
            if not any(name.startswith(f"{inside}/") for name in _npy_names(step)):
                _refuse(errno.ENOENT)
            return FOLDER, 0, step.time_ns, b"", step.epoch

    def list_folder(self, path: bytes) -> list[tuple[bytes, int]]:
        """Names and kinds below a folder."""
        if not path:
            return [(os.fsencode(name), kind) for name, kind in self._top()]
        number, ending, inside = self._parsed(path)
        if number is None or ending is not None:
            _refuse(errno.ENOTDIR)
        found: dict[str, int] = {}
        with self._step(number) as step:
            before = f"{inside}/" if inside else ""
            for name in _npy_names(step):
                if name.startswith(before):
                    first, _, rest = name[len(before) :].partition("/")
                    if rest:
                        found[first] = FOLDER
                    else:
                        found[f"{first}.{_ONE_VARIABLE}"] = FILE
        return [(os.fsencode(name), kind) for name, kind in found.items()]

    def open(self, path: bytes, version: int) -> Content:
        """The bytes of a file. It pins the step as long as it is used, where the step can be pinned."""
        number, ending, inside = self._parsed(path)
        if number is None:
            _refuse(errno.ENOENT)
        step = self._step(number)
        if step.epoch != version:
            _refuse(errno.ESTALE)
        variable = None if ending is not None else _variable_of(inside)
        return _content(step, self._sealed(step, ending or _ONE_VARIABLE, variable))

    def _parsed(self, path: bytes) -> tuple[int | None, str | None, str]:
        """Number (None: the newest), format of a whole step, and what is named below the step's folder."""
        top, _, inside = os.fsdecode(path).partition("/")
        match = self._name.fullmatch(top)
        if match is None or (match["format"] is None and not self._has_variables) or (match["format"] and inside):
            _refuse(errno.ENOENT)
        return None if match["step"] == _LATEST else int(match["step"]), match["format"], inside

    def _top_name(self, number: int | str, ending: str | None) -> str:
        return f"{self._stream.address.stream}@{number}" + ("" if ending is None else f".{ending}")

    def _top(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        endings: list[str | None] = []
        for step in self._stream.steps_at():
            endings = [*self._formats_of(step), *([None] if self._has_variables else [])]
            found += [(self._top_name(step.number, ending), FILE if ending else FOLDER) for ending in endings]
        return found + [(self._top_name(_LATEST, ending), LINK) for ending in endings]

    def _formats_of(self, step: StepMetadata) -> list[str]:
        """The formats that hold the step. Steps with the same variables are asked once."""
        key = _digest_of(step)
        with self._lock:
            held = self._held.get(key)
        if held is None:
            held = []
            try:
                with self._stream[step.number] as opened:
                    for ending in self._whole:
                        if self._holds(opened, ending):
                            held.append(ending)
            except (StepGoneError, NotFoundError):
                return []
            with self._lock:
                if len(self._held) >= _REMEMBERED_MAX:
                    self._held.clear()
                self._held[key] = held
        return held

    def _holds(self, step: Step, ending: str) -> bool:
        try:
            format_named(ending).lay_out(step, None)
        except (UnsupportedError, ValueError):
            return False
        return True

    def _newest(self) -> int:
        summaries = self._stream.steps()
        if not len(summaries):
            _refuse(errno.ENOENT)
        return summaries.numbers[-1]

    def _step(self, number: int) -> Step:
        try:
            return self._stream[number]
        except (NotFoundError, StepGoneError):
            _refuse(errno.ENOENT)

    def _sealed(self, step: Step, ending: str, variable: str | None) -> SealedFile:
        key = (step.number, step.epoch, ending, variable)
        with self._lock:
            if (found := self._laid_out.get(key)) is not None:
                self._laid_out.move_to_end(key)
                return found
        try:
            found = format_named(ending).lay_out(step, variable)
        except (UnsupportedError, NotFoundError, ValueError):
            _refuse(errno.ENOENT)
        size_bytes = _bytes_of(found)
        with self._lock:
            if size_bytes <= _REMEMBERED_BYTES_MAX and key not in self._laid_out:
                self._laid_out[key] = found
                self._laid_out_bytes += size_bytes
            while len(self._laid_out) > _REMEMBERED_MAX or self._laid_out_bytes > _REMEMBERED_BYTES_MAX:
                _, forgotten = self._laid_out.popitem(last=False)
                self._laid_out_bytes -= _bytes_of(forgotten)
        return found


def _digest_of(step: StepMetadata) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for name, variable in step.items():
        digest.update(repr((name, variable.kind.value, variable.shape, str(variable.dtype))).encode())
    return digest.digest()


def _bytes_of(sealed: SealedFile) -> int:
    """What it takes to remember it."""
    runs = len(sealed.header) + len(sealed.arrays)
    return sum(len(header.data) for header in sealed.header) + runs * _RUN_BYTES


def _content(step: Step, sealed: SealedFile) -> Content:
    from forebay._fuse import Content

    content = Content(sealed.size_bytes)
    for header in sealed.header:
        content.add_memory(header.offset, header.data)
    for run in sealed.arrays:
        variable = step[run.variable]
        if run.block is not None and step._native().file_parts(variable._index, run.block) is not None:
            # The step's own pages, mapped; they pin it.
            content.add_memory(run.offset, variable.block(run.block).reshape(-1).view("u1"))
        else:
            content.add_read(run.offset, run.size_bytes, _reader(step, run))
    return content


def _reader(step: Step, run: ArrayRun) -> Any:
    def read(start: int, stop: int) -> Any:
        try:
            return read_part(step, run, start, stop)
        except StepGoneError:
            _refuse(errno.ESTALE)
        except ForebayError as error:
            if isinstance(error, OSError):
                raise
            raise OSError(errno.EIO, str(error)) from error

    return read


def _npy_names(step: Step) -> list[str]:
    """The variables that can be files of their own, and the blocks of local arrays."""
    found: list[str] = []
    for name, variable in step.items():
        if variable.dtype is STRING_DTYPE or not all(part not in ("", ".", "..") for part in name.split("/")):
            continue
        if variable.kind is ShapeKind.LOCAL_ARRAY:
            found += [f"{name}/block_{number:06d}" for number in range(len(variable.blocks))]
        else:
            found.append(name)
    return found


def _variable_of(inside: str) -> str | None:
    return inside.removesuffix(f".{_ONE_VARIABLE}") if inside.endswith(f".{_ONE_VARIABLE}") else None


def _refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))
