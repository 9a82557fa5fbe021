# SPDX-License-Identifier: Apache-2.0
"""The groups in which `forebay --help` lists the commands. A command that is in none comes last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["group_of", "grouped"]

_GROUPS = {
    "The instance": (
        "up",
        "down",
        "status",
        "why",
        "doctor",
        "servers",
        "drain",
        "undrain",
        "env",
        "config",
        "cluster",
        "ping",
    ),
    "Reservations": ("create", "change", "destroy", "ls", "show", "attach", "detach", "extend", "share", "token"),
    "Streams and steps": (
        "streams",
        "steps",
        "stream",
        "consumer",
        "watch",
        "tail",
        "dump",
        "path",
        "mount",
        "unmount",
        "ticket",
        "follow",
        "run",
        "derive",
        "grib",
    ),
    "Moving data": ("stage-in", "stage-out", "stages", "receipt"),
    "Pictures and scans": ("view", "render", "publish", "reconstruct", "beamline"),
    "Batch jobs": ("lint", "advise", "job-begin", "job-end", "install-juicefs"),
}
_OTHERS = "More"


def group_of(command: str) -> str:
    """The heading below which the command is listed."""
    return next((group for group, names in _GROUPS.items() if command in names), _OTHERS)


def grouped(commands: Iterable[str]) -> Mapping[str, list[str]]:
    """The commands by heading, both in the order in which they are listed."""
    there = sorted(commands)
    groups = {group: [name for name in names if name in there] for group, names in _GROUPS.items()}
    groups[_OTHERS] = [name for name in there if group_of(name) == _OTHERS]
    return {group: names for group, names in groups.items() if names}
