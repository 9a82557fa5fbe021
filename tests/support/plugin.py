# SPDX-License-Identifier: Apache-2.0
"""Which ADIOS2 plugin tests and benchmarks load."""

from __future__ import annotations

import os
from pathlib import Path

import forebay.adios2

__all__ = ["plugin_library"]


def plugin_library() -> Path:
    """What CMake built where ``$FOREBAY_BUILD_DIR`` says, else the installed one."""
    build = os.environ.get("FOREBAY_BUILD_DIR")
    if build and (built := Path(build) / "engines" / "adios2" / "libforebay_adios2.so").is_file():
        return built
    return Path(forebay.adios2.plugin_library())
