# SPDX-License-Identifier: Apache-2.0
"""What rendering needs of a stream: the part of forebay's Python face that it touches, as protocols.

A test double fulfils them without a staging server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

__all__ = ["FollowedStep"]


class FollowedStep(Protocol):
    """One step that ``stream.follow(consumer=…, ack="manual")`` gave; see :class:`forebay.Step`."""

    @property
    def number(self) -> int: ...
    @property
    def rewound(self) -> bool: ...
    @property
    def attributes(self) -> Mapping[str, Any]: ...
    def __contains__(self, name: object) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str) -> Any: ...
    def ack(self) -> None: ...
