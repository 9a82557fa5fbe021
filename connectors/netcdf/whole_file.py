# SPDX-License-Identifier: Apache-2.0
"""Whether a file is netCDF, and whole.

The netCDF library reads zeros where a classic file (CDF-1, CDF-2, CDF-5) is cut off, without an error, so its header is
compared with its size. netCDF-4 files need no such look: HDF5 refuses them. The format: NUG, appendix B, "The NetCDF
Classic Format Specification".
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import BinaryIO

__all__ = ["NotNetcdfError", "check_whole"]

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_HDF5 = b"\x89HDF\r\n\x1a\n"


class NotNetcdfError(ValueError):
    """It is a file of another format."""


def check_whole(path: Path) -> None:
    """Looks at the first bytes, and at the whole header of a classic file.

    Raises
    ------
    NotNetcdfError
        It is no netCDF file.
    ValueError
        It is cut off; the text says where.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        magic = file.read(4)
        if magic[:3] == b"CDF" and magic[3:] in (b"\x01", b"\x02", b"\x05"):
            missing = _Header(file, magic[3]).whole_bytes() - size
            if missing > 0:
                raise ValueError(f"it is cut off: {missing} bytes that its header tells of are not there")
        elif not _has_superblock(file, size):
            raise NotNetcdfError("it is no netCDF file")


def _has_superblock(file: BinaryIO, size: int) -> bool:
    """An HDF5 file may begin at 0, 512, 1024, 2048 and so on."""
    place = 0
    while place < size:
        file.seek(place)
        if file.read(len(_HDF5)) == _HDF5:
            return True
        place = max(512, 2 * place)
    return False


class _Header:
    def __init__(self, file: BinaryIO, version: int) -> None:
        self._file = file
        self._count_bytes = 8 if version == 5 else 4
        self._offset_bytes = 4 if version == 1 else 8

    def whole_bytes(self) -> int:
        """Where the last element ends; of a file whose number of records is not told, where the fixed ones end."""
        records = self._count()
        if records == (1 << 8 * self._count_bytes) - 1:
            records = 0
        lengths = []
        for _ in range(self._list(_DIMENSIONS)):
            self._name()
            lengths.append(self._count())
        self._attributes()
        ends, of_records = [0], []
        for _ in range(self._list(_VARIABLES)):
            self._name()
            places = [self._count() for _ in range(self._count())]
            if any(place >= len(lengths) for place in places):
                raise ValueError("a variable has a dimension that is not there")
            self._attributes()
            element_bytes = self._type_bytes()
            self._count()  # its size, which the shape says as well
            begin = self._number(self._offset_bytes)
            # The dimension of the records has length 0 in the header.
            is_of_records = bool(places) and lengths[places[0]] == 0
            size = element_bytes * math.prod(lengths[place] for place in places[is_of_records:])
            if is_of_records:
                of_records.append((begin, size))
            else:
                ends.append(begin + size)
        # Each variable of a record begins at a multiple of 4, unless it is the only one.
        stride = sum(_padded(size) for _, size in of_records) if len(of_records) > 1 else sum(s for _, s in of_records)
        if records:
            ends += [begin + (records - 1) * stride + size for begin, size in of_records]
        return max(ends)

    def _attributes(self) -> None:
        for _ in range(self._list(_ATTRIBUTES)):
            self._name()
            element_bytes = self._type_bytes()
            self._skip(element_bytes * self._count())

    def _list(self, kind: int) -> int:
        tag, length = self._number(4), self._count()
        if tag != kind and (tag or length):
            raise ValueError("its header is damaged")
        return length

    def _name(self) -> None:
        self._skip(self._count())

    def _type_bytes(self) -> int:
        kind = self._number(4)
        if kind not in _TYPE_BYTES:
            raise ValueError(f"it has elements of an unknown type {kind}")
        return _TYPE_BYTES[kind]

    def _count(self) -> int:
        return self._number(self._count_bytes)

    def _skip(self, size: int) -> None:
        self._file.seek(_padded(size), os.SEEK_CUR)

    def _number(self, size: int) -> int:
        data = self._file.read(size)
        if len(data) < size:
            raise ValueError("its header is cut off")
        return int.from_bytes(data, "big")


def _padded(size: int) -> int:
    return -(-size // 4) * 4
