# SPDX-License-Identifier: Apache-2.0
"""History files into a stream: one step for each record, each record once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import forebay
from forebay import Step, StepBeingWritten, WritableStream
from forebay.connectors.netcdf.history import Field, History
from forebay.datatypes import attribute_to_native
from forebay.errors import InvalidArgumentError, StepNotFoundError
from forebay.visible_text import visible

__all__ = ["Ingestion", "ingest"]

#: Of a variable in a step: its shape, type and dimensions.
Form = tuple[tuple[int, ...], np.dtype[Any], tuple[str, ...] | None]


class Ingestion:
    """Writes history files into a stream that is open for writing.

    Attributes
    ----------
    written : int
        How many steps it has written.
    passed : int
        How many records it passed over, as the stream had them.
    """

    def __init__(
        self,
        stream: WritableStream,
        *,
        variables: Sequence[str] | None = None,
        dimension: str = "",
        time: str | None = "",
        on_notice: Callable[[str], object] | None = None,
    ) -> None:
        self.written = 0
        self.passed = 0
        self._stream = stream
        self._variables = None if variables is None else list(variables)
        self._dimension = dimension
        self._time = time
        self._on_notice = on_notice
        self._told: set[str] = set()
        self._own_attributes: set[str] = set()
        self._form: dict[str, Form] = {}
        self._time_attributes: dict[str, Any] = {}
        self._times: set[Any] = set()  # of the steps that are kept, and of those written since
        self._newest: Any = None
        self._dropped_before: Any = None  # The oldest kept time, if older steps were dropped.
        self._begun = False

    def add(self, path: Path | str) -> int:
        """Writes a step for each record of a file that the stream does not have; returns how many.

        Raises
        ------
        NotFoundError, CorruptError
            The file is not there, not netCDF, not whole, or it changed meanwhile. Steps of records before stay.
        InvalidArgumentError
            It has no time dimension, its variables are not those of the stream, or its times lie between the stream's.
        """
        before = self.written
        with History(path, dimension=self._dimension, time=self._time) as history:
            fields = self._chosen(history)
            attributes = history.attributes(fields)
            for what, reason in history.left_out.items():
                self._tell(f"{path}: {what} is left out: {reason}")
            if not history.records:
                self._tell(f"{path}: it has no records along {history.record_dimension}")
            if not self._begun:
                self._resume(history)
                self._begun = True
            self._check_form(history, fields)
            for record in range(history.records):
                time = history.time(record) if history.time_name else None
                if time is not None and self._has(time, record, history):
                    self.passed += 1
                    continue
                self._set_attributes(attributes)
                with self._stream.step() as step:
                    _write(step, history, fields, record, time)
                    history.check_unchanged()
                self._note(time)
        return self.written - before

    def _chosen(self, history: History) -> list[Field]:
        if self._variables is None:
            return list(history.fields)
        known = {one.name: one for one in history.fields}
        if missing := [name for name in self._variables if name not in known]:
            reason = history.left_out.get(missing[0], f"it has {', '.join(list(known)[:10])}")
            raise InvalidArgumentError(f"there is no variable {missing[0]!r} to take: {reason}", str(history.path))
        names = {*self._variables, history.time_name}
        return [one for one in history.fields if one.name in names]

    def _resume(self, history: History) -> None:
        """Looks at the steps that the stream has from earlier calls."""
        try:
            newest = self._stream.latest
        except StepNotFoundError:
            return
        with newest:
            self._form = _form_of_step(newest)
            name = history.time_name
            if not name:
                return
            self._time_attributes = {
                key: newest.attributes[f"{name}/{key}"]
                for key in ("units", "calendar")
                if f"{name}/{key}" in newest.attributes
            }
            if name not in newest:
                raise InvalidArgumentError(
                    f"the stream's steps have no time {name!r}, so they are of other files: write to another stream",
                    str(history.path),
                )
        found = self._stream.steps_at()
        times = found.values(name)
        self._times = set(times.tolist())
        self._newest = max(self._times)
        if found.numbers[0] > 0:
            self._dropped_before = min(self._times)

    def _has(self, time: Any, record: int, history: History) -> bool:
        if self._newest is None or time > self._newest:
            return False
        if time.item() in self._times or (self._dropped_before is not None and time < self._dropped_before):
            return True
        raise InvalidArgumentError(
            f"the time of record {record} is {time}, that of the stream's newest step {self._newest}, and no step has "
            "it: give files in order of time, or another stream",
            str(history.path),
        )

    def _check_form(self, history: History, fields: Sequence[Field]) -> None:
        """The steps of a stream have one form, or readers could not see them as one array."""
        where = str(history.path)
        form: dict[str, Form] = {one.name: (one.shape, one.dtype, one.dims) for one in fields}
        if history.added_time:
            time = history.time(0).dtype if history.records else np.dtype(np.float64)
            form["time"] = ((), time, ())
        if not history.records:
            return
        if self._form and form != self._form:
            name = next(name for name in {**form, **self._form} if form.get(name) != self._form.get(name))
            here, there = _shown(form.get(name)), _shown(self._form.get(name))
            raise InvalidArgumentError(
                f"variable {name!r} is {here} in this file, and {there} in the stream: write files of another form to "
                "another stream, or choose the variables that they share",
                where,
            )
        self._form = form
        if history.time_name and self._newest is not None:
            changed = _first_other(history.time_attributes, self._time_attributes)
            if changed:
                raise InvalidArgumentError(
                    f"{changed} of {history.time_name!r} is {history.time_attributes.get(changed)!r} in this file, and "
                    f"{self._time_attributes.get(changed)!r} in the stream: convert the file, or write to another "
                    "stream",
                    where,
                )
        self._time_attributes = history.time_attributes

    def _set_attributes(self, wanted: Mapping[str, Any]) -> None:
        """Those of this file, and no more those of the file before."""
        held = self._stream.attributes
        for name in self._own_attributes - wanted.keys():
            del held[name]
        for name, value in wanted.items():
            if name not in held or attribute_to_native(name, held[name]) != attribute_to_native(name, value):
                held[name] = value
        self._own_attributes = set(wanted)

    def _note(self, time: Any) -> None:
        self.written += 1
        if time is not None:
            self._newest = time.item()
            self._times.add(time.item())

    def _tell(self, text: str) -> None:
        if text in self._told:
            return
        self._told.add(text)
        if self._on_notice is not None:
            self._on_notice(text)
        else:
            warnings.warn(visible(text), stacklevel=4)


def ingest(
    files: Iterable[Path | str],
    address: str,
    *,
    variables: Sequence[str] | None = None,
    dimension: str = "",
    time: str | None = "",
    on_notice: Callable[[str], object] | None = None,
    **options: Any,
) -> int:
    """Writes a stream with a step for each record of netCDF history files; returns how many it wrote.

    >>> ingest(sorted(Path("run").glob("wrfout_d01_*")), "run1/history")

    Called again, it continues: records whose times the stream has are passed over. Variables without the dimension of
    the records are in every step. Elements are written as they are stored; attributes say how they are packed.

    Parameters
    ----------
    files : iterable of path
        In order of time; files that are finished. Taken one by one, so they may be those that
        :func:`forebay.follow_files` gives.
    address : str
        ``"RESERVATION/STREAM"``; made if need be.
    variables : sequence of str, optional
        Which, with their groups; the time always comes along. None: all.
    dimension : str
        The dimension of the records; not given: the unlimited one, else the one with a time coordinate.
    time : str, optional
        The variable with the time of each record; not given: the coordinate of that dimension, else ``time``, else
        WRF's ``Times``, else the only one whose units are "... since ...". None: steps are counted, and nothing is
        passed over.
    on_notice : callable, optional
        Called with a text about what a stream cannot hold; otherwise it is a warning.
    **options
        Of :func:`forebay.open`, for example ``retention``.

    Raises
    ------
    NotFoundError, CorruptError
        A file is not there, not netCDF, not whole, or it changed meanwhile. The steps before it stay.
    InvalidArgumentError
        A file has no time dimension; its variables differ in form from the stream's; or its times are out of order.
    """
    with forebay.open(address, "a", **({"rank": 0, "ranks": 1} | options)) as stream:
        ingestion = Ingestion(stream, variables=variables, dimension=dimension, time=time, on_notice=on_notice)
        for path in files:
            ingestion.add(path)
    return ingestion.written


def _write(step: StepBeingWritten, history: History, fields: Sequence[Field], record: int, time: Any) -> None:
    for one in fields:
        value = history.read(one, record)
        if isinstance(value, str) or not one.shape:
            step[one.name] = value
        else:
            step.write(one.name, value, dims=one.dims)
    if history.added_time:
        step["time"] = time


def _form_of_step(step: Step) -> dict[str, Form]:
    return {
        name: (variable.shape, variable.dtype, variable.dims if variable.shape else ())
        for name, variable in step.items()
    }


def _shown(form: Form | None) -> str:
    if form is None:
        return "missing"
    shape, dtype, dims = form
    kind = "text" if dtype.kind == "T" else str(dtype)
    if not shape:
        return f"one {kind}"
    extents = [f"{name}={extent}" for name, extent in zip(dims, shape, strict=True)] if dims else map(str, shape)
    return f"{kind} ({', '.join(extents)})"


def _first_other(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return next((key for key in ("units", "calendar") if one.get(key) != other.get(key)), "")
