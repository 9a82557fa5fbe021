# SPDX-License-Identifier: Apache-2.0
"""Follows files and folders that a program writes into a reservation: iterates over those that are whole."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from forebay import options
from forebay.admin import Admin
from forebay.closing import Closing
from forebay.errors import (
    CancelledError,
    DeadlineExceededError,
    ForebayError,
    InvalidArgumentError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from forebay.file_address import FileAddress
from forebay.files.appearing_names import AppearingNames, SeenName
from forebay.files.chosen_names import ChosenNames
from forebay.files.complete_rule import CompleteRule, RuleKind, Version
from forebay.files.follow_log import FollowLog
from forebay.files.name_choice import NameChoice
from forebay.files.open_folder import open_outside
from forebay.instance import InstanceLike
from forebay.visible_text import visible

if TYPE_CHECKING:
    from forebay.follower import Acknowledge

__all__ = ["AppearedFile", "FileFollower", "follow_files"]

_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class AppearedFile:
    """A file or folder that is whole."""

    name: str
    path: str  #: where it lies; nothing keeps its program from removing or replacing it
    number: int  #: how many names that match had appeared before it
    is_folder: bool
    comes_again: bool  #: another version of this name was done before
    _version: Version = field(repr=False)
    _follower: FileFollower = field(repr=False, compare=False)

    def done(self) -> None:
        """It is not given again, unless another version comes. Durable when this returns; idempotent."""
        self._follower._done(self.name, self._version)


class FileFollower(Closing, Iterator[AppearedFile]):
    """Iterator over files and folders as they become complete; made by :func:`follow_files`. Also a context manager.

    It ends when a name that ends it has appeared and all that were complete by then have been given. ``next()`` belongs
    to one thread at a time; ``done`` of its files, and ``close``, may be called from others meanwhile. ``async for``
    waits without keeping the event loop busy.

    Raises
    ------
    DeadlineExceededError
        None came within ``timeout``. The follower stays usable: ask again.
    NotFoundError
        The reservation is gone. Or, at the end: chosen names went before they could be taken.
    UnsupportedError
        ``complete="closed"``, and nobody can tell whether a program writes the file.
    CancelledError
        Another thread closed the follower.
    """

    def __init__(
        self,
        folder: str,
        names: AppearingNames,
        choice: NameChoice,
        rule: CompleteRule,
        log: FollowLog,
        *,
        timeout: float | None,
        acknowledges: bool,
        accept_gaps: bool,
        on_notice: Callable[[str], object] | None,
    ) -> None:
        self._folder = folder
        self._names = names
        self._chosen = ChosenNames(names, choice, log)
        self._rule = rule
        self._log = log
        self.timeout = timeout
        self._acknowledges = acknowledges
        self._accept_gaps = accept_gaps
        self._on_notice = on_notice
        self._turn = threading.Lock()  # Guards the log, and what follows.
        self._ready: deque[SeenName] = deque()
        self._in_hand: dict[str, Version] = {}
        self._previous: AppearedFile | None = None
        self._untaken: AppearedFile | None = None  # came when the task that waited for it had been cancelled
        self._noticed: set[str] = set()
        self._left: list[str] = []
        self._ended_by = ""
        self._is_over = False
        self._closed = False
        self._is_interrupted = False
        self._has_newer = False  # of a name in hand another version lies there
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    @property
    def timeout(self) -> float | None:
        """Seconds that the next wait may take; None: for ever. May be set between two waits."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._timeout = None if options.milliseconds(seconds) < 0 else seconds

    @property
    def missed(self) -> list[str]:
        """Chosen names that went before they could be taken, since the position was begun."""
        return self._log.missed

    @property
    def left(self) -> list[str]:
        """Chosen names that were not complete at the last look."""
        return list(self._left)

    @property
    def ended_by(self) -> str:
        """The name that ended it; empty before."""
        return self._ended_by

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AppearedFile:
        file = self._next()
        if file is None:
            raise StopIteration
        return file

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AppearedFile:
        """A task that is cancelled while it waits loses no file: the next wait gives it."""
        waiting = asyncio.ensure_future(asyncio.to_thread(self._next))
        try:
            file = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            self._is_interrupted = True
            os.eventfd_write(self._wake, 1)
            while not waiting.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([waiting])
            self._is_interrupted = False
            if waiting.exception() is None:
                self._untaken = waiting.result()
            raise
        if file is None:
            raise StopAsyncIteration
        return file

    def close(self) -> None:
        """Ends the following; idempotent. The position stays."""
        if self._closed:
            return
        self._closed = True
        os.eventfd_write(self._wake, 1)
        with self._turn:
            self._names.close()
            self._log.close()
        # The descriptor goes with the object: a wait of another thread may still look at it.

    def __del__(self) -> None:
        if hasattr(self, "_wake"):
            self.close()
            os.close(self._wake)

    def _next(self) -> AppearedFile | None:
        """None: there comes no more."""
        if self._previous is not None:
            previous, self._previous = self._previous, None
            previous.done()
        file, self._untaken = self._untaken or self._wait_for_one(), None
        if self._acknowledges:
            self._previous = file
        return file

    def _wait_for_one(self) -> AppearedFile | None:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            with self._turn:
                # First: what is told from now on ends the wait below.
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
                if self._closed:
                    raise CancelledError("the follower was closed", self._folder)
                file = self._first_ready()
                if file is None and not self._is_over:
                    looks_again = self._look()
                    file = self._first_ready()
                    if file is None and looks_again:
                        continue
                if file is not None:
                    return file
                if self._is_over:
                    self._check_missed()
                    return None
                if self._is_interrupted:
                    raise CancelledError("the wait was given up", self._folder)
            left_seconds = None if deadline is None else deadline - time.monotonic()
            if left_seconds is not None and left_seconds <= 0:
                raise DeadlineExceededError(f"no file or folder came within {self._timeout:g} s", self._folder)
            self._names.wait(self._wake, left_seconds)

    def _look(self) -> bool:
        """Whether the name that ends it has just appeared: another look takes what was complete before."""
        is_last = bool(self._ended_by)
        look = self._chosen.look()
        if look.refused:
            self._tell(f"{look.refused} is neither file nor folder, and is not given")
        for seen in look.incomplete:
            if self._rule.kind is RuleKind.CLOSED:
                self._tell(f'{seen.name} is a folder, and "closed" is for single files: it is not given')
        self._left = [seen.name for seen in look.incomplete]
        self._ready.extend(seen for seen in look.ready if seen.name not in self._in_hand)
        self._has_newer = any(
            seen.name in self._in_hand and self._in_hand[seen.name] != seen.version for seen in look.ready
        )
        self._is_over = is_last and not self._has_newer
        self._ended_by = self._ended_by or look.ended_by
        return bool(self._ended_by) and not is_last

    def _first_ready(self) -> AppearedFile | None:
        while self._ready:
            seen = self._ready.popleft()
            if not self._is_whole(seen):
                continue
            self._in_hand[seen.name] = seen.version
            number = self._log.number(seen.name)
            assert number is not None
            return AppearedFile(
                seen.name,
                os.path.join(self._folder, seen.name),
                number,
                seen.version.is_folder,
                self._log.versions(seen.name) > 0,
                seen.version,
                self,
            )
        return None

    def _is_whole(self, seen: SeenName) -> bool:
        """It is still what the look has seen, and no program writes it."""
        if not self._names.is_still(seen):
            return False
        if seen.version.is_folder:
            return True
        try:
            is_written = self._names.is_being_written(seen.name)
        except OSError:
            return False  # It went, or became something else.
        if is_written is None and self._rule.kind is RuleKind.CLOSED:
            raise UnsupportedError(
                "nobody can tell here whether a program has this file open for writing (the file system has no leases, "
                "or the file is another user's); use complete 'rename' or 'marker=NAME'",
                os.path.join(self._folder, seen.name),
            )
        if is_written:
            self._left.append(seen.name)
        return not is_written

    def _done(self, name: str, version: Version) -> None:
        with self._turn:
            if self._in_hand.get(name) != version:
                return
            if self._closed:
                raise CancelledError("the follower was closed, and its position with it", self._folder)
            self._log.passed(name, self._names.after_use(name, version))
            del self._in_hand[name]
            if self._has_newer:
                os.eventfd_write(self._wake, 1)

    def _check_missed(self) -> None:
        # What is in hand may have been removed by whoever has it.
        missed = [name for name in self._log.missed if name not in self._in_hand]
        if missed and not self._accept_gaps:
            shown = ", ".join(missed[:_NAMES_SHOWN]) + (" …" if len(missed) > _NAMES_SHOWN else "")
            raise NotFoundError(
                f"{len(missed)} chosen names went before they could be taken: {shown}. All others were given; let the "
                "program keep them longer, or accept gaps",
                self._folder,
            )

    def _tell(self, text: str) -> None:
        if text in self._noticed:
            return
        self._noticed.add(text)
        if self._on_notice is not None:
            self._on_notice(text)
        else:
            warnings.warn(visible(f"{self._folder}: {text}"), stacklevel=4)


