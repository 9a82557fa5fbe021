# SPDX-License-Identifier: Apache-2.0
"""Numbers in requests, within what the database can look for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

__all__ = ["StageNumber"]

_NUMBER_MAX = 2**31 - 1  # of the column

#: A stage's number in a request's path.
StageNumber = Annotated[int, Path(ge=0, le=_NUMBER_MAX)]
