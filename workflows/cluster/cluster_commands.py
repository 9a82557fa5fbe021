# SPDX-License-Identifier: Apache-2.0
"""`forebay cluster`: several nodes on this machine, to try remote clients and what happens when nodes fail."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from forebay.cli.output import JsonOption, console, print_json, print_table
from forebay.errors import InvalidArgumentError
from forebay.sizes import parse_size
from forebay.workflows.cluster.cluster import NODES_MAX, Cluster, NodeState, default_folder

__all__ = ["cluster_app"]

cluster_app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Several nodes on this machine, to try clients on other nodes and what happens when nodes fail.",
    epilog="Example: forebay cluster up --nodes 3 --netns",
)

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Folder of the cluster. Default: $FOREBAY_CLUSTER, else forebay-cluster under $XDG_STATE_HOME.",
    ),
]
NodeArgument = Annotated[int, typer.Argument(metavar="NODE", help="The node's number, from 1.", show_default=False)]


def _folder(named: Path | None) -> Path:
    return default_folder() if named is None else named.absolute()


@cluster_app.callback()
def cluster() -> None:
    """Several nodes on this machine."""


@cluster_app.command("up", epilog="Example: forebay cluster up --nodes 3 --netns --rate 1gbit")
def up(
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, max=NODES_MAX, help="How many.")] = 3,
    netns: Annotated[
        bool,
        typer.Option("--netns", help="Give each node a network and mounts of its own. Needs root and the program ip."),
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="The most that each link carries in each direction, for example 1gbit."),
    ] = None,
    capacity: Annotated[str, typer.Option(metavar="SIZE", help="Of the pool of each node.")] = "1GiB",
    fabric: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="The servers offer libfabric, too: tcp, for example.")
    ] = None,
    servers: Annotated[
        int,
        typer.Option(
            "--servers",
            metavar="N",
            min=0,
            max=NODES_MAX,
            help="Nodes 1 to N form one pool of servers under the manager of node 1. Default: each has its instance.",
        ),
    ] = 0,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make nodes 1 to N. Each has an instance of its own, whose server listens for clients on the others.

    With --servers the first nodes form one pool of servers instead, and the others only compute.

    Without --netns the nodes share this machine's network: links cannot be limited or cut, and no root is needed.
    """
    parse_size(capacity)
    made = Cluster.up(
        _folder(folder), nodes, namespaces=netns, rate=rate, capacity=capacity, fabric=fabric, servers=servers
    )
    if as_json:
        _print_states(made, as_json=True)
        return
    out = console()
    out.print(Text(f"{nodes} nodes below {made.folder}"))
    if made.network is None:
        out.print("They share this machine's network and see each other's files; with --netns (root) they do not.")
    else:
        limit = f", links of {rate}" if rate is not None else ""
        out.print(f"TCP uses {made.network.congestion_control(1)}{limit}.")
    _print_states(made, as_json=False)


@cluster_app.command("status", epilog="Example: forebay cluster status --json")
def status(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Show the nodes: where their servers listen, their links, and how many processes run there."""
    _print_states(Cluster.find(_folder(folder)), as_json=as_json)


@cluster_app.command(
    "exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: forebay cluster exec 2 -- forebay streams run1",
)
def execute(
    node: NodeArgument,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments.", show_default=False)
    ],
    folder: FolderOption = None,
) -> None:
    """Run a program on a node. Its exit status is the command's.

    The program finds the instance of its own node. For another's, set FOREBAY_SERVER or use an address such as
    forebay://10.94.0.1:7460/run1/flow, and set FOREBAY_TOKEN_FILE.
    """
    found = Cluster.find(_folder(folder))
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise InvalidArgumentError("give a program to run: forebay cluster exec 2 -- hostname")
    arguments = [*found.prefix(node), *words]
    try:
        os.execvpe(arguments[0], arguments, found.environment(node, os.environ))  # noqa: S606
    except OSError as error:
        raise InvalidArgumentError(f"{arguments[0]} cannot be run: {error.strerror}") from None


@cluster_app.command("kill", epilog="Example: forebay cluster kill 1")
def kill(node: NodeArgument, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Let a node fail: its link is cut, and all its processes are killed."""
    found = Cluster.find(_folder(folder))
    found.kill(node)
    _tell(found, node, "killed; `forebay cluster heal` starts its instance again", as_json=as_json)


@cluster_app.command("cut", epilog="Example: forebay cluster cut 3")
def cut(node: NodeArgument, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Cut the link of a node. Its processes run on, and are not told."""
    found = Cluster.find(_folder(folder))
    found.cut(node)
    _tell(found, node, "cut off", as_json=as_json)


@cluster_app.command("heal", epilog="Example: forebay cluster heal 3")
def heal(node: NodeArgument, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Bring back the link of a node, and start its instance if it does not run."""
    found = Cluster.find(_folder(folder))
    found.heal(node)
    _tell(found, node, "healed", as_json=as_json)


@cluster_app.command("down", epilog="Example: forebay cluster down")
def down(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """End all processes on the nodes, and remove the nodes with all their data."""
    place = _folder(folder)
    Cluster.find(place).down()
    if as_json:
        print_json({"folder": str(place)})
        return
    console().print(Text(f"removed: {place}"))


def _tell(found: Cluster, node: int, what: str, *, as_json: bool) -> None:
    if as_json:
        state = next(state for state in found.status() if state.node == node)
        print_json(_as_dict(state))
        return
    console().print(Text(f"node {node} is {what}"))


def _print_states(found: Cluster, *, as_json: bool) -> None:
    states = list(found.status())
    if as_json:
        congestion = None
        if found.network is not None and found.network.exists():
            congestion = found.network.congestion_control(1)
        print_json(
            {
                "folder": str(found.folder),
                "namespaces": found.network is not None,
                "congestion_control": congestion,
                "nodes": [_as_dict(state) for state in states],
            }
        )
        return
    print_table(
        (">node", "server", "link", "instance", ">processes", "root"),
        (
            (
                str(state.node),
                state.server,
                state.link,
                "runs" if state.serves else "down",
                str(state.processes),
                str(state.root),
            )
            for state in states
        ),
        empty="no nodes",
    )


def _as_dict(state: NodeState) -> dict[str, Any]:
    return asdict(state) | {"root": str(state.root)}
