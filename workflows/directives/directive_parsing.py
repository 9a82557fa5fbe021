# SPDX-License-Identifier: Apache-2.0
"""Reads the `#DW`, `#BB` and `#FB` lines of a job script. Grammar: docs/operations/slurm.md.

Slurm reads some of these lines itself, and less strictly: it takes an unknown unit for bytes, and ignores what it does
not know. What it would misread is refused here, when the job is submitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from forebay.errors import InvalidArgumentError
from forebay.files.complete_rule import CompleteRule
from forebay.files.name_choice import NameChoice
from forebay.names import NAME_PATTERN, is_valid_name
from forebay.step_selection import StepSelection
from forebay.workflows.directives.directive_lines import (
    DirectiveLine,
    almost_directives,
    directive_lines,
    ignored_lines,
    parse_slurm_size,
)
from forebay.workflows.directives.directives import (
    IGNORED,
    CreatePersistent,
    Directives,
    FileStage,
    MatchedStage,
    StreamStage,
)

__all__ = ["find_mistakes", "parse_directives", "parse_list", "parse_stream_stage"]

_STREAM = re.compile(rf"(?:{NAME_PATTERN}/)?{NAME_PATTERN}")
_TOKEN = re.compile(r"\$(?:(DW_[A-Za-z0-9_.-]+)|\{(DW_[A-Za-z0-9_.-]+)\})(?:/(.*))?")
_PERSISTENT = "DW_PERSISTENT_STRIPED_"
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([^}]*)\}?)")
#: What Slurm replaces, by the variables that have it.
_SYMBOLS = {
    "USER": "%u",
    "LOGNAME": "%u",
    "SLURM_JOB_ID": "%j",
    "SLURM_JOBID": "%j",
    "SLURM_JOB_NAME": "%x",
    "SLURM_SUBMIT_DIR": "%d",
    "PWD": "%d",
    "SLURM_ARRAY_JOB_ID": "%A",
    "SLURM_ARRAY_TASK_ID": "%a",
}
#: One that Slurm does not replace, where `%%` was taken out.
_WRONG_SYMBOL = re.compile(r"%(?![Aadjux]).?")
_NAME_BYTES_MAX = 255
_LIST_LINES_MAX = 1000
_IGNORED_LINES_MAX = 1000  # that are told; nobody reads more
_ALMOST = "a comment to Slurm; directives begin with #DW, #BB or #FB, in capitals and without a blank"

#: DataWarp's options that say which of its servers a job gets, and how fast it may wear their SSDs. They change nothing
#: in what a job sees, so they are checked and have no effect here.
_OF_SERVERS = {
    "optimization_strategy": "bandwidth|interference|wear",
    "max_mds": "yes|no",
    "write_window_length": "[0-9]+",
    "write_window_multiplier": "[0-9]+",
}
_OF_CACHE = ("pfs", "modified_threshold", "read_ahead", "sync_on_close", "sync_to_pfs")
_CACHE = (
    "type=cache, the transparent cache before a file system, which Forebay does not have yet; write type=scratch, and "
    "stage_in what the job reads"
)


@dataclass(slots=True)
class _Draft:
    """Directives as far as they were read; each line costs the same."""

    capacity_bytes: int = 0
    pool: str = ""
    private: bool = False
    persistents: dict[str, None] = field(default_factory=dict)
    files: list[FileStage] = field(default_factory=list)
    streams: list[StreamStage] = field(default_factory=list)
    matched: list[MatchedStage] = field(default_factory=list)
    creates: list[CreatePersistent] = field(default_factory=list)
    destroys: list[str] = field(default_factory=list)

    def finished(self, ignored: tuple[int, ...]) -> Directives:
        """All that was read."""
        return Directives(
            self.capacity_bytes,
            self.pool,
            self.private,
            tuple(self.persistents),
            tuple(self.files),
            tuple(self.streams),
            tuple(self.matched),
            tuple(self.creates),
            tuple(self.destroys),
            ignored,
        )


def parse_directives(script: bytes, *, as_submitted: bool = False) -> Directives:
    """What the script asks for. As for Slurm, directives end at the first line that is neither empty nor a comment.

    Parameters
    ----------
    as_submitted : bool
        Nothing has replaced symbols yet: those that nobody will replace are mistakes. Later, a path may have a percent
        sign.

    Raises
    ------
    InvalidArgumentError
        A line that cannot be carried out, with its number.
    """
    draft = _Draft()
    for line in directive_lines(script):
        _add_line(draft, line, as_submitted=as_submitted)
    for mistake in _mistakes_of_the_whole(draft):
        raise mistake
    return draft.finished(tuple(line.number for line in islice(ignored_lines(script), _IGNORED_LINES_MAX)))


def find_mistakes(script: bytes) -> list[InvalidArgumentError]:
    """All that `parse_directives` would refuse, one after another, and the lines that Slurm would ignore or take for
    comments.
    """
    mistakes = []
    draft = _Draft()
    try:
        for line in directive_lines(script):
            try:
                _add_line(draft, line, as_submitted=True)
            except InvalidArgumentError as error:
                mistakes.append(error)
    except InvalidArgumentError as error:
        mistakes.append(error)
    mistakes += [line.error(_ALMOST) for line in islice(almost_directives(script), _IGNORED_LINES_MAX)]
    mistakes += [line.error(IGNORED) for line in islice(ignored_lines(script), _IGNORED_LINES_MAX)]
    # Lines that are missing in the whole would make it look wrong, too.
    return mistakes or list(_mistakes_of_the_whole(draft))


def parse_stream_stage(text: str) -> StreamStage:
    """A `#FB stage_out` without these two words: `stream=flow every=10 destination=/pfs/steps`.

    Raises
    ------
    InvalidArgumentError
        It is none.
    """
    draft = _Draft()
    _stream_stage(draft, DirectiveLine(1, f"#FB stage_out {text}"))
    return draft.streams[0]


def parse_list(stage: FileStage, text: bytes) -> list[FileStage]:
    """The stages that a file of `type=list` names: on each line an outer path and one in the scratch.

    Raises
    ------
    InvalidArgumentError
        A line is none, with its number.
    """
    stages = []
    for number, line in enumerate(text.decode("utf-8", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        try:
            if len(words) != 2:
                raise InvalidArgumentError("it must have two paths")
            inside, outside = (words[1], words[0]) if stage.inward else (words[0], words[1])
            persistent, path = _inside(inside)
            listed = FileStage(path, _outside(outside), stage.inward, "file", persistent)
            stages.append(_with_folder_kept(listed, words[1]))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"line {number} of the list: {error.what}", stage.outside) from None
        if len(stages) > _LIST_LINES_MAX:
            raise InvalidArgumentError(
                f"the list has more than {_LIST_LINES_MAX} files; stage their directory", stage.outside
            )
    for mistake in _collisions_of_files(stages):
        raise InvalidArgumentError(mistake.what, stage.outside)
    return stages


def _add_line(so_far: _Draft, line: DirectiveLine, *, as_submitted: bool) -> None:
    try:
        if as_submitted:
            _check_symbols(line)
        _LINES.get((line.kind, line.verb), _unknown)(so_far, line)
    except InvalidArgumentError as error:
        raise line.error(error.what) from None


def _check_symbols(line: DirectiveLine) -> None:
    """Slurm leaves unknown symbols out: `/pfs/100%` would be another folder, and one of ours fails after the job."""
    if "\\\\" in line.text:  # then none are replaced
        return
    for word in line.words[2:]:
        key, _, path = word.partition("=")
        if key in ("source", "destination") and (wrong := _WRONG_SYMBOL.search(path.replace("%%", ""))) is not None:
            raise InvalidArgumentError(
                f"{wrong[0]} in {path[:80]} is no symbol: write %% for a percent sign; known are %A %a %d %j %u %x"
            )


def _jobdw(so_far: _Draft, line: DirectiveLine) -> None:
    options = line.options(
        ("capacity", "access_mode", "type", "pool", *_OF_SERVERS, *_OF_CACHE),
        needed=() if line.has("type", "cache") else ("capacity",),
    )
    _must_be_scratch(options)
    _check_options_of_servers(options)
    access_modes = options.get("access_mode", "striped").replace(",", " ").split()
    for access_mode in access_modes:
        # Cray's manual writes the widths in brackets; here a private scratch takes what there is.
        if access_mode == "ldbalance":
            raise InvalidArgumentError(f"access_mode=ldbalance belongs to {_CACHE}")
        if access_mode.partition("(")[0] not in ("striped", "private"):
            raise InvalidArgumentError(f"access_mode={access_mode} is not known; known are striped and private")
    private = any(access_mode.startswith("private") for access_mode in access_modes)
    size = parse_slurm_size(options["capacity"])
    if not size:
        raise InvalidArgumentError("capacity=0 holds nothing; leave the line out")
    so_far.capacity_bytes += size
    pool = options.get("pool", so_far.pool)
    if so_far.pool not in ("", pool):
        raise InvalidArgumentError(
            f"pool={pool[:80]}, and another line says pool={so_far.pool[:80]}: all that a job has lies in one pool"
        )
    so_far.pool = pool
    so_far.private = so_far.private or private


def _persistentdw(so_far: _Draft, line: DirectiveLine) -> None:
    name = _name(line.options(("name",), needed=("name",)))
    so_far.persistents[name] = None


def _stage(so_far: _Draft, line: DirectiveLine) -> None:
    options = line.options(("type", "source", "destination"), needed=("source",))
    kind = options.get("type", "file")
    if kind not in ("file", "directory", "list"):
        raise InvalidArgumentError(f"type={kind} is not known; known are file, directory and list")
    inward = line.verb == "stage_in"
    if kind == "list":
        # Each line of the list has both sides of a file, so a destination= says nothing more.
        stage = FileStage("", _outside(options["source"]), inward, kind)
    else:
        if "destination" not in options:
            raise InvalidArgumentError("destination= is missing")
        inside, outside = options["destination"], options["source"]
        if not inward:
            inside, outside = outside, inside
        persistent, path = _inside(inside)
        if kind == "file" and not inward and not path:
            raise InvalidArgumentError(f"type=file, and {inside[:80]} is a folder; write type=directory")
        stage = FileStage(path, _outside(outside), inward, kind, persistent)
        if kind == "file":
            stage = _with_folder_kept(stage, options["destination"])
    so_far.files.append(stage)


def _with_folder_kept(stage: FileStage, destination: str) -> FileStage:
    """A slash at the end of a destination says that it is a folder, which is made for the file: as for cp and rsync."""
    if not destination.endswith("/"):
        return stage
    if stage.inward:
        return replace(stage, inside=f"{stage.inside}/") if stage.inside else stage
    return replace(stage, outside=f"{stage.outside.rstrip('/')}/")


def _kept_stage(so_far: _Draft, line: DirectiveLine) -> None:
    (_matched_stage if line.names("source") else _stream_stage)(so_far, line)


def _matched_stage(so_far: _Draft, line: DirectiveLine) -> None:
    options = line.options(
        ("source", "destination", "match", "every", "multiple_of", "exclude", "complete"),
        needed=("source", "destination", "match"),
    )
    every, multiple_of = _count(options, "every"), _count(options, "multiple_of")
    exclude = options.get("exclude", "")
    NameChoice.parse(options["match"], (exclude,) if exclude else (), "", every, multiple_of)
    complete = str(CompleteRule.parse(options.get("complete", "rename")))
    persistent, path = _inside(options["source"])
    so_far.matched.append(
        MatchedStage(
            path, _outside(options["destination"]), options["match"], every, multiple_of, exclude, complete, persistent
        )
    )


def _count(options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and (re.fullmatch("[0-9]{1,9}", text) is None or int(text) < 1):
        raise InvalidArgumentError(f"{name}={text[:80]} is no whole number above 0")
    return None if text is None else int(text)


def _stream_stage(so_far: _Draft, line: DirectiveLine) -> None:
    options = line.options(("stream", "destination", "every", "steps", "format"), needed=("stream", "destination"))
    if _STREAM.fullmatch(options["stream"]) is None:
        raise InvalidArgumentError(f"stream={options['stream'][:80]} is no stream; write its name, or RESERVATION/NAME")
    if options["stream"].rpartition("/")[2] == "files":
        raise InvalidArgumentError("stream=files: no stream is called so; files are staged with source= and match=")
    form = options.get("format", "bp5")
    if form not in ("bp5", "hdf5"):
        raise InvalidArgumentError(f"format={form} is not known; known are bp5 and hdf5")
    every, steps = _count(options, "every"), options.get("steps", "")
    StepSelection.parse(every, steps)
    stage = StreamStage(options["stream"], _outside(options["destination"]), every, steps, form)
    so_far.streams.append(stage)


def _create_persistent(so_far: _Draft, line: DirectiveLine) -> None:
    if line.kind == "#DW":
        raise InvalidArgumentError(f'"#DW {line.verb}" must be a #BB line')
    options = line.options(("name", "capacity", "access", "access_mode", "pool", "type"), needed=("name", "capacity"))
    _must_be_scratch(options)
    access_mode = options.get("access_mode") or options.get("access") or "striped"
    if access_mode.partition("(")[0] != "striped":
        raise InvalidArgumentError(f"access_mode={access_mode}: a persistent reservation is striped")
    request = CreatePersistent(_name(options), parse_slurm_size(options["capacity"]), options.get("pool", ""))
    if not request.capacity_bytes:
        raise InvalidArgumentError("capacity=0 holds nothing")
    so_far.creates.append(request)


def _destroy_persistent(so_far: _Draft, line: DirectiveLine) -> None:
    if line.kind == "#DW":
        raise InvalidArgumentError(f'"#DW {line.verb}" must be a #BB line')
    name = _name(line.options(("name",), needed=("name",), flags=("hurry",)))
    so_far.destroys.append(name)


def _swap(_so_far: _Draft, _line: DirectiveLine) -> None:
    raise InvalidArgumentError("swap is not there: Forebay has no block devices; ask for more memory instead")


def _unknown(_so_far: _Draft, line: DirectiveLine) -> None:
    known = [verb for kind, verb in _LINES if kind == line.kind and (kind, verb) not in _REFUSED]
    raise InvalidArgumentError(f'"{line.kind} {line.verb[:80]}" is not known; known are {", ".join(known)}')


_LINES: dict[tuple[str, str], Callable[[_Draft, DirectiveLine], None]] = {
    ("#DW", "jobdw"): _jobdw,
    ("#DW", "persistentdw"): _persistentdw,
    ("#DW", "stage_in"): _stage,
    ("#DW", "stage_out"): _stage,
    ("#DW", "swap"): _swap,
    ("#DW", "create_persistent"): _create_persistent,
    ("#DW", "destroy_persistent"): _destroy_persistent,
    ("#BB", "create_persistent"): _create_persistent,
    ("#BB", "destroy_persistent"): _destroy_persistent,
    ("#FB", "stage_out"): _kept_stage,
}
_REFUSED = (("#DW", "swap"), ("#DW", "create_persistent"), ("#DW", "destroy_persistent"))


def _mistakes_of_the_whole(directives: _Draft) -> Iterator[InvalidArgumentError]:
    yield from _collisions_of_files(directives.files)
    yield from _collisions_of_streams(directives.streams)
    of_files: list[FileStage | MatchedStage] = [
        *(stage for stage in directives.files if stage.kind != "list"),
        *directives.matched,
    ]
    own = [stage for stage in of_files if not stage.persistent]
    if own and not directives.capacity_bytes:
        yield InvalidArgumentError("the script stages but has no `#DW jobdw capacity=…` line")
    for stage in of_files:
        if stage.persistent and stage.persistent not in directives.persistents:
            yield InvalidArgumentError(
                f"the script stages with {stage.persistent} but has no `#DW persistentdw name={stage.persistent}` line"
            )
    for stream in directives.streams:
        reservation, slash, _ = stream.stream.partition("/")
        if slash and reservation not in directives.persistents:
            yield InvalidArgumentError(
                f"the script stages {stream.stream} out but has no `#DW persistentdw name={reservation}` line"
            )
        # In the job's own reservation, or in the only one that it uses.
        if not slash and not directives.capacity_bytes and len(directives.persistents) != 1:
            yield InvalidArgumentError(
                f"the script stages {stream.stream} out but has no `#DW jobdw capacity=…` line; a stream of a "
                f"persistent reservation is written RESERVATION/{stream.stream}"
            )


def _collisions_of_files(stages: Iterable[FileStage]) -> Iterator[InvalidArgumentError]:
    """Stages of a job run side by side: of two files with one name, one would be lost."""
    files: dict[tuple[str | None, str], FileStage] = {}
    for stage in stages:
        if stage.kind == "file" and files.setdefault(_target_of(stage), stage) != stage:
            first = files[_target_of(stage)]
            what, shown = ("in", stage.inside) if stage.inward else ("out", stage.outside)
            sources = (first.outside, stage.outside) if stage.inward else (first.inside, stage.inside)
            yield InvalidArgumentError(
                f"the script stages {sources[0][:80]} and {sources[1][:80]} {what} to one file, {shown[:80]}; give "
                "each a name of its own, or end the destination with a slash if it is a folder"
            )


def _collisions_of_streams(stages: Iterable[StreamStage]) -> Iterator[InvalidArgumentError]:
    """One stage of steps works in a folder at a time: one that waits too long for another fails, after the job."""
    streams: dict[str, StreamStage] = {}
    for stream in stages:
        if streams.setdefault(stream.destination, stream) != stream:
            yield InvalidArgumentError(
                f"the script stages steps of {streams[stream.destination].stream} and {stream.stream} out to "
                f"{stream.destination[:80]}, where one stage works at a time; give each a destination of its own"
            )


def _target_of(stage: FileStage) -> tuple[str | None, str]:
    """What a stage of one file makes: the reservation, None for outside, and the path."""
    target, source = (stage.inside, stage.outside) if stage.inward else (stage.outside, stage.inside)
    if not target or target.endswith("/"):
        target += source.rpartition("/")[2]
    return stage.persistent if stage.inward else None, target


def _must_be_scratch(options: dict[str, str]) -> None:
    kind = options.get("type", "scratch")
    if kind == "cache":
        raise InvalidArgumentError(f"this is {_CACHE}")
    if kind != "scratch":
        raise InvalidArgumentError(f"type={kind} is not known; write type=scratch")
    for option in _OF_CACHE:
        if option in options:
            raise InvalidArgumentError(f"{option}= belongs to {_CACHE}")


def _check_options_of_servers(options: dict[str, str]) -> None:
    for option, values in _OF_SERVERS.items():
        if option in options and re.fullmatch(values, options[option]) is None:
            known = values.replace("|", ", ").replace("[0-9]+", "whole numbers")
            raise InvalidArgumentError(f"{option}={options[option][:80]} is not known; known are {known}")


def _name(options: dict[str, str]) -> str:
    name = options["name"]
    if not is_valid_name(name):
        raise InvalidArgumentError(
            f"name={name[:80]}: a name has a letter, then up to 63 letters, digits, '_', '.' or '-'"
        )
    return name


def _inside(text: str) -> tuple[str, str]:
    """The persistent reservation ("": the job's own) and the path in it."""
    match = _TOKEN.fullmatch(text)
    token = match and (match[1] or match[2])
    if match is None or token is None:
        raise InvalidArgumentError(f'"{text[:200]}" does not begin with $DW_JOB_STRIPED')
    if token == "DW_JOB_PRIVATE":  # noqa: S105 - the name of a variable
        raise InvalidArgumentError("$DW_JOB_PRIVATE belongs to one node: copy to and from it in the script")
    persistent = token.removeprefix(_PERSISTENT) if token.startswith(_PERSISTENT) else ""
    if not persistent and token != "DW_JOB_STRIPED":  # noqa: S105 - the name of a variable
        raise InvalidArgumentError(f'"${token[:80]}" does not begin with $DW_JOB_STRIPED or ${_PERSISTENT}name')
    path = (match[3] or "").strip("/")
    _refuse_variables(path)
    _refuse_long_names(path)
    if ".." in path.split("/"):
        raise InvalidArgumentError(f'"{text[:200]}" leaves the scratch')
    return persistent, path


def _outside(text: str) -> str:
    if "$DW_" not in text and "${DW_" not in text:
        _refuse_variables(text)
    _refuse_long_names(text)
    # %d is the folder in which the job was submitted.
    if not text.startswith(("/", "%d/")) and text != "%d":
        raise InvalidArgumentError(f'"{text[:200]}" is no absolute path')
    if "$DW_" in text or "${DW_" in text:
        raise InvalidArgumentError(f'"{text[:200]}" must lie outside of the scratch')
    return text.rstrip("/") or "/"


def _refuse_long_names(path: str) -> None:
    for name in path.split("/"):
        # What symbols stand for is not known yet, and %% is one byte.
        if "%" not in name and len(name.encode()) > _NAME_BYTES_MAX:
            raise InvalidArgumentError(f"the name {name[:40]}… has more than {_NAME_BYTES_MAX} bytes")


def _refuse_variables(path: str) -> None:
    """No shell reads these lines: `$USER` would become a folder of that name."""
    if (found := _VARIABLE.search(path)) is not None:
        symbol = _SYMBOLS.get(found[1] or found[2])
        instead = f"write {symbol}" if symbol else "write the path itself, or one of %u (user), %j (job), %d (folder)"
        raise InvalidArgumentError(f"{found[0]} is not replaced in directives; {instead}")
