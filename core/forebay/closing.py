# SPDX-License-Identifier: Apache-2.0
"""Objects that are closed at the end of a ``with`` statement, whatever ended it or only if nothing failed.

And what all public objects have in common: they show public names only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing", "ClosingOnSuccess", "PublicNames"]


class PublicNames:
    """What ``dir()`` shows, what completion offers, and what Python takes an unknown name for: only public names."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") or name.startswith("__")]


class Closing(PublicNames, ABC):
    """Context manager that calls :meth:`close`, whatever ended the ``with`` statement."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Ends the object's use; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ClosingOnSuccess(Closing):
    """Context manager that calls :meth:`close`, or :meth:`abandon` where an exception ended the ``with`` statement."""

    __slots__ = ()

    @abstractmethod
    def abandon(self) -> None:
        """Ends the object's use without what makes its work complete; idempotent."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()
