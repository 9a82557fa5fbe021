# SPDX-License-Identifier: Apache-2.0
"""What a derived stream says of where its steps come from, and where derivation goes on after a kill.

Each step carries the attributes below. The derived stream itself is the record of what has been done: it has a step for
each step of the source that was derived, under the same number, and no cursor has to agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import forebay
from forebay import Step, Stream
from forebay.errors import RefusedError, StepGoneError, StreamNotFoundError
from forebay.instance import InstanceLike

__all__ = ["Derived", "attributes_of_step", "found_derived"]

SOURCE = "derived_source"
SOURCE_UUID = "derived_source_uuid"
SOURCE_EPOCH = "derived_source_epoch"
OPERATIONS = "derived_operations"
VERSION = "derived_version"


@dataclass(frozen=True)
class Derived:
    """How far a derived stream is.

    Attributes
    ----------
    next_step : int
        The number after its last step; 0: it has none.
    source_epoch : int, optional
        Of the source's step that the last one was derived from; None: no step is kept, or there never was one.
    """

    next_step: int = 0
    source_epoch: int | None = None

    def still_valid(self, source: Stream) -> Derived:
        """These steps without those whose source was withdrawn since: the same, if none was."""
        if not self.next_step:
            return self
        info = source.info
        if self.source_epoch is None:
            end = 0 if info.committed is None else info.committed + 1
            return self if end >= self.next_step else Derived(end)
        later = (start.first_step for start in info.epochs if start.epoch > self.source_epoch)
        first = min(later, default=self.next_step)
        return self if first >= self.next_step else Derived(first, info.epoch_of(first - 1) if first else None)


def attributes_of_step(step: Step, operations: tuple[str, ...]) -> Mapping[str, Any]:
    """The attributes of the step that is derived from this one."""
    address, uuid, epoch = step.identity
    return {
        SOURCE: address.rpartition("@")[0],
        SOURCE_UUID: uuid,
        SOURCE_EPOCH: epoch,
        OPERATIONS: operations,
        VERSION: forebay.__version__,
    }


def found_derived(output: str, source: Stream, operations: tuple[str, ...], instance: InstanceLike | None) -> Derived:
    """What the derived stream has.

    Raises
    ------
    RefusedError
        Its steps come from something else: no source, another one, or other operations.
    """
    try:
        stream = forebay.open(output, instance=instance, timeout=0)
    except StreamNotFoundError:
        return Derived()
    with stream:
        info = stream.info
        if info.committed is None:
            return Derived()
        next_step = info.committed + 1
        last = _last_attributes(stream)
        if last is None:
            # Whatever was withdrawn before is gone already; what comes is of the source as it is now.
            return Derived(next_step)
        where = f"stream {stream.address}"
        if SOURCE_UUID not in last:
            raise RefusedError(
                "the stream has steps that were not derived: name another stream for the derived ones, or remove it "
                f"(forebay stream remove {stream.address.path})",
                where,
            )
        otherwise = f"; name another stream, or begin anew with --replace (steps 0 to {info.committed} go)"
        if last[SOURCE_UUID] != source.info.uuid:
            raise RefusedError(
                f"its steps were derived from another stream, {str(last.get(SOURCE))[:80]} as it was before it was "
                f"removed, or of another name{otherwise}",
                where,
            )
        before = last.get(OPERATIONS, ())
        if before != operations:
            raise RefusedError(f"its steps were derived by {'; '.join(before)[:120]}{otherwise}", where)
        return Derived(next_step, int(last[SOURCE_EPOCH]))


def _last_attributes(stream: Stream) -> Mapping[str, Any] | None:
    """Of its newest kept step; None: none is kept."""
    while numbers := stream.steps().numbers:
        try:
            with stream[numbers[-1]] as last:
                return dict(last.attributes)
        except StepGoneError:  # dropped meanwhile
            continue
    return None
