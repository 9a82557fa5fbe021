# SPDX-License-Identifier: Apache-2.0
"""A list of steps of one stream, each known by the stream's uuid, its epoch and its number, also in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from forebay.errors import ForebayError, StepGoneError, StepNotFoundError
from forebay.step import Step

if TYPE_CHECKING:
    from forebay.stream import Stream

__all__ = ["StepTable", "retention_advice"]

Array = NDArray[Any]


def retention_advice(stream: Stream) -> str:
    """What keeps steps of a stream while they are read; for the error that one is gone."""
    try:
        retention = f"{str(stream.info.retention)!r}"
    except (ForebayError, ValueError):
        retention = "not known now"
    return (
        f"the stream's retention is {retention}: to keep steps while they are read, set one that waits for a consumer "
        "(consumers:NAME) or keeps more of them (last:N), or hold them (stream.hold); then open the stream again"
    )


class StepTable:
    """Chosen steps of a stream. Pickles by identity; the other process opens the stream for itself.

    Parameters
    ----------
    stream : Stream
        Where steps are taken from.
    uuid : str
        Of the stream.
    numbers, epochs, times_ns : array of int64
        Number, epoch and commit time (nanoseconds since the Unix epoch) of each step.
    owns_stream : bool
        Whether :meth:`close` closes the stream. What was unpickled shares its stream with others and leaves it open.
    """

    def __init__(
        self, stream: Stream, uuid: str, numbers: Array, epochs: Array, times_ns: Array, owns_stream: bool = False
    ) -> None:
        self.stream = stream
        self.uuid = uuid
        self.numbers = numbers
        self.epochs = epochs
        self.times_ns = times_ns
        self._owns_stream = owns_stream

    def __len__(self) -> int:
        return len(self.numbers)

    def step(self, index: int) -> Step:
        """The step at a place in the table.

        Raises
        ------
        StepGoneError
            It was dropped, withdrawn or replaced since the table was made.
        """
        number, epoch = int(self.numbers[index]), int(self.epochs[index])
        try:
            step = self.stream[number]
        except (StepGoneError, StepNotFoundError) as error:
            raise StepGoneError(
                f"{error.what}; {retention_advice(self.stream)}", f"{self.stream.address}@{number}"
            ) from None
        if step.epoch != epoch:
            raise StepGoneError(
                f"the step of epoch {epoch} was withdrawn or replaced; the stream now has one of epoch {step.epoch}: "
                "open the stream again",
                str(step.address),
            )
        return step

    def close(self) -> None:
        """Closes the stream if it was opened for this table. Arrays that were read stay."""
        if self._owns_stream:
            self.stream.close()

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("forebay", self.uuid, self.numbers.tobytes(), self.epochs.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        # The stream's own pickle names its uuid, and refuses another stream of the name.
        return StepTable, (self.stream, self.uuid, self.numbers, self.epochs, self.times_ns)
