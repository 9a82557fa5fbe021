# SPDX-License-Identifier: Apache-2.0
"""What a stage's process says, as it comes from outside: checked, field by field, before anything is done with it."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from forebay.errors import InvalidArgumentError

__all__ = ["checked_failure", "checked_progress", "checked_row", "parse_message"]

_PATH_CHARACTERS_MAX = 65536
_TEXT_CHARACTERS_MAX = 2000
_NUMBER_MAX = 2**63 - 1
_CHECKSUM = re.compile(r"[0-9a-f]{8}", re.ASCII)


def parse_message(line: bytes) -> dict[str, Any]:
    """One message.

    Raises
    ------
    InvalidArgumentError
        It is no JSON object, or has a number that JSON does not know.
    """
    try:
        message = json.loads(line, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise _refusal("it is no JSON object")
    return message


def checked_row(row: Any) -> dict[str, Any]:
    """The row of a file with the fields of the format alone.

    Raises
    ------
    InvalidArgumentError
        A field is missing, or of another kind.
    """
    if not isinstance(row, dict):
        raise _refusal("a row of the receipt is no object")
    path, checksum = row.get("path"), row.get("crc32c")
    if not isinstance(path, str) or len(path) > _PATH_CHARACTERS_MAX:
        raise _refusal("a row of the receipt has no path")
    if not isinstance(checksum, str) or _CHECKSUM.fullmatch(checksum) is None:
        raise _refusal("a row of the receipt has no checksum")
    checked = {"path": path, "size_bytes": _number(row, "size_bytes", 0)}
    for name, least in (("mtime_ns", -_NUMBER_MAX), ("step", 0), ("epoch", 0)):
        if name in row:
            checked[name] = _number(row, name, least)
    return checked | {"crc32c": checksum}


def checked_progress(event: dict[str, Any]) -> dict[str, Any]:
    """How far the stage says that it has come."""
    item = event.get("item")
    return {
        "items_done": _number(event, "items_done", 0),
        "items_total": None if event.get("items_total") is None else _number(event, "items_total", 0),
        "items_kept": _number(event, "items_kept", 0),
        "bytes_done": _number(event, "bytes_done", -_NUMBER_MAX),
        "bytes_total": None if event.get("bytes_total") is None else _number(event, "bytes_total", 0),
        "item": item[:_TEXT_CHARACTERS_MAX] if isinstance(item, str) else "",
        "stream_ended": event.get("stream_ended") is True,
    }


def checked_failure(failure: Any) -> dict[str, Any]:
    """Why the stage says that it failed."""
    if not isinstance(failure, dict):
        raise _refusal("its failure is no object")
    texts = {}
    for name in ("code", "what", "where"):
        text = failure.get(name)
        if not isinstance(text, str):
            raise _refusal(f"its failure has no {name}")
        texts[name] = text[:_TEXT_CHARACTERS_MAX]
    return {
        **texts,
        "may_pass": failure.get("may_pass") is True,
        "stream_broken": failure.get("stream_broken") is True,
    }


def _number(fields: dict[str, Any], name: str, least: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= _NUMBER_MAX:
        raise _refusal(f"{name} is no number")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _no_number(text)
    return number


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _refusal(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the stage's process said what no Forebay says, and was ended: {reason}")
