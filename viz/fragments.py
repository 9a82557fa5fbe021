# SPDX-License-Identifier: Apache-2.0
"""Fragmented MP4 as far as a growing movie needs it: its boxes, and the two numbers in a fragment that order it.

ISO/IEC 14496-12: a file is a sequence of boxes (size, type, content); ``ftyp`` and ``moov`` say what it is, then each
``moof`` with its ``mdat`` is a fragment, here of one frame. A box inside another is addressed by a path of types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["Box", "FormatError", "Fragment", "fragment_number", "read_box", "renumber", "timescale", "walk_file"]

_HEADER_BYTES = 8


class FormatError(ValueError):
    """The bytes are not the MP4 that is expected here."""


@dataclass(frozen=True)
class Box:
    """A whole box, header included."""

    type: bytes
    data: bytes


@dataclass(frozen=True)
class Fragment:
    """Where a fragment lies in a file, and its number and decode time."""

    begin: int
    end: int
    number: int
    decode_time: int


def read_box(file: BinaryIO) -> Box | None:
    """The next whole box; None at the end, also where the end cuts a box short."""
    header = _read_fully(file, _HEADER_BYTES)
    if header is None:
        return None
    size = int.from_bytes(header[:4], "big")
    if size < _HEADER_BYTES:
        raise FormatError(f"a box of {size} bytes")  # 0 and 1 are legal MP4, but not what the encoder here writes
    content = _read_fully(file, size - _HEADER_BYTES)
    return None if content is None else Box(header[4:], header + content)


def _read_fully(file: BinaryIO, size: int) -> bytes | None:
    parts = []
    while size > 0:
        part = file.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def walk_file(file: BinaryIO) -> tuple[bytes, list[Fragment], int]:
    """The beginning (``ftyp`` and ``moov``), the whole fragments, and where the last of them ends."""
    beginning = b""
    fragments: list[Fragment] = []
    end = 0
    moof: Box | None = None
    while (box := read_box(file)) is not None:
        if box.type in (b"ftyp", b"moov") and not fragments and moof is None:
            beginning += box.data
            end += len(box.data)
        elif box.type == b"moof" and moof is None:
            moof = box
        elif box.type == b"mdat" and moof is not None:
            size = len(moof.data) + len(box.data)
            fragments.append(Fragment(end, end + size, fragment_number(moof), _decode_time(moof)))
            end += size
            moof = None
        else:
            break  # an index that another program appended; what follows is not ours
    return beginning, fragments, end


def fragment_number(moof: Box) -> int:
    """``sequence_number`` of the fragment."""
    at = _find(moof.data, [b"mfhd"])
    return int.from_bytes(moof.data[at + 4 : at + 8], "big")


def _decode_time(moof: Box) -> int:
    at, size = _decode_time_field(moof.data)
    return int.from_bytes(moof.data[at : at + size], "big")


def renumber(moof: Box, number: int, decode_time: int) -> Box:
    """The same fragment with another ``sequence_number`` and decode time."""
    data = bytearray(moof.data)
    at = _find(moof.data, [b"mfhd"]) + 4
    data[at : at + 4] = number.to_bytes(4, "big")
    at, size = _decode_time_field(moof.data)
    data[at : at + size] = decode_time.to_bytes(size, "big")
    return Box(moof.type, bytes(data))


def timescale(beginning: bytes) -> int:
    """Ticks per second of the only track."""
    for begin, end, kind in _children(beginning, 0, len(beginning)):
        if kind == b"moov":
            moov = beginning[begin - _HEADER_BYTES : end]
            at = _find(moov, [b"trak", b"mdia", b"mdhd"])
            at += 20 if moov[at] == 1 else 12  # version 1 has 64-bit times before it
            return int.from_bytes(moov[at : at + 4], "big")
    raise FormatError("no moov box")


def _decode_time_field(moof: bytes) -> tuple[int, int]:
    at = _find(moof, [b"traf", b"tfdt"])
    return at + 4, 8 if moof[at] == 1 else 4


def _find(data: bytes, path: Sequence[bytes]) -> int:
    """Offset of the content of a box inside the box ``data``."""
    begin, end = _HEADER_BYTES, len(data)
    for wanted in path:
        for child_begin, child_end, kind in _children(data, begin, end):
            if kind == wanted:
                begin, end = child_begin, child_end
                break
        else:
            raise FormatError(f"no {wanted.decode()} box where one is expected")
    return begin


def _children(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """Begin and end of the content, and type, of each box in a range."""
    while begin + _HEADER_BYTES <= end:
        size = int.from_bytes(data[begin : begin + 4], "big")
        if size < _HEADER_BYTES or begin + size > end:
            raise FormatError(f"a box of {size} bytes in {end - begin}")
        yield begin + _HEADER_BYTES, begin + size, data[begin + 4 : begin + 8]
        begin += size
