# SPDX-License-Identifier: Apache-2.0
"""`forebay config`: where the C++ headers and library of this installation lie, for compilers and CMake."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from forebay.cli.output import JsonOption, print_fields, print_json
from forebay.cxx_package import cxx_package
from forebay.errors import InvalidArgumentError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("config", epilog='Example: cmake -S . -B build -Dforebay_DIR="$(forebay config --cmake-dir)"')(
        print_config
    )


def print_config(
    cmake_dir: Annotated[
        bool, typer.Option("--cmake-dir", help="Print the folder of the CMake package, for -Dforebay_DIR=.")
    ] = False,
    pkg_config_dir: Annotated[
        bool, typer.Option("--pkg-config-dir", help="Print the folder of forebay.pc, for $PKG_CONFIG_PATH.")
    ] = False,
    cflags: Annotated[
        bool, typer.Option("--cflags", help="Print what the compiler needs, beside -std=c++20 or newer.")
    ] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Print what the linker needs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print how to build C++ programs with this installation: CMake, pkg-config, or a compiler by hand.

    Without an option it prints all of it.
    """
    package = cxx_package()
    if as_json:
        print_json(
            {
                "cmake_dir": str(package.cmake_dir),
                "pkg_config_dir": str(package.pkg_config_dir),
                "cflags": list(package.cflags),
                "libs": list(package.libs),
            }
        )
    elif cmake_dir or pkg_config_dir:
        if cmake_dir + pkg_config_dir + cflags + libs > 1:
            raise InvalidArgumentError(
                "--cmake-dir and --pkg-config-dir each stand alone; only --cflags and --libs go together"
            )
        sys.stdout.write(f"{package.cmake_dir if cmake_dir else package.pkg_config_dir}\n")
    elif cflags or libs:
        sys.stdout.write(shlex.join([*(package.cflags if cflags else ()), *(package.libs if libs else ())]) + "\n")
    else:
        print_fields(
            [
                ("CMake package", str(package.cmake_dir)),
                ("pkg-config folder", str(package.pkg_config_dir)),
                ("compiler flags", shlex.join(package.cflags)),
                ("linker flags", shlex.join(package.libs)),
            ]
        )
