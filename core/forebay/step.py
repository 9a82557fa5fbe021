# SPDX-License-Identifier: Apache-2.0
"""One committed step as a reader holds it: variables by name, attributes, acknowledgement, release."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, KeysView, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.closing import Closing
from forebay.datatypes import AttributeValue, attribute_from_native
from forebay.errors import ArgumentTypeError, InvalidArgumentError, VariableNotFoundError
from forebay.notebook import names_shown, step_html, time_shown
from forebay.read_only_dict import ReadOnlyDict
from forebay.records import Address, StepSummary
from forebay.sizes import format_size
from forebay.variable import Variable

if TYPE_CHECKING:
    from forebay.follower import Follower
    from forebay.stream import Stream

__all__ = ["Step", "VariableNames"]


class VariableNames(KeysView[str]):
    """What ``step.keys()`` gives: the names, also when it is printed."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"


class Step(Mapping[str, Variable], Closing):
    """One committed step: a mapping of variable names to :class:`Variable`. Usable and released from any thread.

    Holding it (or a view of its data) pins it: its space is not reused. Unnamed readers' pins are bounded; beyond that
    bound ``pinned`` is False and reads are copies, checked afterwards. ``with step:`` releases it at the end. Pickles
    by address (``RES/STREAM@NUMBER``, epoch, and the stream's uuid): the other process opens it again, or gets
    StepGoneError. While one process holds it, others can open it, also if it was withdrawn meanwhile. Two handles of
    the same step are equal.

    Attributes
    ----------
    number, epoch : int
        Its number, and the stream's epoch; a rewind or a replacement begins a new epoch.
    time : float
        When it committed, seconds since the Unix epoch.
    size_bytes : int
        Data and metadata on SSD.
    rewound : bool
        Steps were withdrawn, or the stream replaced, since the step before this one: numbers may repeat.
    skipped : int
        How many steps were dropped before this reader got to them, or passed over by ``latest_only``.
    """

    __slots__ = ("__weakref__", "_core", "_follower", "_stream", "_uuid", "epoch", "number", "rewound", "skipped")

    def __init__(
        self,
        native: _core.Step,
        stream: Stream,
        uuid: str,
        follower: Follower | None = None,
        rewound: bool = False,
        skipped: int = 0,
    ) -> None:
        self._core: _core.Step | None = native
        self._stream = stream
        self._uuid = uuid  # of the stream that the step belongs to
        # The weak reference that the follower keeps of itself: following must not cost one per step.
        self._follower: weakref.ReferenceType[Follower] | None = None if follower is None else follower._reference
        self.number = native.number
        self.epoch = native.epoch
        self.rewound = rewound
        self.skipped = skipped

    @property
    def address(self) -> Address:
        """``RES/STREAM@NUMBER``."""
        address = self._stream.address
        return Address(address.reservation, address.stream, self.number)

    @property
    def identity(self) -> tuple[str, str, int]:
        """Address, the stream's uuid, and epoch: by these a step is the same one, also in another process.

        A key for dicts and caches. A stream that is removed and made anew has another uuid; one that is rewound or
        replaced has another epoch.
        """
        return str(self.address), self._uuid, self.epoch

    @property
    def summary(self) -> StepSummary:
        """Commit time, size and watermarks as they were when the step was handed out."""
        return StepSummary(*self._native().summary())

    @property
    def time(self) -> float:
        """When it committed, seconds since the Unix epoch."""
        return self._native().time_ns / 1e9

    @property
    def time_ns(self) -> int:
        """When it committed, nanoseconds since the Unix epoch."""
        return self._native().time_ns

    @property
    def size_bytes(self) -> int:
        """Data and metadata on SSD."""
        return self._native().size_bytes

    @property
    def pinned(self) -> bool:
        """False where reads are copies that are checked afterwards for the step still being there."""
        return self._native().pinned

    @property
    def variables(self) -> list[str]:
        """Names of the variables, in order of definition."""
        return self._native().names()

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """Attributes as of this step: str, tuple of str, NumPy scalar, or read-only one-dimensional array."""
        return ReadOnlyDict(
            {
                name: attribute_from_native(code, is_array, data, texts)
                for name, code, is_array, data, texts in self._native().attributes()
            }
        )

    def __getitem__(self, name: str) -> Variable:
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"a step takes the name of a variable, not {name!r}; it has {names_shown(self.variables)}",
                str(self.address),
            )
        found = self._native().find(name)
        if found is None:
            raise VariableNotFoundError(
                f"there is no variable {name!r}; the step has {names_shown(self.variables)}", str(self.address)
            )
        return Variable(self, *found)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._native().find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._native().names())

    def __len__(self) -> int:
        return len(self._native().names())

    def keys(self) -> VariableNames:
        """The names of the variables, in order of definition."""
        return VariableNames(self)

    # A mapping would compare by its items and be unhashable; a step is a handle.
    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if isinstance(other, Step) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity)

    def ack(self) -> None:
        """Moves the consumer's cursor behind this step: it will not be asked for again, and retention may drop it.

        Raises
        ------
        InvalidArgumentError
            The step does not come from ``follow(consumer=…)``.
        """
        follower = self._follower() if self._follower is not None else None
        if follower is None:
            raise InvalidArgumentError(
                "only a step that a running follow(consumer=NAME) gave can be acknowledged", str(self.address)
            )
        follower.ack(self)

    def verify(self) -> None:
        """Checks the CRC-32C of every block of every variable.

        Raises
        ------
        CorruptError
            Names variable, block and place.
        UnsupportedError
            A block was written without a checksum.
        """
        self._native().verify(None)

    def release(self) -> None:
        """Gives the step up before it is garbage; views that are alive keep their pin. Idempotent."""
        self._core = None

    close = release  # what Closing calls

    def __repr__(self) -> str:
        if self._core is None:
            return f"<Step {self.address}, epoch {self.epoch}, released>"
        return (
            f"<Step {self.address}, epoch {self.epoch}, committed {time_shown(self.time)}, "
            f"{format_size(self.size_bytes)}{'' if self.pinned else ', not pinned'}: {names_shown(self.variables)}>"
        )

    def _repr_html_(self) -> str:
        """For notebooks: variables with type, shape, blocks and extremes, and the attributes."""
        return escape(repr(self)) if self._core is None else step_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        from forebay.reopening import step_of_pickle  # the two refer to each other

        return step_of_pickle, (*self._stream._origin(self._uuid), self.number, self.epoch)

    def _native(self) -> _core.Step:
        if self._core is None:
            raise ValueError(f"step {self.address} was released")
        return self._core
