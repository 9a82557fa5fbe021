# SPDX-License-Identifier: Apache-2.0
"""CRC-32C, as every block carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

__all__ = ["crc32c"]


def crc32c(data: Buffer | NDArray[Any], previous: int = 0) -> int:
    """CRC-32C (Castagnoli) of the bytes of ``data``.

    Parameters
    ----------
    data : buffer
        Anything with C-contiguous memory: bytes, memoryview, ndarray. Of an array its elements in C order:
        ``crc32c(variable.block(i)) == variable.blocks[i].checksum``.
    previous : int
        The result of an earlier call, to continue it with more bytes.
    """
    return _core.crc32c(data, previous)
