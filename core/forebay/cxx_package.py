# SPDX-License-Identifier: Apache-2.0
"""The C++ package that an installation carries: headers, library, CMake package and pkg-config file.

The flags are those of the pkg-config file, so that all ways to build a program agree.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import forebay
from forebay.errors import NotFoundError

__all__ = ["CxxPackage", "cxx_package"]


@dataclass(frozen=True)
class CxxPackage:
    """Where the parts lie, and what a compiler and a linker are given."""

    cmake_dir: Path
    pkg_config_dir: Path
    cflags: tuple[str, ...]
    libs: tuple[str, ...]


def cxx_package() -> CxxPackage:
    """The C++ package beside this Python package.

    Raises
    ------
    NotFoundError
        There is none: the native parts have not been built.
    """
    folder = Path(forebay.__file__).parent.absolute() / "lib"
    file = folder / "pkgconfig" / "forebay.pc"
    cmake_dir = folder / "cmake" / "forebay"
    for needed in (file, cmake_dir / "forebay-config.cmake"):
        if not needed.is_file():
            raise NotFoundError(f"this installation has no C++ package ({needed}); install the wheel, or ./run build")
    fields = _fields_of(file)
    return CxxPackage(
        cmake_dir=cmake_dir,
        pkg_config_dir=file.parent,
        cflags=tuple(shlex.split(fields["Cflags"])),
        libs=tuple(shlex.split(fields["Libs"])),
    )


def _fields_of(file: Path) -> dict[str, str]:
    """The fields of a pkg-config file, with its variables replaced. Folders that they name are made plain."""
    variables = {"pcfiledir": str(file.parent)}
    fields: dict[str, str] = {}

    def expanded(text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda match: shlex.quote(variables[match[1]]), text)

    for line in file.read_text(encoding="utf-8").splitlines():
        if variable := re.fullmatch(r"(\w+)=(.*)", line):
            (value,) = shlex.split(expanded(variable[2]))
            variables[variable[1]] = str(Path(value).resolve())
        elif field := re.fullmatch(r"([\w.]+): *(.*)", line):
            fields[field[1]] = expanded(field[2])
    return fields
