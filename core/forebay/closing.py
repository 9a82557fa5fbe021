# SPDX-License-Identifier: Apache-2.0
"""Objects that are closed at the end of a ``with`` statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
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
