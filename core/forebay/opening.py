# SPDX-License-Identifier: Apache-2.0
"""Opening a stream, with the options of its readers and writers."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, get_args, overload

from forebay import _core
from forebay.errors import (
    ArgumentTypeError,
    DeadlineExceededError,
    ForebayError,
    InvalidArgumentError,
    NotFoundError,
    StreamNotFoundError,
)
from forebay.instance import InstanceLike, instance_of, instance_path, server_place
from forebay.missing_stream import open_reader, stream_not_found
from forebay.options import flag, integer, milliseconds, text, unknown_option
from forebay.records import TICKET_SUFFIX, Address, LauncherRank, Retention, launcher_rank
from forebay.stream import Distribution, Mode, Stream, Verify, Watermark
from forebay.writable_stream import WritableStream

__all__ = ["WriterOptions", "open"]

OnReaderLost: TypeAlias = Literal["end", "continue"]
OnUnavailable: TypeAlias = Literal["wait", "skip", "error"]
WhenFull: TypeAlias = Literal["block", "drop_oldest", "drop-oldest", "error"]


class WriterOptions(TypedDict, total=False):
    """Options of the modes ``"w"`` and ``"a"``; what they mean and their defaults: :func:`open`."""

    rank: int | None
    ranks: int | None
    group: str | None
    append_after: int | None
    retention: Retention | str | None
    when_full: WhenFull
    block_timeout: float | None
    lag_limit: int | None
    durability: Watermark
    statistics: bool
    checksums: bool
    force: bool
    rendezvous_readers: int
    distribution: Distribution
    grace: float


@overload
def open(  # noqa: A001
    address: str | Address,
    mode: Literal["r"] = "r",
    *,
    instance: InstanceLike | None = None,
    verify: Verify = "auto",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
    run: str | None = None,
    wait_for_writer: bool = False,
    trust_writer: bool = False,
    on_unavailable: OnUnavailable = "wait",
    rank: int | None = None,
    ranks: int | None = None,
    group: str | None = None,
    turn_timeout: float | None = None,
    on_reader_lost: OnReaderLost = "end",
) -> Stream: ...
@overload
def open(  # noqa: A001
    address: str | Address,
    mode: Literal["w", "a"],
    *,
    instance: InstanceLike | None = None,
    verify: Verify = "auto",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
    run: str | None = None,
    **options: Unpack[WriterOptions],
) -> WritableStream: ...
def open(  # noqa: A001 - forebay.open is meant to read like the builtin
    address: str | Address,
    mode: Mode = "r",
    *,
    instance: InstanceLike | None = None,
    verify: Verify = "auto",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
    run: str | None = None,
    wait_for_writer: bool = False,
    trust_writer: bool = False,
    on_unavailable: OnUnavailable = "wait",
    **options: Any,
) -> Stream:
    """Opens a stream.

    Parameters
    ----------
    address : str or Address
        ``"RESERVATION/STREAM"``, ``"forebay://RESERVATION/STREAM"``, or ``"forebay://HOST:PORT/RESERVATION/STREAM"``
        for a server on another node, with the token that ``$FOREBAY_TOKEN_FILE`` names; or a :class:`Ticket`'s path.
    mode : {"r", "w", "a"}
        ``"r"`` reads. ``"w"`` replaces the stream by a new epoch from step 0. ``"a"`` continues after the last
        step, or creates the stream.
    instance : Instance or path, optional
        The instance that has the stream: an :class:`Instance`, the path of its root, that of its server's socket, or
        ``"forebay://HOST:PORT"``. Not given: the one that the environment names (``$FOREBAY_SERVER``,
        ``$FOREBAY_SOCKET``, ``$FOREBAY_ROOT``, else the user's own).
    verify : {"auto", "none", "first", "read"}
        When reads check the checksums of blocks. ``"auto"``: the first time that a whole block is read, unless its step
        was committed less than ten seconds before it was given out; whole blocks that come over a network always; parts
        of blocks and views never. ``"none"``: never. ``"first"``: the first time that a block, a part of it or a view
        is asked for. ``"read"``: at every read; views are checked by ``variable.verify()``.
    timeout : float, optional
        Seconds to wait for the stream to exist and for the writer that ``run`` or ``wait_for_writer`` asks for (mode
        ``"r"``), or for the whole writer group and the readers it waits for; None: for ever. If the stream does not
        exist, after a second the logger ``forebay.waiting`` says which one is waited for, and which near names there
        are.
    reconnect_timeout : float, optional
        Seconds that a restarting server is waited for.
    run : str, optional
        Names a coupling: the same text for the writer's ranks and for readers, and again after a restart. A writer's
        steps belong to it. A reader waits until a writer group of this run has formed, and takes no step of another
        run. Not given: steps belong to no run, and a reader takes those of any.
    wait_for_writer : bool
        Mode ``"r"``: wait until a writer group writes the stream, and take no step before its first.
    trust_writer : bool
        Mode ``"r"``: map views of steps without a copy although another user may write the stream. Not set: a view is
        a copy while a user who is neither you, nor root, nor the server's has the step's segments open for writing. If
        that user truncates a segment, a process that has it mapped dies of SIGBUS.
    on_unavailable : {"wait", "skip", "error"}
        Mode ``"r"``, for reservations on several servers: what :meth:`Stream.follow` does when the next step has a part
        on a server that is away. ``"wait"``: it waits until that server is back, up to its own timeout, and gives no
        later step first. ``"skip"``: it passes over the step, which ``on_notice`` is told and the next step's
        ``skipped`` counts, and gives those that are there. ``"error"``: it raises UnavailableError; asked again, it
        looks again. If the server goes away once a step was given, reads of that step wait for it up to
        ``reconnect_timeout`` with ``"wait"``, and raise UnavailableError at once with the others. Steps by number are
        given in any case, and reads of them wait up to ``reconnect_timeout``.

    Other Parameters
    ----------------
    rank, ranks : int
        This process in the writer group; both or none. Not given: from the launcher (:func:`launcher_rank`). Mode
        ``"r"``: in the reader group, whose processes all open together and get the same answer from each
        :meth:`Stream.follow`, which all of them call as often. Not given: this process reads alone. In a group,
        ``steps()``, ``len``, iteration and negative numbers mean the steps of the moment of the open.
    group : str
        What the ranks of one group share; not given: the launcher's job, step and restart.
    turn_timeout : float, optional
        Mode ``"r"`` with ``ranks``: a rank that does not ask for its next step for so many seconds counts as lost.
        None: it is waited for as long as it lives.
    on_reader_lost : {"end", "continue"}
        Mode ``"r"`` with ``ranks``: when a rank dies, the others get GroupBrokenError; or they go on without it, and it
        may be started again.
    append_after : int
        Mode ``"a"``: withdraw the steps after this one.
    retention : Retention or str
        Which steps the stream keeps, for example ``"last:10,precious:100"``; not given: as it is, or all.
    when_full : {"block", "drop_oldest", "error"}
        What a step does when the reservation is full.
    block_timeout : float, optional
        Seconds that ``when_full="block"`` and ``lag_limit`` wait at most; None: for ever.
    lag_limit : int, optional
        A step begins only when no connected reader, with a name or without, is more than this many steps behind.
        Readers that close or die, or that follow with ``latest_only``, do not count. After ``block_timeout`` the step
        raises DeadlineExceededError, which names the reader's process. Not given, or 0: readers are never waited for.
    durability : {"committed", "durable"}
        What the end of a step waits for.
    statistics, checksums : bool
        Take minimum and maximum, and CRC-32C, of every block.
    force : bool
        Replace or rewind although unstaged precious steps go.
    rendezvous_readers : int
        Wait for that many readers.
    distribution : str
        How steps are shared among readers that do not choose.
    grace : float
        Seconds that followers wait for a restart once this group is lost.

    Returns
    -------
    Stream or WritableStream

    Raises
    ------
    StreamNotFoundError
        No such reservation; or, for reading, no such stream within ``timeout``, or another one than the ticket's.
    BusyError
        Another writer group writes.
    RefusedError
        Unstaged precious steps would go; or the writer that a reader waits for was refused, and does not come.
    DeadlineExceededError
        The writer or reader group did not form in time; the text names the missing ranks. Or, for reading, no writer
        came that ``run`` or ``wait_for_writer`` asks for.
    ArgumentTypeError
        An option has the wrong type, or there is none of that name; the text names the nearest.
    PermissionDeniedError, DisconnectedError, InvalidArgumentError
    """
    if mode not in ("r", "w", "a"):
        raise InvalidArgumentError(f"mode is 'r', 'w' or 'a', not {mode!r}")
    _check_choice("verify", verify, get_args(Verify))
    _check_choice("on_unavailable", on_unavailable, get_args(OnUnavailable))
    if on_unavailable != "wait" and mode != "r":
        raise InvalidArgumentError("option 'on_unavailable' is for reading: only mode 'r' takes it")
    run = "" if run is None else text("run", run)
    wait_for_writer = flag("wait_for_writer", wait_for_writer)
    if wait_for_writer and mode != "r":
        raise InvalidArgumentError("option 'wait_for_writer' is for reading: only mode 'r' takes it")
    trust_writer = flag("trust_writer", trust_writer)
    if trust_writer and mode != "r":
        raise InvalidArgumentError("option 'trust_writer' is for reading: only mode 'r' takes it")
    place = address if isinstance(address, Address) else Address.parse(address)
    uuid = _uuid_of_ticket(address) if mode == "r" else ""
    if place.step is not None:
        raise InvalidArgumentError(
            f"{place} names a step: open {place.path!r} and take stream[{place.step}], or use open_step"
        )
    instance = instance_of(place.server, instance)
    with _readers_told(place, mode, run, instance):
        _check_names(options, mode)
    reader_options: dict[str, Any] = {
        "verify": verify,
        "open_timeout_ms": milliseconds(timeout),
        "reconnect_timeout_ms": milliseconds(reconnect_timeout, "reconnect_timeout"),
        "trust_writer": trust_writer,
    }
    if mode == "r":
        reader_options |= {"on_unavailable": on_unavailable} | _reader_group(**options)
    try:
        if mode == "r":
            server = server_place(instance)
            if run or wait_for_writer:
                # In one wait: a writer might come and go between two.
                native = _core.Reader.open(
                    place.path, server=server, run=run, wait_for_writer=wait_for_writer, **reader_options
                )
                if run:
                    reader_options["run"] = run
                if native.first_step:
                    # What follows through this handle goes on from here, also once the writer has gone.
                    reader_options["first_step"] = native.first_step
                    reader_options["first_step_epoch"] = native.first_step_epoch
            else:
                try:
                    native = open_reader(place, server, reader_options)
                except (NotFoundError, DeadlineExceededError) as error:
                    if "ranks" in reader_options and isinstance(error, DeadlineExceededError):
                        raise  # it may be a rank that did not come
                    raise stream_not_found(error, place, server) from None
            if uuid and native.stream_uuid != uuid:
                other = native.stream_uuid
                native.close()
                raise StreamNotFoundError(
                    f"the stream of this ticket, {uuid}, was removed; the stream of this name is now {other}. Write a "
                    "ticket for it",
                    f"stream {place.path}",
                )
            return Stream(place, reader_options, server, instance_path(instance), native)
        options = {"timeout": timeout, "reconnect_timeout": reconnect_timeout, "run": run, **options}
        with _readers_told(place, mode, run, instance):
            found = _place_in_group(options.pop("rank", None), options.pop("ranks", None), options.pop("group", None))
            texts = _texts_of(options)
        server = server_place(instance)
        writer = _core.Writer.open(
            place.path,
            append=mode == "a",
            rank=found.rank,
            ranks=found.ranks,
            ranks_source=found.source,
            group=found.group,
            options=texts,
            server=server,
        )
        return WritableStream(place, mode, reader_options, server, instance_path(instance), writer)
    except StreamNotFoundError:
        raise
    except NotFoundError as error:
        raise stream_not_found(error, place, server_place(instance)) from None


_COMMON_OPTIONS = tuple(name for name in inspect.signature(open).parameters if name != "options")
_WRITER_OPTIONS = tuple(
    dict.fromkeys(
        name
        for name in (*WriterOptions.__annotations__, *(row[0] for row in _core.writer_options()))
        if name not in _COMMON_OPTIONS
    )
)


_READER_GROUP_OPTIONS = ("rank", "ranks", "group", "turn_timeout", "on_reader_lost")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if text(name, value) not in choices:
        raise InvalidArgumentError(f"{name}={value!r}: expected one of {', '.join(choices)}")


def _check_names(options: dict[str, Any], mode: Mode) -> None:
    for name in options:
        if name not in (*_WRITER_OPTIONS, *_READER_GROUP_OPTIONS):
            known = _READER_GROUP_OPTIONS if mode == "r" else _WRITER_OPTIONS
            raise unknown_option("open", name, [*_COMMON_OPTIONS, *known])
        if mode == "r" and name not in _READER_GROUP_OPTIONS:
            raise InvalidArgumentError(f"option {name!r} is for writing; mode 'r' does not take it")
        if mode != "r" and name not in _WRITER_OPTIONS:
            raise InvalidArgumentError(f"option {name!r} is for reading: only mode 'r' takes it")


@contextmanager
def _readers_told(place: Address, mode: Mode, run: str, instance: InstanceLike | None) -> Iterator[None]:
    """Where a writer's options are wrong, readers that wait for it are told that it does not come."""
    try:
        yield
    except InvalidArgumentError as error:
        # The error itself is the one to report.
        with suppress(ForebayError):
            if mode != "r":
                _core.report_refused_writer(place.path, error.what, run=run, server=server_place(instance))
        raise


def _place_in_group(rank: int | None, ranks: int | None, group: str | None) -> LauncherRank:
    if (rank is None) != (ranks is None) and ranks != 1:
        raise InvalidArgumentError("give both rank and ranks, or neither (then the launcher says)")
    rank, ranks = (
        None if given is None else integer(name, given) for name, given in (("rank", rank), ("ranks", ranks))
    )
    if (rank is not None and rank < 0) or (ranks is not None and ranks < 1):
        raise InvalidArgumentError(f"ranks count from 1 and rank from 0, not rank={rank}, ranks={ranks}")
    if ranks is None:
        found = launcher_rank()
    else:
        found = LauncherRank(rank or 0, ranks, "the options rank and ranks", _core.launcher_group())
    return found if group is None else dataclasses.replace(found, group=text("group", group))


def _reader_group(
    rank: int | None = None,
    ranks: int | None = None,
    group: str | None = None,
    turn_timeout: float | None = None,
    on_reader_lost: OnReaderLost = "end",
) -> dict[str, Any]:
    """The native reader's options of a rank of a reader group; none for who reads alone."""
    turn_timeout_ms = milliseconds(turn_timeout, "turn_timeout")
    _check_choice("on_reader_lost", on_reader_lost, get_args(OnReaderLost))
    if rank is None and ranks is None:
        if group is not None:
            raise InvalidArgumentError("group= names the group of ranks that read together: give rank= and ranks=, too")
        return {}
    found = _place_in_group(rank, ranks, group)
    if found.ranks == 1:
        return {}
    if not found.group:
        raise InvalidArgumentError(
            "ranks that read together share a group id: give group=, the same text to all of them and to no others, or "
            "set FOREBAY_GROUP"
        )
    return {
        "rank": found.rank,
        "ranks": found.ranks,
        "ranks_source": found.source,
        "group": found.group,
        "turn_timeout_ms": turn_timeout_ms,
        "on_reader_lost": on_reader_lost,
    }


def _texts_of(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Options as the native table of them reads them; None leaves one as it is, or waits for ever."""
    kinds = {name: values for name, values, _ in _core.writer_options()}
    texts = [
        (name, _text_of(name, value, kinds[name]))
        for name, value in options.items()
        if value is not None or kinds[name] == "seconds"
    ]
    _core.check_writer_options(texts)
    return texts


def _text_of(name: str, value: Any, kind: str) -> str:
    """The option's text; ArgumentTypeError says what it takes."""
    if kind == "seconds":
        return str(milliseconds(value, name) / 1000)
    if kind == "integer":
        return str(integer(name, value))
    if kind.endswith("true, false"):
        return str(flag(name, value))
    if name == "retention" and not isinstance(value, (str, Retention)):
        example = f": to keep the last {value} steps write 'last:{value}'" if isinstance(value, int) else ""
        raise ArgumentTypeError(f"retention is a text such as 'last:10' or a Retention, not {value!r}{example}")
    return str(value) if isinstance(value, Retention) else text(name, value)


def _uuid_of_ticket(address: str | Address) -> str:
    """The stream's uuid, if the address is the path of a ticket; else ``""``."""
    if isinstance(address, Address) or not (address.endswith(TICKET_SUFFIX) and os.path.isfile(address)):
        return ""
    from forebay.ticket import Ticket

    return Ticket.read(address).uuid
