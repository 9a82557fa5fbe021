# SPDX-License-Identifier: Apache-2.0
"""A test double of a followed step: its variables are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass
class RecordedStep:
    """One step with its variables in memory."""

    number: int
    variables: dict[str, NDArray[Any]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rewound: bool = False
    acknowledged: bool = False

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.variables[name]

    def ack(self) -> None:
        self.acknowledged = True
