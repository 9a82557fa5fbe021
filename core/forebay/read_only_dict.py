# SPDX-License-Identifier: Apache-2.0
"""A dictionary that nobody changes: what a step or a stream says of itself."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

__all__ = ["ReadOnlyDict"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class ReadOnlyDict(dict[_K, _V]):
    """What it was made with. Unlike a view of another dictionary it can be pickled, copied and written as JSON."""

    __slots__ = ()

    def _refuse(self, *_arguments: Any, **_named: Any) -> NoReturn:
        raise TypeError("this is read-only; dict(...) makes a copy that can be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)
