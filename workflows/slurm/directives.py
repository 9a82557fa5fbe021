# SPDX-License-Identifier: Apache-2.0
"""The `#DW` and `#FB` lines of a job script. Grammar: docs/operations/slurm.md.

Slurm reads some of these lines itself, and less strictly: it takes an unknown unit for bytes, and ignores what it does
not know. What it would misread is refused here, when the job is submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from forebay.errors import InvalidArgumentError

__all__ = ["Directives", "FileStage", "StreamStage", "parse_directives", "parse_slurm_size"]

_UNITS: dict[str, int] = {"": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGTP", start=1)
    for unit, base in ((letter, 1024), (f"{letter}iB", 1024), (f"{letter}B", 1000))
}
_SIZE = re.compile(r"(\d{1,18})([A-Za-z]*)")
_WORD = re.compile(r"[^\s=]+=\S*|\S+")
_TOKENS = ("$DW_JOB_STRIPED", "$DW_JOB_PRIVATE")
_LINE_CHARACTERS_MAX = 4096


@dataclass(frozen=True, slots=True)
class FileStage:
    """A `#DW stage_in` or `stage_out`: what is moved between the job's scratch and a file system."""

    inside: str  #: below the job's scratch; "" is all of it
    outside: str  #: absolute path
    inward: bool
    is_directory: bool


@dataclass(frozen=True, slots=True)
class StreamStage:
    """A `#FB stage_out`: chosen steps of a stream that outlive the job."""

    stream: str
    destination: str
    every: int | None
    steps: str
    format: str


@dataclass(frozen=True, slots=True)
class Directives:
    """What a job asks for."""

    capacity_bytes: int  #: of all `jobdw` lines together
    access_mode: str
    files: tuple[FileStage, ...]
    streams: tuple[StreamStage, ...]

    def as_json(self) -> dict[str, Any]:
        """For the manager's books."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Directives:
        """Out of the manager's books."""
        return cls(
            capacity_bytes=document["capacity_bytes"],
            access_mode=document["access_mode"],
            files=tuple(FileStage(**stage) for stage in document["files"]),
            streams=tuple(StreamStage(**stage) for stage in document["streams"]),
        )


