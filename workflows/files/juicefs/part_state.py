# SPDX-License-Identifier: Apache-2.0
"""What is remembered of one part on its server: a file that is replaced as a whole, under the lock on its folder.

It says who is *allowed* in: a node stands here before its permit is of use, and is marked before it is taken. So an
operation that was killed can be repeated, and daemons that are started again let nobody in who was fenced.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forebay.errors import CorruptError, NotFoundError, RefusedError
from forebay.workflows.files.driver_state import STATE_NAME
from forebay.workflows.files.juicefs.permit_proof import derived
from forebay.workflows.staging.publication import write_whole

__all__ = ["HOME_NUMBER", "HOME_PART", "Node", "PartState", "permit_in", "read_part", "write_part"]

_FORMAT = "forebay.files-part"
_VERSION = 1
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


def read_part(folder: Path, incarnation: int) -> PartState:
    """The state, which from now on belongs to this incarnation.

    Raises
    ------
    NotFoundError
        Nothing was prepared here.
    RefusedError
        A newer incarnation was here: whoever asks has been replaced.
    CorruptError
        It is no state.
    """
    state = _read(folder / STATE_NAME)
    if state.incarnation > incarnation:
        raise RefusedError("a newer manager has taken over; this operation does nothing", str(folder))
    if state.incarnation < incarnation:
        state.incarnation = incarnation
        write_part(folder, state)
    return state


def write_part(folder: Path, state: PartState) -> None:
    """Replaces it; durable, and root's alone."""
    document = {"format": _FORMAT, "version": _VERSION, **asdict(state)}
    write_whole(folder / STATE_NAME, json.dumps(document, indent=1) + "\n", mode=0o600)


def permit_in(state: Path, number: int) -> bytes | None:
    """The permit of a node, if it has one now."""
    known = _read(state)
    if number != HOME_NUMBER and not any(node.number == number and not node.fenced for node in known.nodes.values()):
        return None
    return known.secret("permit", number)


def _read(path: Path) -> PartState:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if (fields.pop("format"), fields.pop("version")) != (_FORMAT, _VERSION):
            raise ValueError("of another version")
        fields["nodes"] = {name: Node(**values) for name, values in fields["nodes"].items()}
        return PartState(**fields)
    except FileNotFoundError:
        raise NotFoundError("this part was not prepared", str(path)) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"this is no state of a part ({error})", str(path)) from None
