# SPDX-License-Identifier: Apache-2.0
"""GRIB messages become steps: one for each valid time, once, in order; what is missing is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import forebay
from forebay import Step, StepBeingWritten, WritableStream
from forebay.connectors.grib.layout import Layout, field_text, level_kind_of
from forebay.connectors.grib.messages import FieldFiles, GribFiles, GridPoints, Message
from forebay.errors import InvalidArgumentError, StepGoneError, StepNotFoundError

__all__ = ["Ingested", "ingest", "write_step"]

Files = Iterable[Path | str | Sequence[Path | str]]

_EPOCH = {"units": "seconds since 1970-01-01", "calendar": "proleptic_gregorian"}
_MISSING_MAX = 1000
_MISSING = "GRIB_missing"
_ATTRIBUTES = {
    "time": {**_EPOCH, "standard_name": "time"},
    "forecast_reference_time": {**_EPOCH, "standard_name": "forecast_reference_time"},
    "forecast_period": {"units": "hours", "standard_name": "forecast_period"},
    "latitude": {"units": "degrees_north", "standard_name": "latitude"},
    "longitude": {"units": "degrees_east", "standard_name": "longitude"},
    "number": {"units": "1", "standard_name": "realization"},
}
_LEVELS = {
    "isobaricInhPa": {"units": "hPa", "positive": "down", "standard_name": "air_pressure"},
    "isobaricInPa": {"units": "Pa", "positive": "down", "standard_name": "air_pressure"},
    "heightAboveGround": {"units": "m", "positive": "up", "standard_name": "height"},
    "heightAboveSea": {"units": "m", "positive": "up", "standard_name": "altitude"},
    "depthBelowLand": {"units": "m", "positive": "down", "standard_name": "depth"},
    "depthBelowLandLayer": {"units": "m", "positive": "down", "standard_name": "depth"},
    "hybrid": {
        "units": "1",
        "positive": "down",
        "standard_name": "atmosphere_hybrid_sigma_pressure_coordinate",
    },
}
# Of a parameter, in variables' attributes GRIB_NAME.
_PARAMETER_KEYS = (
    "paramId",
    "shortName",
    "typeOfLevel",
    "stepType",
    "dataType",
    "bitsPerValue",
    "startStep",
    "discipline",
    "parameterCategory",
    "parameterNumber",
    "table2Version",
    "indicatorOfParameter",
)
_SOMETIMES = ("standard_name", "level", *(f"GRIB_{key}" for key in _PARAMETER_KEYS))


@dataclass
class Ingested:
    """What :func:`ingest` did.

    Attributes
    ----------
    written : list of int
        Numbers of the steps that it wrote.
    passed_over : list of int
        Numbers of the steps that the stream had before.
    missing : dict of int to list of str
        For the written steps that lack messages: which.
    """

    written: list[int] = field(default_factory=list)
    passed_over: list[int] = field(default_factory=list)
    missing: dict[int, list[str]] = field(default_factory=dict)


def ingest(
    files: Files,
    address: str | WritableStream,
    *,
    where: Mapping[str, Sequence[Any]] | None = None,
    interval: float | None = 3600.0,
    complete: bool = False,
    coordinates: bool = True,
    dtype: DTypeLike = np.float32,
    on_step: Callable[[Ingested], None] | None = None,
    source: FieldFiles | None = None,
    **options: Any,
) -> Ingested:
    """Writes the messages of GRIB files into a stream, with a step for each valid time.

    Steps that the stream has are passed over. So the same files may be given again, after a kill for example.

    Parameters
    ----------
    files : iterable of path, or of sequences of paths
        Taken in turn. The files of a sequence are taken together: a step's messages may lie in several of them. What
        is taken at once has whole steps. A generator is welcome: ``file.path for file in forebay.follow_files(…)``.
    address : str or WritableStream
        An open stream stays open.
    where : mapping, optional
        Keys of ecCodes with the values that are wanted: ``{"typeOfLevel": ["isobaricInhPa"], "number": [0, 1]}``.
    interval : float, optional
        A step's number is the forecast's time divided by this many seconds, so the stream has one cycle. None: steps
        are counted from 0 in order of their valid times, also those of several cycles or analyses.
    complete : bool
        Refuse a step with missing messages. False: they are told, and a field without one is NaN.
    coordinates : bool
        Write latitude and longitude, also of grids that need them for each point.
    dtype : dtype
        Of the fields, ``float32`` (as cfgrib's) or ``float64``.
    on_step : callable, optional
        Called after each written step.
    source : FieldFiles, optional
        Reads the files. None: GRIB.
    **options
        Of :func:`forebay.open`, for example ``retention``.

    Raises
    ------
    InvalidArgumentError
        Messages do not make up one step, or are of a step that was written without them, or come too late; or, with
        ``complete``, some are missing.
    NotFoundError, CorruptError
        A file is not there, or not whole: of what is taken with it nothing is written. The steps before stay.
    """
    done = Ingested()
    source = GribFiles() if source is None else source
    given = {"rank": 0, "ranks": 1} | options
    with nullcontext(address) if isinstance(address, WritableStream) else forebay.open(address, "a", **given) as stream:
        for item in files:
            together = [item] if isinstance(item, str | Path) else item
            messages = [message for path in together for message in source.messages(path, where)]
            if not messages:
                raise InvalidArgumentError("no message matches the choice by where (--where)", str(together[0]))
            by_time: dict[int, list[Message]] = {}
            for message in messages:
                by_time.setdefault(message.valid_time, []).append(message)
            for time in sorted(by_time):
                of_step = by_time[time]
                number = _number(stream, of_step, interval)
                if (known := _is_there(stream, number, of_step)) is not None:
                    done.passed_over.append(known)
                    continue
                before = _layout_before(stream)
                with stream.step(number) as step:
                    missing = write_step(
                        step, of_step, before, coordinates=coordinates, dtype=dtype, complete=complete, source=source
                    )
                done.written.append(step.number)
                if missing:
                    done.missing[step.number] = missing
                if on_step is not None:
                    on_step(done)
    return done


def write_step(
    step: StepBeingWritten,
    messages: Sequence[Message],
    before: Layout | None = None,
    *,
    complete: bool = False,
    coordinates: bool = True,
    dtype: DTypeLike = np.float32,
    source: FieldFiles | None = None,
) -> list[str]:
    """Writes messages of one valid time into an open step; returns those that are missing, in words.

    Parameters
    ----------
    messages : sequence of Message
        From :func:`read_messages`.
    before : Layout, optional
        Of the step before. What that one has is expected here, too.

    Raises
    ------
    InvalidArgumentError
        The messages are of several times or grids, or two are for one field; or some are missing, with ``complete``.
    """
    source = GribFiles() if source is None else source
    if not messages:
        raise InvalidArgumentError("there is no message for a step")
    reference = messages[0].reference, messages[0].period
    if other := next((one for one in messages if (one.reference, one.period) != reference), None):
        raise InvalidArgumentError(
            "the messages of a step are of several reference or forecast times: give the files of one cycle",
            f"{messages[0]} and {other}",
        )
    before = before or Layout()
    layout, fields = before.with_messages(messages)
    missing = layout.missing(before, fields)
    if missing and complete:
        raise InvalidArgumentError(f"{len(missing)} messages are missing: {_cut(missing)}", f"step {step.number}")
    _write_times(step, messages[0])
    points, keys = source.grid(messages[0])
    for key, value in keys.items():
        step.attributes[f"GRIB_{key}"] = value
    _write_head(step, messages[0], layout, missing)
    _write_coordinates(step, layout, points, everywhere=coordinates)
    for name, of_variable in fields.items():
        _write_variable(step, name, layout, of_variable, points, source, np.dtype(dtype), coordinates)
    return missing


def _write_times(step: StepBeingWritten, message: Message) -> None:
    step["time"] = np.int64(message.valid_time)
    step["forecast_reference_time"] = np.int64(message.reference)
    step["forecast_period"] = message.period / 3600
    for name in ("time", "forecast_reference_time", "forecast_period"):
        _describe(step, name, _ATTRIBUTES[name])


def _write_head(step: StepBeingWritten, message: Message, layout: Layout, missing: list[str]) -> None:
    attributes = step.attributes
    attributes["GRIB_md5GridSection"] = layout.grid
    for key in ("centre", "subCentre", "edition", "totalNumber"):
        if message.keys.get(key):
            attributes[f"GRIB_{key}"] = message.keys[key]
    members = {member for places in layout.variables.values() for member in places.members}
    if members != {0} and len(members) == 1:
        attributes["GRIB_number"] = members.pop()
    else:
        del attributes["GRIB_number"]  # that an earlier step may have, also of another process
    if missing:
        rest = [f"and {len(missing) - _MISSING_MAX} more"] if len(missing) > _MISSING_MAX else []
        attributes[_MISSING] = [*missing[:_MISSING_MAX], *rest]
    else:
        del attributes[_MISSING]


def _write_coordinates(step: StepBeingWritten, layout: Layout, points: GridPoints, *, everywhere: bool) -> None:
    for full, places in layout.dims.items():
        group, _, own = full.rpartition("/")
        values = np.array(places, np.float64 if group else np.int64)
        step.write(full, values, dims=(own,))
        _describe(step, full, _LEVELS.get(group, {"units": "1"}) if group else _ATTRIBUTES["number"])
    if points.latitude is None or points.longitude is None or (points.by_points and not everywhere):
        return
    for name, values, dim in (("latitude", points.latitude, 0), ("longitude", points.longitude, -1)):
        step.write(name, values, dims=points.dims if points.by_points else (points.dims[dim],))
        _describe(step, name, _ATTRIBUTES[name])


def _write_variable(
    step: StepBeingWritten,
    name: str,
    layout: Layout,
    fields: dict[tuple[int, float], Message],
    points: GridPoints,
    source: FieldFiles,
    dtype: np.dtype[Any],
    coordinates: bool,
) -> None:
    places = layout.variables[name]
    before = layout.dimensions(name)
    extents = tuple(len(layout.dims[full]) for full in before)
    dims = (*(full.rpartition("/")[2] for full in before), *points.dims)
    # Decoded into the step's own storage.
    block = step.allocate(name, (*extents, *points.shape), dtype, dims=dims)
    every = block.reshape(len(places.members), len(places.levels), *points.shape)
    for along, member in enumerate(places.members):
        for across, level in enumerate(places.levels):
            message = fields.get((member, level))
            if message is None:
                every[along, across] = np.nan
            else:
                source.read(message, points, every[along, across])
    keys = next(iter(fields.values())).keys
    described: dict[str, Any] = {"units": keys.get("units", "1"), "long_name": keys.get("name", name)}
    if "cfName" in keys:
        described["standard_name"] = keys["cfName"]
    if len(places.levels) == 1 and level_kind_of(name) not in ("surface", "meanSea", "unknown"):
        described["level"] = places.levels[0]
    described["coordinates"] = "forecast_reference_time forecast_period"
    if coordinates and points.by_points and points.latitude is not None:
        described["coordinates"] += " latitude longitude"
    described |= {f"GRIB_{key}": keys[key] for key in _PARAMETER_KEYS if key in keys}
    described.setdefault("GRIB_typeOfLevel", level_kind_of(name))
    _describe(step, name, described)


def _describe(step: StepBeingWritten, name: str, attributes: Mapping[str, Any]) -> None:
    """Sets a variable's attributes, and takes away what an earlier step had beside them."""
    for key, value in attributes.items():
        step.attributes[f"{name}/{key}"] = value
    for key in _SOMETIMES:
        if key not in attributes:
            del step.attributes[f"{name}/{key}"]


def _number(stream: WritableStream, messages: list[Message], interval: float | None) -> int | None:
    """The step's number; None: the next one."""
    if interval is None:
        return None
    first = messages[0]
    number, rest = divmod(first.period, interval)
    if rest:
        raise InvalidArgumentError(
            f"the forecast's time of {first.period} s is no multiple of the interval of {interval:g} s: give a smaller "
            "interval (--interval 15m), or none, to count steps",
            str(first),
        )
    known = _newest(stream)
    if known is not None and known[0] != first.reference:
        raise InvalidArgumentError(
            "it is of another cycle than the stream: give each cycle a stream, or no interval (--interval none), to "
            "count steps",
            str(first),
        )
    return int(number)


def _newest(stream: WritableStream) -> tuple[int, int] | None:
    """Reference and valid time of the newest step."""
    try:
        with stream.latest as newest:
            return int(newest["forecast_reference_time"]), int(newest["time"])
    except StepNotFoundError:
        return None
    except KeyError:
        raise InvalidArgumentError(
            "its steps were not written from GRIB files: take another stream", f"stream {stream.address}"
        ) from None


def _is_there(stream: WritableStream, number: int | None, messages: list[Message]) -> int | None:
    """The number of the step that has all these messages; None: it is to be written. An error if it has a part."""
    late = InvalidArgumentError(
        f"its time comes before that of step {stream.next_step - 1}, the newest: give files in order of time",
        str(messages[0]),
    )
    if number is None:
        newest = _newest(stream)
        if newest is None or messages[0].valid_time > newest[1]:
            return None
        found = stream.steps_at()
        times = found.values("time").tolist()
        if messages[0].valid_time not in times:
            if messages[0].valid_time < times[0] and _drops(stream):
                return int(found.numbers[0])
            raise late
        number = int(found.numbers[times.index(messages[0].valid_time)])
    if number >= stream.next_step:
        return None
    try:
        with stream[number] as step:
            lacking = _lacking(step, messages)
    except (StepGoneError, StepNotFoundError):
        if number < (stream.info.oldest or 0) and _drops(stream):
            return number
        raise late from None
    if lacking:
        raise InvalidArgumentError(
            f"step {number} was written without {_cut(lacking)}: give all files of a step together", str(messages[0])
        )
    return number


def _drops(stream: WritableStream) -> bool:
    """Whether steps before the oldest may have been there: nobody knows of those that retention dropped."""
    retention = stream.info.retention
    return retention.last is not None or bool(retention.consumers)


def _lacking(step: Step, messages: list[Message]) -> list[str]:
    """Those of the messages that were not there when the step was written."""
    layout = Layout.of_step(step)
    told = {str(text) for text in np.atleast_1d(step.attributes.get(_MISSING, ()))}
    lacking = []
    for message in messages:
        places = layout.variables.get(message.name)
        if places is None:
            lacking.append(message.name)
        elif message.member not in places.members or message.level not in places.levels:
            lacking.append(field_text(message.name, message.level, message.member))
        else:
            text = field_text(message.name, message.level, message.member if len(places.members) > 1 else None)
            lacking += [text] if text in told else []
    return list(dict.fromkeys(lacking))


def _layout_before(stream: WritableStream) -> Layout:
    try:
        with stream.latest as newest:
            return Layout.of_step(newest)
    except StepNotFoundError:
        return Layout()


def _cut(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return "; ".join(names[:3]) + rest
