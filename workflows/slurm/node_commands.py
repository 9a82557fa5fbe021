# SPDX-License-Identifier: Apache-2.0
"""`forebay job-begin` and `forebay job-end`, for people. Slurm's prolog and epilog start the program that they use,
`forebay-job`, which needs no Python.
"""

from __future__ import annotations

import importlib.resources
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.chosen import named
from forebay.cli.output import JsonOption, print_json
from forebay.errors import StorageError, UnsupportedError
from forebay.workflows.slurm.node_files import NodeFiles

__all__ = ["job_begin", "job_end", "job_program"]

job_begin_app = typer.Typer(add_completion=False)
job_end_app = typer.Typer(add_completion=False)

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", envvar="SLURM_JOB_ID", help="The job's number; Slurm tells it.")
]
NodeOption = Annotated[
    str, typer.Option("--node", envvar="SLURMD_NODENAME", help="This node's name; by default what Slurm tells.")
]


def job_program() -> Path:
    """The program inside the package."""
    return Path(str(importlib.resources.files("forebay"))) / "bin" / "forebay-job"


@job_begin_app.command(epilog="Example: forebay job-begin 17")
def job_begin(
    job: JobArgument,
    node: NodeOption = "",
    as_json: JsonOption = False,
) -> None:
    """Prepare this node for a Slurm job: look for its files, or mount them; make its private scratch.

    A prolog runs `forebay-job`; where nodes mount files, it runs this.
    """
    if (files := NodeFiles.configured(node or _this_node())) is not None:
        _tell("made", files.begin(job), as_json)
        return
    _run("begin", job, ["--node", node] if node else [], "made", as_json)


@job_end_app.command(epilog="Example: forebay job-end 17")
def job_end(
    job: JobArgument,
    node: NodeOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove what job-begin made on this node, and what lost jobs left.

    An epilog runs `forebay-job`; where nodes mount files, it runs this.
    """
    if (files := NodeFiles.configured(node or _this_node())) is not None:
        _tell("removed", files.end(job), as_json)
        return
    _run("end", job, [], "removed", as_json)


def _this_node() -> str:
    return socket.gethostname().partition(".")[0]


def _tell(word: str, links: list[str], as_json: bool) -> None:
    if as_json:
        print_json({word: links})
        return
    for link in links:
        sys.stdout.write(f"{word} {link}\n")


def _run(verb: str, job: str, options: list[str], word: str, as_json: bool) -> None:
    instance = named()
    root = [] if instance is None else ["--root", str(instance.root)]
    try:
        done = subprocess.run(
            [job_program(), verb, *options, *root, "--", job], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise UnsupportedError(
            f"the program cannot be started: {error.strerror}; install forebay again", str(job_program())
        ) from None
    if done.returncode != 0:
        raise StorageError(done.stderr.strip().removeprefix("error: "))
    sys.stderr.write(done.stderr)
    if as_json:
        lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
        print_json({word: [link for verb, link in lines if verb == word]})
        return
    sys.stdout.write(done.stdout)
