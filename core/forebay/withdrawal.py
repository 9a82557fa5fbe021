# SPDX-License-Identifier: Apache-2.0
"""Tells a step that a writer took back from one that retention dropped: whoever hands steps on meets both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.stream import Stream

__all__ = ["was_withdrawn"]


def was_withdrawn(stream: Stream, number: int, epoch: int) -> bool:
    """Whether a step that cannot be opened any more was withdrawn: by a restart of the writers, or a replacement.

    Another step takes its place, or the stream ends before it. A follower gives that one with ``rewound``, but perhaps
    much later: when the writers that came back commit their first step.
    """
    info = stream.info
    if info.epoch <= epoch or (info.oldest is not None and number < info.oldest):
        return False
    return not any((summary.number, summary.epoch) == (number, epoch) for summary in stream.steps())
