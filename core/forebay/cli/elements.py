# SPDX-License-Identifier: Apache-2.0
"""Elements of arrays and values of attributes: as short strings for tables, and as JSON values."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["cut", "element_text", "plain_value"]

_CHARACTERS_MAX = 60


def element_text(value: Any) -> str:
    """A number with six digits, or a text that is cut; None is nothing."""
    if value is None:
        return ""
    if isinstance(value, (str, bytes)):
        return cut(str(value))
    text = f"{value:.6g}"
    return "0" if text == "-0" else text  # the sign says nothing to a person


def cut(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _CHARACTERS_MAX else text[: _CHARACTERS_MAX - 1] + "…"


def plain_value(value: Any) -> Any:
    """As JSON has it: numbers that it does not know become texts."""
    if isinstance(value, np.ndarray):
        return [plain_value(item) for item in value] if value.ndim else plain_value(value[()])
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    if isinstance(value, np.longdouble):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, complex) or (isinstance(value, float) and not np.isfinite(value)):
        return str(value)
    return value
