# SPDX-License-Identifier: Apache-2.0
"""Checks the options that callers give: the error for a misspelt name or a wrong type says what would be right."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, SupportsIndex, TypeVar

from forebay.errors import ArgumentTypeError, InvalidArgumentError

__all__ = ["flag", "integer", "known_options", "milliseconds", "text", "unknown_option"]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def unknown_option(function: str, name: str, known: Iterable[str]) -> ArgumentTypeError:
    """The error for an option that a function does not have; names the nearest that it has."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 5, 0.5)
    # Of those that are about as near, the one that begins alike.
    nearest = max(near, key=lambda other: [one == two for one, two in zip(name, other, strict=False)], default=None)
    advice = "" if nearest is None else f"did you mean {nearest!r}? "
    return ArgumentTypeError(f"{function}() has no option {name!r}; {advice}known are {', '.join(names)}")


def known_options(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Decorates a function so that it answers to an unknown keyword as :func:`unknown_option` says."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    known = frozenset(names)

    @functools.wraps(function)
    def checked(*arguments: Parameters.args, **options: Parameters.kwargs) -> Returned:
        if not options.keys() <= known:
            raise unknown_option(function.__name__, next(name for name in options if name not in known), names)
        return function(*arguments, **options)

    return checked


def milliseconds(seconds: float | None, name: str = "timeout") -> int:
    """A number of seconds as the native side takes it; None waits for ever (-1)."""
    if seconds is None:
        return -1
    if not _is_number(seconds):
        raise ArgumentTypeError(f"{name} is a number of seconds, or None to wait for ever, not {seconds!r}")
    if not 0 <= float(seconds) < 1e12:
        raise InvalidArgumentError(
            f"{name} is a number of seconds from 0 on, or None to wait for ever, not {seconds!r}"
        )
    return round(float(seconds) * 1000)


def _is_flag(value: object) -> bool:
    """NumPy's as well, of which there are none before NumPy is imported: this module does not need it."""
    # Absent as well while another thread is importing NumPy.
    kind = getattr(sys.modules.get("numpy"), "bool_", None)
    return isinstance(value, bool) or (kind is not None and isinstance(value, kind))


def _is_number(value: object) -> bool:
    return not _is_flag(value) and not isinstance(value, (str, bytes)) and hasattr(value, "__float__")


def integer(name: str, value: SupportsIndex) -> int:
    """A whole number."""
    if type(value) is int:  # as nearly always, and thousands of times in a step of many blocks
        return value
    if _is_flag(value):
        raise ArgumentTypeError(f"{name} is a whole number, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is a whole number, not {value!r}") from None


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not _is_flag(value):
        raise ArgumentTypeError(f"{name} is True or False, not {value!r}")
    return bool(value)


def text(name: str, value: Any, what: str = "a text") -> str:
    """A text; ``what`` says for the error which."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} is {what}, not {value!r}")
    return str(value)