def parse_slurm_size(text: str) -> int:
    """A size as Slurm and `capacity=` write it (`10GiB`, `112MiB`, `0`): a whole number, and K to P or KiB to PiB for
    powers of 1024, or KB to PB for powers of 1000.

    Raises
    ------
    InvalidArgumentError
        It is none. Slurm would take `1.5GiB` for one byte.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise InvalidArgumentError(f"capacity={text} is no size; write a whole number and a unit, for example 1536MiB")
    unit_bytes: int = _UNITS[match[2]]
    return int(match[1]) * unit_bytes


def parse_directives(script: bytes) -> Directives:
    """What the script asks for. As for Slurm, directives end at the first line that is neither empty nor a comment.

    Raises
    ------
    InvalidArgumentError
        A line that cannot be carried out, with its number.
    """
    capacity_bytes = 0
    access_modes: set[str] = set()
    files: list[FileStage] = []
    streams: list[StreamStage] = []
    for number, line in _directive_lines(script):
        try:
            words = _words(line)
            kind, verb, options = words[0], words[1] if len(words) > 1 else "", _options(words[2:])
            if kind == "#FB":
                streams.append(_stream_stage(verb, options))
            elif verb == "jobdw":
                size, access_mode = _job_scratch(options)
                capacity_bytes += size
                access_modes.add(access_mode)
            elif verb in ("stage_in", "stage_out"):
                files.append(_file_stage(verb, options))
            else:
                raise InvalidArgumentError(_refusal(verb))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"line {number} of the script: {error.what}", line[:200]) from None
    if (files or streams) and not capacity_bytes:
        raise InvalidArgumentError("the script stages but has no `#DW jobdw capacity=…` line")
    if len(access_modes) > 1:
        raise InvalidArgumentError("the `#DW jobdw` lines ask for different access modes; give them the same one")
    return Directives(capacity_bytes, next(iter(access_modes), "striped"), tuple(files), tuple(streams))


def _directive_lines(script: bytes) -> Iterator[tuple[int, str]]:
    """The lines with their numbers; a backslash at the end continues one. Slurm ends the script with a NUL."""
    lines = script.rstrip(b"\0").decode("utf-8", errors="replace").split("\n")
    whole, begun_at = "", 0
    for number, text in enumerate(lines, start=1):
        line = text.rstrip("\r")
        if not whole and line and not line.startswith("#"):
            return
        begun_at = begun_at if whole else number
        if line.endswith("\\") and (whole or line.startswith(("#DW", "#FB"))):
            whole += line[:-1] + " "
            continue
        whole += line
        if whole.startswith("#BB"):
            raise InvalidArgumentError(f"line {begun_at} of the script: #BB lines are not there yet", whole[:200])
        if whole.startswith(("#DW ", "#DW\t", "#FB ", "#FB\t")):
            if len(whole) > _LINE_CHARACTERS_MAX:
                raise InvalidArgumentError(
                    f"line {begun_at} of the script is longer than {_LINE_CHARACTERS_MAX} characters"
                )
            yield begun_at, whole
        whole = ""


def _words(line: str) -> list[str]:
    return _WORD.findall(line)


def _options(words: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise InvalidArgumentError(f'"{word}" is no key=value')
        if key in options:
            raise InvalidArgumentError(f"{key}= stands there twice")
        options[key] = value
    return options


def _take(options: dict[str, str], allowed: tuple[str, ...], needed: tuple[str, ...]) -> None:
    unknown = sorted(options.keys() - set(allowed))
    if unknown:
        raise InvalidArgumentError(f"{unknown[0]}= is not known here; known are {', '.join(allowed)}")
    for key in needed:
        if key not in options:
            raise InvalidArgumentError(f"{key}= is missing")


def _job_scratch(options: dict[str, str]) -> tuple[int, str]:
    _take(options, ("capacity", "access_mode", "type", "pool"), ("capacity",))
    if options.get("type", "scratch") != "scratch":
        raise InvalidArgumentError(f"type={options['type']} is not there yet; write type=scratch")
    access_mode = options.get("access_mode", "striped")
    if access_mode != "striped":
        raise InvalidArgumentError(f"access_mode={access_mode} is not there yet; write access_mode=striped")
    capacity_bytes = parse_slurm_size(options["capacity"])
    if not capacity_bytes:
        raise InvalidArgumentError("capacity=0 holds nothing; leave the line out")
    return capacity_bytes, access_mode


def _file_stage(verb: str, options: dict[str, str]) -> FileStage:
    _take(options, ("type", "source", "destination"), ("source", "destination"))
    kind = options.get("type", "file")
    if kind not in ("file", "directory"):
        raise InvalidArgumentError(f"type={kind} is not there yet; write type=file or type=directory")
    inward = verb == "stage_in"
    inside, outside = (
        (options["destination"], options["source"]) if inward else (options["source"], options["destination"])
    )
    return FileStage(_inside(inside), _outside(outside), inward, kind == "directory")


def _stream_stage(verb: str, options: dict[str, str]) -> StreamStage:
    if verb != "stage_out":
        raise InvalidArgumentError(f'"#FB {verb}" is not known; known is "#FB stage_out"')
    _take(options, ("stream", "destination", "every", "steps", "format"), ("stream", "destination"))
    every = options.get("every")
    if every is not None and (not every.isdecimal() or int(every) < 1):
        raise InvalidArgumentError(f"every={every} is no whole number above 0")
    for key, value in options.items():
        if "%" in value:
            raise InvalidArgumentError(f"{key}={value}: `%` symbols are not known in #FB lines yet; write the path out")
    form = options.get("format", "bp5")
    if form not in ("bp5", "hdf5"):
        raise InvalidArgumentError(f"format={form} is not known; known are bp5 and hdf5")
    return StreamStage(
        options["stream"],
        _outside(options["destination"]),
        None if every is None else int(every),
        options.get("steps", ""),
        form,
    )


def _inside(text: str) -> str:
    for token in _TOKENS:
        braced = "${" + token[1:] + "}"
        for form in (token, braced):
            if text == form or text.startswith(form + "/"):
                path = text[len(form) :].strip("/")
                if ".." in path.split("/"):
                    raise InvalidArgumentError(f'"{text}" leaves the scratch')
                return path
    raise InvalidArgumentError(f'"{text}" does not begin with $DW_JOB_STRIPED')


def _outside(text: str) -> str:
    if not text.startswith("/"):
        raise InvalidArgumentError(f'"{text}" is no absolute path')
    if "$DW_" in text or "${DW_" in text:
        raise InvalidArgumentError(f'"{text}" must lie outside of the scratch')
    return text.rstrip("/") or "/"


def _refusal(verb: str) -> str:
    later = {"persistentdw": "persistent reservations", "swap": "swap spaces", "cache": "caches"}
    if verb in later:
        return f'"#DW {verb}": {later[verb]} are not there yet'
    return f'"#DW {verb}" is not known; known are jobdw, stage_in and stage_out'
