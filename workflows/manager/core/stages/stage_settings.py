# SPDX-License-Identifier: Apache-2.0
"""What the centre has decided about stages: the table `[stages]` of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from forebay.errors import InvalidArgumentError
from forebay.sizes import parse_size
from forebay.workflows.manager.core.configuration import check_table

__all__ = ["StageSettings"]

_RECEIPTS_BYTES_MAX = 8 << 30  # enough for 50 million files with paths of 70 characters


@dataclass(frozen=True, slots=True)
class StageSettings:
    """The settings with their defaults."""

    receipts_bytes_max: int = _RECEIPTS_BYTES_MAX  #: of each user's receipts together
    environment: Mapping[str, str] = field(default_factory=dict)  #: of the processes of all stages, on top of their own

    @classmethod
    def from_configuration(cls, tables: Mapping[str, Any], path: Path) -> Self:
        """Those of the table `[stages]`, if there is one.

        Raises
        ------
        InvalidArgumentError
            A setting is unknown, or makes no sense.
        """
        table = check_table(tables.get("stages", {}), "stages", {"receipts_max": str, "environment": dict}, path)
        environment = table.get("environment", {})
        for name, value in environment.items():
            if not isinstance(value, str) or "=" in name or "\0" in name + value:
                raise InvalidArgumentError(f"[stages] environment: {name[:80]} must be a text", str(path))
        size = table.get("receipts_max")
        return cls(_RECEIPTS_BYTES_MAX if size is None else parse_size(size), environment)
