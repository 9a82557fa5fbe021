# SPDX-License-Identifier: Apache-2.0
"""Text of others as a person may see it: nothing in it moves the cursor, changes colours, or turns the order of what
stands beside it.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["visible", "visible_json"]

#: Control characters; marks that change the direction of text, which can make a name look like another; separators of
#: lines; halves of characters, which stand for bytes that are no UTF-8.
_HIDDEN = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_BYTES_FROM, _BYTES_TO = 0xDC80, 0xDCFF


def visible(text: str, *, keep: str = "") -> str:
    """`text` with each of these characters escaped as in a Python text: ``\\x1b``, ``\\u202e``. A backslash stays.

    Parameters
    ----------
    keep : str
        Characters that stay, such as the line feeds of a text of our own.
    """
    return _HIDDEN.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def visible_json(value: Any, *, indent: int | None = None) -> str:
    """A JSON document in which these characters are escaped, as JSON can: programs read what it was."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _HIDDEN.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def _escape(character: str) -> str:
    number = ord(character)
    if _BYTES_FROM <= number <= _BYTES_TO:
        return f"\\x{number - 0xDC00:02x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
