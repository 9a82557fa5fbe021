# SPDX-License-Identifier: Apache-2.0
"""`forebay lint`: what is wrong with the directives of a job script, before it is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.failures import ExitStatus
from forebay.cli.output import JsonOption, console, print_json
from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.workflows.directives.directive_parsing import find_mistakes

__all__ = ["lint"]

lint_app = typer.Typer(add_completion=False)

_SCRIPT_BYTES_MAX = 4 << 20


@lint_app.command(epilog="Example: forebay lint job.sh")
def lint(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A job script with #DW, #BB or #FB lines.")],
    as_json: JsonOption = False,
) -> None:
    """Check the directives of a Slurm job script. Exit status 0 only when there is no mistake; needs no instance."""
    try:
        with script.open("rb") as file:
            content = file.read(_SCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise NotFoundError(f"the script cannot be read: {error.strerror}", str(script)) from None
    if len(content) > _SCRIPT_BYTES_MAX:
        raise InvalidArgumentError(f"the script is larger than {_SCRIPT_BYTES_MAX >> 20} MiB", str(script))
    mistakes = find_mistakes(content)
    if as_json:
        print_json({"mistakes": [{"what": mistake.what, "where": mistake.where} for mistake in mistakes]})
    else:
        for mistake in mistakes:
            console().print(str(mistake), markup=False, soft_wrap=True)
        if not mistakes:
            console().print(f"{script}: no mistakes", markup=False, soft_wrap=True)
    if mistakes:
        raise typer.Exit(ExitStatus.ERROR)
