# SPDX-License-Identifier: Apache-2.0
"""What a reservation, a stream or a consumer may be called: the rule of `is_valid_name` in forebay/address.h."""

from __future__ import annotations

import re

from forebay.errors import InvalidArgumentError

__all__ = ["NAME_PATTERN", "check_name", "is_valid_name"]

#: For use inside of other expressions.
NAME_PATTERN = "[A-Za-z][A-Za-z0-9_.-]{0,63}"

_NAME = re.compile(NAME_PATTERN)
_SHOWN_CHARACTERS = 64


def is_valid_name(name: str) -> bool:
    """Something may be called so."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """InvalidArgumentError unless something may be called so."""
    if not is_valid_name(name):
        shown = f"{name[:_SHOWN_CHARACTERS]}{'...' if len(name) > _SHOWN_CHARACTERS else ''}"
        raise InvalidArgumentError(
            f"not a valid name: \"{shown}\"; names begin with a letter and have up to 64 letters, digits, '_', '.', '-'"
        )
