# SPDX-License-Identifier: Apache-2.0
"""What is remembered of one part on its server: a file that is replaced as a whole, under the lock on its folder.

It says who is *allowed* in: a node stands here before its permit is of use, and is marked before it is taken. So an
operation that was killed can be repeated, and daemons that are started again let nobody in who was fenced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.workflows.files.juicefs.permit_proof import derived
from forebay.workflows.files.state_file import StateFile

__all__ = ["HOME_NUMBER", "HOME_PART", "PART_STATE", "Node", "PartState", "permit_in"]

#: The part on the home.
HOME_PART = 0
#: The number of the home itself, for what it does with juicefs: format, gc. Nodes' numbers begin after it.
HOME_NUMBER = 1


@dataclass(frozen=True, slots=True)
class Node:
    """One node's way in."""

    number: int  #: never used again, and also the number of its session in juicefs
    fenced: bool = False  #: its way in is being taken away, or is


@dataclass(slots=True)
class PartState:
    """Of one part of a reservation."""

    reservation: str  #: its uuid
    incarnation: int  #: the highest that an operation came with
    part: int  #: 0: the home
    parts_count: int
    tree: str
    file_system: str  #: UUID of the tree's file system
    address: str
    port: int
    key: str  #: hexadecimal; all secrets are made from it
    capacity_bytes: int  #: of the whole tree
    parts: list[dict[str, Any]] = field(default_factory=list)  #: address and port of each part's gate, at the home
    formatted: bool = False  #: Redis has what `format` writes
    numbers_made: int = HOME_NUMBER
    nodes: dict[str, Node] = field(default_factory=dict)
    daemons: dict[str, str] = field(default_factory=dict)  #: identity of each process, by its name

    def secret(self, use: str, number: int = 0) -> bytes:
        """Made from the key, for this use alone."""
        return derived(bytes.fromhex(self.key), use, number)

    def password(self, use: str, number: int = 0) -> str:
        """As `secret`, for what takes a text: 128 bits of it."""
        return self.secret(use, number).hex()[:32]


def _from_fields(fields: dict[str, Any]) -> PartState:
    fields["nodes"] = {name: Node(**values) for name, values in fields["nodes"].items()}
    return PartState(**fields)


#: Of a part.
PART_STATE = StateFile("forebay.files-part", _from_fields, "a part", "this part was not prepared")


def permit_in(state: Path, number: int) -> bytes | None:
    """The permit of a node, if it has one now."""
    known = PART_STATE.peek(state)
    if number != HOME_NUMBER and not any(node.number == number and not node.fenced for node in known.nodes.values()):
        return None
    return known.secret("permit", number)
