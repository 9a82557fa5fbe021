# SPDX-License-Identifier: Apache-2.0
"""`forebay job-begin` and `forebay job-end`: what Slurm's prolog and epilog run on each node of a job."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.chosen import named
from forebay.cli.output import JsonOption, console, print_json
from forebay.workflows.manager.configuration import configuration_file, read_configuration
from forebay.workflows.slurm.node_folders import begin_on_node, end_on_node
from forebay.workflows.slurm.node_names import parse_node_names
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["job_begin", "job_end"]

job_begin_app = typer.Typer(add_completion=False)
job_end_app = typer.Typer(add_completion=False)

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", envvar="SLURM_JOB_ID", help="The job's number; Slurm tells it.")
]


@job_begin_app.command(epilog="Example: forebay job-begin 17")
def job_begin(
    job: JobArgument,
    node: Annotated[
        str, typer.Option("--node", envvar="SLURMD_NODENAME", help="This node's name; by default what Slurm tells.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Prepare this node for a Slurm job: look for its files, make its private scratch. For Slurm's prolog."""
    here = node or socket.gethostname().partition(".")[0]
    settings = _settings()
    # A failing prolog takes the node from all jobs, also from those without burst buffers.
    blind = settings is not None and settings.nodes and here not in parse_node_names(settings.nodes)
    _tell([] if blind else begin_on_node(_root(), job, here), "made", as_json)


@job_end_app.command(epilog="Example: forebay job-end 17")
def job_end(job: JobArgument, as_json: JsonOption = False) -> None:
    """Remove what job-begin made on this node, and what lost jobs left. For Slurm's epilog."""
    settings = _settings()
    _tell(end_on_node(settings.node_folder if settings else "", job), "removed", as_json)


def _settings() -> SlurmSettings | None:
    configuration = configuration_file()
    return SlurmSettings.from_configuration(read_configuration(configuration), configuration)


def _root() -> Path:
    """What --root names, else the configuration: the environment of a prolog says nothing."""
    if (instance := named()) is not None:
        return instance.root
    return Path(read_configuration(configuration_file()).get("root", "/var/lib/forebay"))


def _tell(links: list[str], verb: str, as_json: bool) -> None:
    if as_json:
        print_json({verb: links})
        return
    for link in links:
        console().print(f"{verb} {link}", markup=False, soft_wrap=True)
