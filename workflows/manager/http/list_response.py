# SPDX-License-Identifier: Apache-2.0
"""Answers that are lists of many megabytes: encoded row by row, in a thread, so that the event loop's has its turn in
between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fastapi.responses import Response

__all__ = ["list_response"]


def list_response(rows: Iterable[dict[str, Any]], bytes_max: int | None = None) -> Response:
    """The rows as JSON, of those that are too many the first ones."""
    encoded: list[bytes] = []
    size_bytes = 0
    for row in rows:
        encoded.append(json.dumps(row, separators=(",", ":")).encode())
        size_bytes += len(encoded[-1])
        if bytes_max is not None and size_bytes > bytes_max:
            encoded.pop()
            break
    return Response(b"[" + b",".join(encoded) + b"]", media_type="application/json")
