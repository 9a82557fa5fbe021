# SPDX-License-Identifier: Apache-2.0
"""The command `dwstat` beside `forebay`, where users have it on their PATH. It becomes the program in the package."""

from __future__ import annotations

import importlib.resources
import os
import sys
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Does not return."""
    program = Path(str(importlib.resources.files("forebay"))) / "bin" / "dwstat"
    try:
        os.execv(program, ["dwstat", *sys.argv[1:]])  # noqa: S606 - nothing of it is for a shell
    except OSError as error:
        sys.exit(f"dwstat: {program} cannot be started: {error.strerror}; install forebay again")
