# SPDX-License-Identifier: Apache-2.0
"""What every driver asks of what it is given, and says of what it has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from forebay.errors import InvalidArgumentError, PermissionDeniedError

__all__ = ["STAGES_NODE", "check_addresses", "check_nodes", "check_reservation", "room_of"]

#: What engines take the manager's node for while stages move files of another server there.
STAGES_NODE = "forebay.stages"
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_ID = re.compile(r"[0-9a-f-]{8,64}")


def check_reservation(reservation: str) -> None:
    """PermissionDeniedError unless root asks; InvalidArgumentError if this is no reservation's uuid."""
    if os.geteuid() != 0:
        raise PermissionDeniedError("files are shown on other nodes by instances that root runs")
    if _ID.fullmatch(reservation) is None:
        raise InvalidArgumentError("this is no reservation's uuid")


def check_nodes(nodes: Iterable[str]) -> None:
    """InvalidArgumentError if one is no node's name."""
    for node in nodes:
        if _NODE.fullmatch(node) is None:
            raise InvalidArgumentError(f'"{node[:80]}" is no name of a node')


def check_addresses(nodes: Mapping[str, str]) -> None:
    """InvalidArgumentError if a name or an address is none."""
    check_nodes(nodes)
    for node, address in nodes.items():
        try:
            ip_address(address)
        except ValueError:
            raise InvalidArgumentError(f'"{address[:80]}" is no address of node {node}') from None


def room_of(tree: str) -> dict[str, Any]:
    """Bytes of the file system that lies there."""
    room = os.statvfs(tree)
    return {
        "used_bytes": (room.f_blocks - room.f_bfree) * room.f_frsize,
        "free_bytes": room.f_bavail * room.f_frsize,
    }
