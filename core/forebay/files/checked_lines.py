# SPDX-License-Identifier: Apache-2.0
"""Lines of a log that say themselves whether they were written whole: the CRC-32C of the rest as eight hexadecimal
digits, a space, and JSON.
"""

from __future__ import annotations

import json
from typing import Any

import forebay

__all__ = ["checked_line", "document_of"]


def checked_line(document: dict[str, Any]) -> bytes:
    """The line of a JSON object, with its line feed."""
    text = json.dumps(document).encode()
    return f"{forebay.crc32c(text):08x} ".encode() + text + b"\n"


def document_of(line: bytes) -> Any:
    """What a line without its line feed holds; None if it was not written whole."""
    checksum, _, text = line.partition(b" ")
    if checksum != f"{forebay.crc32c(text):08x}".encode():
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
