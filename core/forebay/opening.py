# SPDX-License-Identifier: Apache-2.0
"""Opening a stream, with the options of its readers and writers."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

from forebay import _core
from forebay.errors import DeadlineExceededError, InvalidArgumentError, NotFoundError, StreamNotFoundError
from forebay.follower import milliseconds
from forebay.instance import InstanceLike, instance_path, server_place
from forebay.records import Address, LauncherRank, Retention, launcher_rank
from forebay.stream import Distribution, Mode, Stream, Verify, Watermark
from forebay.writable_stream import WritableStream

__all__ = ["WriterOptions", "open"]

WhenFull: TypeAlias = Literal["block", "drop_oldest", "drop-oldest", "error"]


class WriterOptions(TypedDict, total=False):
    """Options of the modes ``"w"`` and ``"a"``; what they mean and their defaults: :func:`open`."""

    rank: int | None
    ranks: int | None
    group: str | None
    run: str
    append_after: int | None
    retention: Retention | str | None
    when_full: WhenFull
    block_timeout: float | None
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
    verify: Verify = "none",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
) -> Stream: ...
@overload
def open(  # noqa: A001
    address: str | Address,
    mode: Literal["w", "a"],
    *,
    instance: InstanceLike | None = None,
    verify: Verify = "none",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
    **options: Unpack[WriterOptions],
) -> WritableStream: ...
def open(  # noqa: A001 - forebay.open is meant to read like the builtin
    address: str | Address,
    mode: Mode = "r",
    *,
    instance: InstanceLike | None = None,
    verify: Verify = "none",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
    **options: Any,
) -> Stream:
    """Opens a stream.

    Parameters
    ----------
    address : str or Address
        ``"RESERVATION/STREAM"`` or ``"forebay://RESERVATION/STREAM"``.
    mode : {"r", "w", "a"}
        ``"r"`` reads. ``"w"`` replaces the stream by a new epoch from step 0. ``"a"`` continues after the last
        step, or creates the stream.
    instance : Instance or path, optional
        The instance that has the stream: an :class:`Instance`, the path of its root, or that of its server's socket.
        Not given: the one that the environment names (``$FOREBAY_SOCKET``, ``$FOREBAY_ROOT``, else the user's own).
    verify : {"none", "first", "read"}
        When block checksums are checked by reads: never, the first time a block is touched, always. Views are checked
        by ``variable.verify()``.
    timeout : float, optional
        Seconds to wait for the stream to exist (mode ``"r"``), or for the whole writer group and the readers it waits
        for; None: for ever.
    reconnect_timeout : float, optional
        Seconds that a restarting server is waited for.

    Other Parameters
    ----------------
    rank, ranks : int
        This process in the writer group; both or none. Not given: from the launcher (:func:`launcher_rank`).
    group : str
        What the ranks of one group share; not given: the launcher's job, step and restart.
    run : str
        The run that the steps belong to, recorded with the writer group.
    append_after : int
        Mode ``"a"``: withdraw the steps after this one.
    retention : Retention or str
        Which steps the stream keeps, for example ``"last:10,precious:100"``; not given: as it is, or all.
    when_full : {"block", "drop_oldest", "error"}
        What a step does when the reservation is full.
    block_timeout : float, optional
        Seconds that ``when_full="block"`` waits at most; None: for ever.
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
        No such reservation; or, for reading, no such stream within ``timeout``.
    BusyError
        Another writer group writes.
    RefusedError
        Unstaged precious steps would go.
    DeadlineExceededError
        The writer group did not form in time; the text names the missing ranks.
    PermissionDeniedError, DisconnectedError, InvalidArgumentError
    """
    place = address if isinstance(address, Address) else Address.parse(address)
    if place.step is not None:
        raise InvalidArgumentError(f"{place} names a step: open {place.path!r} and take stream[{place.step}]")
    reader_options: dict[str, Any] = {
        "verify": verify,
        "open_timeout_ms": milliseconds(timeout),
        "reconnect_timeout_ms": milliseconds(reconnect_timeout),
    }
    try:
        if mode == "r":
            if options:
                raise InvalidArgumentError(f"option {next(iter(options))!r} is for writing; mode 'r' does not take it")
            server = server_place(instance)
            native = _core.Reader.open(place.path, server=server, **reader_options)
            return Stream(place, reader_options, server, instance_path(instance), native)
        if mode in ("w", "a"):
            options = {"timeout": timeout, "reconnect_timeout": reconnect_timeout, **options}
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
    except NotFoundError as error:
        raise StreamNotFoundError(error.what, error.where) from None
    except DeadlineExceededError as error:
        if mode == "r":
            raise StreamNotFoundError(error.what, error.where) from None
        raise
    raise InvalidArgumentError(f"mode is 'r', 'w' or 'a', not {mode!r}")


def _place_in_group(rank: int | None, ranks: int | None, group: str | None) -> LauncherRank:
    if (rank is None) != (ranks is None) and ranks != 1:
        raise InvalidArgumentError("give both rank and ranks, or neither (then the launcher says)")
    found = launcher_rank()
    if ranks is not None:
        found = dataclasses.replace(found, rank=rank or 0, ranks=ranks, source="the options rank and ranks")
    return found if group is None else dataclasses.replace(found, group=group)


def _texts_of(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Options as the native table of them reads them; None leaves one as it is, or waits for ever."""
    values = {name: values for name, values, _ in _core.writer_options()}
    texts = []
    for name, value in options.items():
        if name not in values:
            raise TypeError(f"open() got an unexpected keyword argument {name!r}; known are {', '.join(values)}")
        if values[name] == "seconds":
            texts.append((name, str(milliseconds(value) / 1000)))
        elif value is not None:
            texts.append((name, str(value)))
    _core.check_writer_options(texts)
    return texts
