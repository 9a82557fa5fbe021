# SPDX-License-Identifier: Apache-2.0
"""`forebay agent`: shows files of this server's reservations on nodes of jobs, for the pool's manager."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import Annotated, Any

import typer

from forebay.cli.chosen import chosen_or_current
from forebay.errors import InvalidArgumentError, PermissionDeniedError
from forebay.manager.pool_membership import PoolMembership
from forebay.workflows.files.agent import Agent, agent_lock, check_owned
from forebay.workflows.files.settings import FilesSettings
from forebay.workflows.manager.core.configuration import configuration_file, read_configuration

__all__ = ["agent_app"]

agent_app = typer.Typer(add_completion=False)


@agent_app.command(epilog="Example: forebay agent")
def agent(
    address: Annotated[
        str, typer.Option(help="Where nodes mount this server's files; by default the host of `forebay up --listen`.")
    ] = "",
) -> None:
    """Show files of this server on nodes of jobs, when the pool's manager asks for it.

    Root runs it beside the server, on each server that has joined a pool. It stays in the foreground, logs to standard
    error, and ends on SIGTERM; what it has shown stays.
    """
    if os.geteuid() != 0:
        raise PermissionDeniedError("files are shown on other nodes by root; run `forebay agent` as root")
    instance = chosen_or_current()
    membership = PoolMembership.read(instance)
    if membership is None or not membership.manager:
        raise InvalidArgumentError(
            "this server has not joined a pool: its manager, on the same node, shows its files without an agent",
            str(instance.root),
        )
    check_owned(instance.root)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    path = configuration_file()
    tables = read_configuration(path)
    settings = FilesSettings.from_configuration(tables, path) or FilesSettings()
    # The configuration is the same on every node, and its address that of the manager's.
    settings = replace(settings, address=address or membership.listen.rpartition(":")[0].strip("[]"))
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()
        raise SystemExit(0)  # also while it waits for the manager; what is under way is done first

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    os.umask(0o077)
    with agent_lock(instance.root / "drivers"):
        served = Agent(instance, membership, settings)
        served.check(_drivers(tables))
        sys.stderr.write(f"serving {membership.name} of the pool at {membership.manager}\n")
        sys.stderr.flush()
        served.run(stop)


def _drivers(tables: dict[str, Any]) -> set[str]:
    """Those of the pools that this configuration has. A server may be started with one that names none."""
    pools = tables.get("pools", {})
    named = {pool.get("files_driver") for pool in pools.values() if isinstance(pool, dict)}
    return {driver for driver in named if isinstance(driver, str) and driver} or {"nfs"}