@options.known_options
def follow_files(
    folder: str,
    match: str,
    consumer: str = "",
    *,
    instance: InstanceLike | None = None,
    exclude: Sequence[str] = (),
    complete: str = "rename",
    every: int | None = None,
    multiple_of: int | None = None,
    until: str = "",
    timeout: float | None = None,
    ack: Acknowledge = "auto",
    accept_gaps: bool = False,
    on_notice: Callable[[str], object] | None = None,
) -> FileFollower:
    """Follows files and folders that a program writes into a reservation: ``follow_files("run1:out", "plt?????")``.

    It gives those that are there, then each one as soon as it is complete. The rules: docs/design/file-follow.md.

    Parameters
    ----------
    folder : str
        ``"RES:DIR"``, on the node of the reservation's server. The folder may come later.
    match : str
        Pattern of names in the folder, with ``*``, ``?`` and ``[...]``.
    consumer : str
        Name under which the position is kept, in this user's ``$XDG_STATE_HOME/forebay-follow``: a process that comes
        back goes on there. One holder at a time. Without a name all that is there is given.
    instance : Instance or path, optional
        As in :func:`forebay.open`.
    exclude : sequence of str
        Patterns of names that are not followed.
    complete : str
        When a name is whole: ``"rename"`` (it is there), ``"marker=NAME"`` (a folder has an entry NAME; beside a file
        lies its name followed by NAME), ``"closed"`` (no program has the file open for writing). A file that is known
        to be open for writing is given by no rule.
    every, multiple_of : int, optional
        One name in N, in the order in which they appear; or names whose number N divides.
    until : str
        Pattern of a name that ends it. Without one it goes on until it is closed.
    timeout : float, optional
        Seconds that one wait may take; None: for ever.
    ack : {"auto", "manual"}
        Auto: a file is done when the loop asks for the next one, so one whose body failed or was left by ``break`` is
        given again. Manual: by ``file.done()``.
    accept_gaps : bool
        Do not fail at the end if chosen names went before they could be given.
    on_notice : callable, optional
        Called with a text about what matches and is not given; otherwise it is a warning.

    Raises
    ------
    NotFoundError
        There is no such reservation, or its files are on another node.
    BusyError
        The consumer has a holder.
    InvalidArgumentError, PermissionDeniedError
        A rule is none; the folder may not be used.
    CorruptError, StorageError
        The position is damaged, or cannot be kept.

    Examples
    --------
    >>> for file in forebay.follow_files("run1:out", "plt?????", consumer="plots", until="finished"):
    ...     plot(file.path)
    """
    if ack not in ("auto", "manual"):
        raise InvalidArgumentError(f'ack is "auto" or "manual", not {ack!r}')
    if isinstance(exclude, str):
        raise InvalidArgumentError("exclude is a list of patterns")
    place = FileAddress.parse(options.text("folder", folder, "a place, RES:DIR"))
    choice = NameChoice.parse(match, exclude, until, every, multiple_of)
    rule = CompleteRule.parse(complete)
    options.milliseconds(timeout)
    with Admin(instance) as admin:
        reservation = admin.reservation(place.reservation, count_files=False)
    if not os.path.isdir(reservation.files_path):
        raise NotFoundError(
            "the files of this reservation are not on this node; follow them on the node of its server",
            reservation.files_path,
        )
    path = "/".join(part for part in place.path.split("/") if part not in ("", "."))
    names = AppearingNames(reservation.files_path, path, choice, rule)
    subject = {"reservation": place.reservation, "uuid": reservation.id, "path": path, "match": match}
    try:
        log = _opened_log(subject | {"consumer": consumer}) if consumer else FollowLog.in_memory(subject)
    except BaseException:
        names.close()
        raise
    return FileFollower(
        os.path.join(reservation.files_path, path),
        names,
        choice,
        rule,
        log,
        timeout=timeout,
        acknowledges=ack == "auto",
        accept_gaps=accept_gaps,
        on_notice=on_notice,
    )


def _opened_log(subject: dict[str, str]) -> FollowLog:
    """The position of a consumer."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folder = os.path.join(os.path.abspath(state), "forebay-follow")
    name = f"{hashlib.sha256(json.dumps(subject).encode()).hexdigest()[:16]}.log"
    try:
        opened = open_outside(folder)
        try:
            return FollowLog.open(opened, name, subject, os.path.join(folder, name))
        finally:
            os.close(opened)
    except OSError as error:
        if isinstance(error, ForebayError):
            raise
        raise StorageError(
            f"the position of consumer {subject['consumer']!r} cannot be kept ({error.strerror}); name another folder "
            "by XDG_STATE_HOME",
            folder,
        ) from error
