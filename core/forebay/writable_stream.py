# SPDX-License-Identifier: Apache-2.0
"""A stream open for writing, as one rank of its writer group."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any, SupportsIndex
from weakref import WeakSet

from numpy.typing import ArrayLike

from forebay import _core
from forebay.closing import ClosingOnSuccess
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError
from forebay.options import integer, known_options
from forebay.records import Address
from forebay.stream import Mode, Stream
from forebay.writing import AttributesBeingWritten, StepBeingWritten, note_failure

__all__ = ["WritableStream"]


class WritableStream(ClosingOnSuccess, Stream):
    """A stream open for writing, as one rank of its writer group. Writing belongs to one thread at a time.

    ``with`` closes it; leaving it by an exception does not, so that the stream says ``interrupted`` and not ``ended``,
    and names the exception.
    """

    def __init__(
        self,
        address: Address,
        mode: Mode,
        reader_options: dict[str, Any],
        server: _core.ServerPlace,
        instance: str | None,
        writer: _core.Writer,
    ) -> None:
        super().__init__(address, reader_options, server, instance, None)
        self.mode = mode
        self._writer = writer
        self._process = os.getpid()
        self._open_step: int | None = None  # The step that was begun and is not over.
        self._reported = False
        _open_streams.add(self)
        self._attributes = AttributesBeingWritten(writer)

    @known_options
    def step(self, number: SupportsIndex | None = None) -> StepBeingWritten:
        """Opens the next step; use it by ``with``. Waits for readers and for space as the options say.

        Parameters
        ----------
        number : int, optional
            The step's number, at least :attr:`next_step`; the numbers in between stay without a step. For streams that
            keep the numbers of another one. All ranks give the same.

        Raises
        ------
        InvalidArgumentError
            ``number`` is that of an earlier step.
        DeadlineExceededError
            With ``lag_limit``: a reader is too far behind; the text names its process.
        NoSpaceError
            The reservation is full; the text names who holds the space.
        GroupBrokenError
            Another rank was lost.
        FencedError
            A newer group writes this stream.
        """
        self._check_open()
        wanted = None if number is None else integer("a step's number", number)
        if wanted is not None and wanted < self.next_step:
            raise InvalidArgumentError(
                f"step {wanted} cannot follow: the next number is {self.next_step}; to write steps again, open the "
                "stream with append_after",
                f"stream {self._address}",
            )
        return StepBeingWritten(self, self._writer, wanted)

    @known_options
    def write(
        self,
        name: str,
        block: ArrayLike,
        *,
        shape: Sequence[int] | None = None,
        start: Sequence[int] | None = None,
        kind: ShapeKind | str | None = None,
        dims: Sequence[str] | None = None,
    ) -> int:
        """Writes a step of this one variable: :meth:`step` and :meth:`StepBeingWritten.write` in one.

        Returns
        -------
        int
            The step's number.
        """
        with self.step() as step:
            step.write(name, block, shape=shape, start=start, kind=kind, dims=dims)
        return step.number

    @property
    def attributes(self) -> AttributesBeingWritten:
        """Attributes of every step from the open (or next) one on."""
        return self._attributes

    @property
    def next_step(self) -> int:
        """Number of the open step, else of the next one."""
        return self._writer.current_step

    @property
    def incarnation(self) -> int:
        """Number of this writer group; it fences all older ones."""
        return self._writer.incarnation

    @property
    def epoch(self) -> int:
        """The stream's epoch that this group writes."""
        return self._writer.epoch

    @property
    def interruption(self) -> str:
        """Why the group that wrote the stream before this one was interrupted; empty if it was not."""
        return self._writer.interruption

    def close(self) -> None:
        """Ends this rank's writing; when all ranks have closed, the stream has ended. Idempotent."""
        if not self._closed:
            self._writer.close()
        super().close()

    def abandon(self) -> None:
        """Leaves without ending the stream: an open step is aborted, the stream becomes interrupted. Idempotent."""
        self._writer.abandon()
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            note_failure(self._writer, error)
        super().__exit__(kind, error, trace)

    def __del__(self) -> None:
        # Not where opening it failed.
        if not getattr(self, "_closed", True):
            _tell_not_closed(self)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a stream open for writing cannot be pickled: pickle its address, {str(self._address)!r}")


# That are not closed yet. Those that the interpreter does not let go of before it ends are told of at its end.
_open_streams: WeakSet[WritableStream] = WeakSet()


@atexit.register
def _tell_at_exit() -> None:
    for stream in list(_open_streams):
        if not stream._closed:
            _tell_not_closed(stream)


def _tell_not_closed(stream: WritableStream) -> None:
    """Once: the program forgot to close the stream. A forked child's copy is the parent's to close."""
    if stream._reported or stream._process != os.getpid():
        return
    stream._reported = True
    step = stream._open_step
    lost = "" if step is None else f"; its step {step} was begun, not ended, and is lost"
    what = f"stream {stream.address} was not closed{lost}: use it by `with`, or call close()"
    # Python shows a ResourceWarning only to those who ask for it, and this one must not pass unseen.
    print(f"Forebay: {what}", file=sys.stderr)
    warnings.warn(what, ResourceWarning, 2, source=stream)
