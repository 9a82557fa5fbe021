# SPDX-License-Identifier: Apache-2.0
"""The variables that a program needs to find an instance and what ways in it uses."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

__all__ = ["program_environment"]

#: Functions without parameters that return variables; other packages add them.
_GROUP = "forebay.environment"


def program_environment(root: str | os.PathLike[str]) -> dict[str, str]:
    """Of a program that uses the instance below the root."""
    variables = {"FOREBAY_ROOT": os.fspath(root)}
    for point in sorted(entry_points(group=_GROUP)):
        variables.update(point.load()())
    return variables
