# SPDX-License-Identifier: Apache-2.0
"""An open stream: its steps by number, following it, its state; what every mode has."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, SupportsIndex, TypeAlias, overload
from weakref import WeakValueDictionary

import numpy as np

from forebay import _core, options
from forebay.closing import Closing
from forebay.datatypes import AttributeValue
from forebay.errors import (
    ArgumentTypeError,
    ForebayError,
    InvalidArgumentError,
    NotFoundError,
    StepGoneError,
    StepNotFoundError,
    StreamNotFoundError,
    UnsupportedError,
)
from forebay.follower import Acknowledge, Follower, StartText
from forebay.hold import Hold, hold_steps
from forebay.kept_steps import Steps, number_from_newest, numbers_in_slice
from forebay.notebook import stream_html, stream_summary
from forebay.read_only_dict import ReadOnlyDict
from forebay.records import Address, Notice, StreamInfo
from forebay.series import Series, series_of
from forebay.step import Step
from forebay.step_metadata import GatheredSteps, StepsMetadata
from forebay.step_table import StepTable
from forebay.steps_ahead import StepsInOrder

__all__ = ["Distribution", "Mode", "Stream", "Verify", "Watermark"]

Mode: TypeAlias = Literal["r", "w", "a"]
Watermark: TypeAlias = Literal["committed", "durable"]
Verify: TypeAlias = Literal["auto", "none", "first", "read"]
Distribution: TypeAlias = Literal["stream_default", "all_to_all", "round_robin", "on_demand"]

# How often the list of steps is asked for while steps are dropped faster than they are opened.
_ATTEMPTS = 100
# The native reader's options that make it a rank of a reader group.
_GROUP_OPTIONS = frozenset({"rank", "ranks", "ranks_source", "group", "turn_timeout_ms", "on_reader_lost"})


class Stream(Closing):
    """An open stream; made by :func:`forebay.open`. Context manager; pickles by address (mode ``"r"``).

    Steps are named by their *numbers*, which do not change when older steps are dropped:

    - ``stream[17]`` is the step number 17; ``stream[-1]``, or ``stream.latest``, the newest, ``stream[-2]`` the one
      before;
    - ``stream[10:20]`` is a list of the kept steps with numbers 10 to 19, ``stream[-5:]`` of the newest five;
    - ``17 in stream`` says whether that step is kept, ``len(stream)`` how many are, and ``for step in stream`` goes
      over those that are kept when the loop begins (:meth:`follow` waits for more);
    - ``stream["T"]`` is the variable ``T`` over all kept steps: a :class:`Series`.

    An open stream is always true, also without steps. Handles do not survive ``fork()``: open the stream in the child
    (``multiprocessing`` with "spawn" or "forkserver" pickles it by address). A pickle names the stream's uuid too: if
    the stream was removed and made anew since, loading it fails.
    """

    mode: Mode = "r"

    def __init__(
        self,
        address: Address,
        reader_options: dict[str, Any],
        server: _core.ServerPlace,
        instance: str | None,
        native: _core.Reader | None,
    ) -> None:
        self._address = address
        self._options = reader_options
        self._server = server  # Also of what is opened through this handle later.
        self._instance = instance  # For pickles; None: the one that the environment names.
        self._reader = native
        self._uuid = "" if native is None else native.stream_uuid  # Of the stream that self._reader reads.
        self._followers: WeakValueDictionary[int, Follower] = WeakValueDictionary()
        self._looked_at: set[str] = set()  # Variables whose faults were shown.
        self._closed = False

    @property
    def address(self) -> Address:
        """``RESERVATION/STREAM``."""
        return self._address

    @property
    def info(self) -> StreamInfo:
        """State now.

        Status, watermarks (``committed``, ``durable``, ``staged``), retention, consumers with their lag.
        """
        return StreamInfo.from_native(self._random_access().info())

    @property
    def first_step(self) -> int:
        """The first step that this handle takes: where the run or the writer begins for which it was opened, else 0."""
        return int(self._options.get("first_step", 0))

    def steps(self) -> Steps:
        """The kept steps in order: number, epoch, time, size, watermarks. A snapshot: ask again for newer ones."""
        return Steps(self._random_access().steps())

    def steps_at(self, numbers: Iterable[SupportsIndex] | None = None) -> StepsMetadata:
        """What many steps say of themselves, in one go: variables, shapes, blocks, attributes and single values.

        Much cheaper than opening step after step, and nothing stays pinned.

        Parameters
        ----------
        numbers : iterable of int, optional
            The steps, by number; not given: all kept ones. Those that are not kept (any more) are left out.

        Raises
        ------
        CorruptError
            A step's metadata does not match its checksum.
        """
        reader = self._random_access()
        if numbers is None:
            wanted = Steps(reader.steps()).numbers
        else:
            wanted = [options.integer("a step's number", number) for number in numbers]
            if any(number < 0 for number in wanted):
                raise InvalidArgumentError("steps are numbered from 0", f"stream {self._address}")
        return StepsMetadata(GatheredSteps(*reader.metadata(wanted)))

    @overload
    def __getitem__(self, item: SupportsIndex) -> Step: ...
    @overload
    def __getitem__(self, item: slice) -> list[Step]: ...
    @overload
    def __getitem__(self, item: str) -> Series: ...
    def __getitem__(self, item: SupportsIndex | slice | str) -> Step | list[Step] | Series:
        """A step by its number, kept steps by a slice of numbers, or a variable over the kept steps by its name.

        Negative numbers count back from the newest kept step.

        Raises
        ------
        StepNotFoundError
            There is no step of this number yet, or fewer are kept than a negative number counts back.
        StepGoneError
            The step was dropped or withdrawn.
        VariableNotFoundError, InvalidArgumentError
            For a name: a kept step, which the text names, does not have the variable, or has it with another shape or
            type.
        """
        if isinstance(item, str):
            found = self.steps_at()
            return series_of(self, self._uuid, found, item)
        if isinstance(item, slice):
            reader = self._random_access()
            numbers = numbers_in_slice(Steps(reader.steps()).numbers, item)
            return self._steps_of(numbers)
        if isinstance(item, (bool, np.bool_)) or not hasattr(item, "__index__"):
            raise ArgumentTypeError(
                f"a stream takes a step's number, a slice of numbers or the name of a variable, not {item!r}",
                f"stream {self._address}",
            )
        number = operator.index(item)
        return self._step(number) if number >= 0 else self._from_newest(number)

    def __contains__(self, item: object) -> bool:
        """Whether a step of this number, this very step, or a variable of this name in the newest step, is kept."""
        if isinstance(item, str):
            return item in self.variables
        if isinstance(item, Step):
            summaries = self._random_access().steps()
            return item.identity[1] == self._uuid and any(
                fields[:2] == (item.number, item.epoch) for fields in summaries
            )
        if isinstance(item, (bool, np.bool_)) or not hasattr(item, "__index__"):
            return False
        return operator.index(item) in Steps(self._random_access().steps()).numbers

    def __iter__(self) -> Iterator[Step]:
        """The steps that are kept now, oldest first; those that commit later do not come: see :meth:`follow`.

        The next ones are asked for ahead, up to 32 steps, 64 MiB and an eighth of what is kept, and pinned until
        the loop has come to them.

        Raises
        ------
        StepGoneError
            A step was dropped before the loop came to it; the text says what keeps it.
        """
        summaries = self._random_access().steps()
        numbers, epochs, times_ns, sizes_bytes = (
            np.array([fields[column] for fields in summaries], np.int64) for column in (0, 1, 3, 4)
        )
        return StepsInOrder(StepTable(self, self._uuid, numbers, epochs, times_ns), sizes_bytes)

    def __len__(self) -> int:
        """How many steps are kept now."""
        reader = self._random_access()
        if not self._options.keys().isdisjoint(("run", "first_step", "ranks")):
            return len(reader.steps())
        kept: int = reader.info()["steps"]
        return kept

    def __bool__(self) -> bool:
        return True

    @property
    def latest(self) -> Step:
        """The newest step; StepNotFoundError while there is none."""
        return self._from_newest(-1)

    @property
    def variables(self) -> list[str]:
        """Names of the newest step's variables, in order of definition; none while there is no step."""
        try:
            with self.latest as newest:
                return newest.variables
        except StepNotFoundError:
            return []

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """Attributes as of the newest step, read-only; none while there is no step. Those of a variable have its name
        in front: :attr:`Variable.attributes`.
        """
        try:
            with self.latest as newest:
                return newest.attributes
        except StepNotFoundError:
            return ReadOnlyDict({})

    @options.known_options
    def hold(self, oldest: SupportsIndex | None = None, newest: SupportsIndex | None = None) -> Hold:
        """Keeps a range of steps while they are worked on, whatever retention says: ``with stream.hold(10, 20):``.

        The steps are pinned, for all handles and processes that read them, until the end of ``with``. A hold is
        bounded: it never stops the writer, because readers without a name together pin at most a quarter of the
        reservation.

        Parameters
        ----------
        oldest, newest : int, optional
            Numbers of the first and the last step, both included; negative ones count back from the newest. Not given:
            the oldest and the newest kept step. Steps between them that were dropped before are left out
            (:attr:`Hold.numbers`).

        Returns
        -------
        Hold
            Iterates over the held steps.

        Raises
        ------
        StepGoneError
            A named step was dropped; the text says which retention keeps steps.
        StepNotFoundError
            There is no such step yet.
        NoSpaceError
            The steps are more than readers may hold; none of them is held then.
        """
        return hold_steps(self, oldest, newest)

    def lag(self, consumer: str) -> int:
        """How many committed steps this consumer has not passed; NotFoundError if the stream does not know it."""
        info = self.info
        for known in info.consumers:
            if known.name == consumer:
                return known.lag_steps
        names = ", ".join(known.name for known in info.consumers) or "none"
        raise NotFoundError(f"there is no consumer {consumer!r}; known are: {names}", f"stream {self._address}")

    @options.known_options
    def follow(
        self,
        consumer: str = "",
        *,
        timeout: float | None = None,
        start: StartText | int = "cursor",
        min_watermark: Watermark = "committed",
        latest_only: bool = False,
        ack: Acknowledge = "auto",
        on_notice: Callable[[Notice], object] | None = None,
        distribution: Distribution = "stream_default",
    ) -> Follower:
        """Iterates over the steps as they commit, from the past into the future; ends when the stream has ended.

        Parameters
        ----------
        consumer : str
            Name under which the position is kept durably: a process that comes back after a crash continues there.
            One holder at a time. Without a name nothing is kept and nobody waits for this reader.
        timeout : float, optional
            Seconds that one wait for the next step may take (then StepTimeoutError); None: for ever.
        start : {"cursor", "oldest", "latest", "next"} or int
            Where to begin: at the consumer's cursor (else the oldest kept step), the oldest kept step (a cursor goes
            before it), the newest committed step, with steps to come only, or at a step number.
        min_watermark : {"committed", "durable"}
            Give steps when they are visible, or when they survive power loss.
        latest_only : bool
            Each wait gives the newest step; ``step.skipped`` counts those that lie between.
        ack : {"auto", "manual"}
            With a consumer name. Auto: a step is acknowledged when the loop asks for the next one, so a step whose body
            failed or was left by ``break`` is given again later. Manual: by ``step.ack()``.
        on_notice : callable, optional
            Called with a :class:`Notice` when the stream is interrupted or live again, and when a step waits for a
            server that is away or is passed over for that.
        distribution : {"stream_default", "all_to_all", "round_robin", "on_demand"}
            How steps are shared among several readers.

        Raises
        ------
        BusyError
            The consumer has a holder; the text names its process.
        ArgumentTypeError
            An option has the wrong type, or there is none of that name.
        """
        if ack not in ("auto", "manual"):
            raise InvalidArgumentError(f'ack is "auto" or "manual", not {ack!r}')
        if on_notice is not None and not callable(on_notice):
            raise ArgumentTypeError(f"on_notice is a function that takes a Notice, not {on_notice!r}")
        if not isinstance(start, str):
            start = options.integer('start, where it is not "cursor", "oldest", "latest" or "next",', start)
        timeout_ms = options.milliseconds(timeout)
        self._check_open()
        native = _core.Reader.open(
            self._address.path,
            server=self._server,
            **self._options
            | {
                "consumer": options.text("consumer", consumer, "a name"),
                "start": str(start),
                "min_watermark": options.text("min_watermark", min_watermark),
                "latest_only": options.flag("latest_only", latest_only),
                "distribution": options.text("distribution", distribution),
                "follow": True,
            },
        )
        follower = Follower(
            self, native, consumer=consumer, timeout_ms=timeout_ms, acknowledge=ack, on_notice=on_notice
        )
        self._followers[id(follower)] = follower
        return follower

    def seek(self, step: int, *, consumer: str = "") -> None:
        """Makes a follower continue at number ``step`` (or the first kept one after it); a consumer's cursor moves with
        it.

        Parameters
        ----------
        consumer : str
            Whose position. With a running ``follow`` of that name on this handle, that one is moved; else the durable
            cursor is, for which nobody else may hold it.

        Raises
        ------
        InvalidArgumentError
            Without a consumer name, and no nameless ``follow`` runs on this handle; or ``step`` lies beyond the one
            that comes next.
        """
        step = options.integer("a step's number", step)
        if "ranks" in self._options:
            raise UnsupportedError(
                "a rank of a reader group cannot seek, which would move the others; follow with start=",
                f"stream {self._address}",
            )
        followers = [known for known in self._followers.values() if known.consumer == consumer and not known.closed]
        for follower in followers:
            follower.seek(step)
        if followers:
            return
        if not consumer:
            raise InvalidArgumentError("nothing follows through this handle: name the consumer whose cursor is to move")
        with self.follow(consumer, ack="manual") as follower:
            follower.seek(step)

    def close(self) -> None:
        """Closes the handle and what follows through it. Steps and views stay usable. Idempotent."""
        self._closed = True
        for follower in list(self._followers.values()):
            follower.close()
        if self._reader is not None:
            self._reader.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        state = self._state()
        shown = f": {state}" if isinstance(state, ForebayError) else f": {stream_summary(state)}"
        return f"<{type(self).__name__} {self._address}, mode {self.mode!r}{closed}{shown}>"

    def _repr_html_(self) -> str:
        """For notebooks: state, steps, and the newest step's variables."""
        state = self._state()
        if isinstance(state, ForebayError):
            return stream_html(self._address, self.mode, state, None)
        try:
            newest = None if self._closed or not state.steps else self.latest
        except ForebayError:
            newest = None
        return stream_html(self._address, self.mode, state, newest)

    def _state(self) -> StreamInfo | ForebayError:
        """The stream's state, asked for by one attempt: to show a handle waits neither for a server nor for a lock."""
        try:
            admin = _core.Admin.connect(self._server, 0)
            try:
                info = StreamInfo.from_native(admin.stream(self._address.path))
            finally:
                admin.close()
        except ForebayError as error:
            return error
        if self._uuid and info.uuid != self._uuid:
            return StreamNotFoundError("it was removed and created again: open it again for the new one")
        return info

    def __reduce__(self) -> tuple[Any, ...]:
        from forebay.reopening import stream_of_pickle  # the two refer to each other

        return stream_of_pickle, self._origin(self._uuid)

    def _origin(self, uuid: str) -> tuple[Any, ...]:
        """What a pickle names this stream by; ``uuid``: of the reader that gave what is pickled."""
        # Another process is no rank of this one's group.
        options = {name: value for name, value in self._options.items() if name not in _GROUP_OPTIONS}
        return self._address.path, options, self._instance, uuid

    def _step(self, number: int, epoch: int = 0) -> Step:
        """The kept one; with an epoch also the one of that epoch that was withdrawn, if somebody holds it still."""
        try:
            return Step(self._random_access().step(number, epoch), self, self._uuid)
        except NotFoundError as error:
            raise StepNotFoundError(error.what, error.where) from None

    def _steps_of(self, numbers: list[int]) -> list[Step]:
        """Those of these steps that are kept."""
        reader = self._random_access()
        return [Step(native, self, self._uuid) for native in reader.steps_of(numbers)]

    def _from_newest(self, back: int) -> Step:
        """The step that is ``-back`` steps before the end of the kept ones."""
        # A step may be dropped between the list and the question for it: the next list is newer.
        for attempt in range(_ATTEMPTS):
            kept = Steps(self._random_access().steps()).numbers
            try:
                return self._step(number_from_newest(kept, back, f"stream {self._address}"))
            except StepGoneError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _random_access(self) -> _core.Reader:
        self._check_open()
        if self._reader is None:
            self._reader = _core.Reader.open(self._address.path, server=self._server, **self._options)
            self._uuid = self._reader.stream_uuid
        return self._reader

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"stream {self._address} is closed")
