# SPDX-License-Identifier: Apache-2.0
"""Cgroups as Slurm makes them for a job: a program of a test runs in one, in each hierarchy of this machine."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from forebay.workflows.files.mounts import mounts_of

__all__ = ["Job", "cgroups_below", "job_cgroup", "why_no_cgroups"]

#: In version 1, without these a cgroup takes no process.
_CPUSET = ("cpuset.cpus", "cpuset.mems")


def _tops() -> list[Path]:
    """Of hierarchies in which a job can be made."""
    return [
        Path(mount.place)
        for mount in mounts_of("cgroup", "cgroup2")
        if "name=systemd" not in mount.options and os.access(mount.place, os.W_OK)
    ]


def why_no_cgroups() -> str:
    """Why these tests cannot run here; "" if they can."""
    if os.geteuid() != 0:
        return "needs root, to make cgroups"
    return "" if _tops() else "no hierarchy of cgroups can be written here"


class Job:
    """Its cgroups."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = places

    def command(self, command: Sequence[str]) -> list[str]:
        """Starts a program inside."""
        doors = " ".join(f"echo 0 > {place}/cgroup.procs;" for place in self.places)
        return ["/bin/sh", "-ec", f'{doors} exec "$@"', "sh", *command]


@contextlib.contextmanager
def job_cgroup() -> Iterator[Job]:
    """One whose programs have ended when it goes: what they have started has left it."""
    name = f"forebay-test-job-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        places = [top / name for top in _tops()]
        for place in places:
            place.mkdir()
            stack.callback(place.rmdir)
            for name_of_file in _CPUSET:
                with contextlib.suppress(FileNotFoundError):
                    (place / name_of_file).write_text((place.parent / name_of_file).read_text())
        yield Job(places)


def cgroups_below(parent: str) -> dict[Path, list[int]]:
    """Processes of each cgroup below this one, in all hierarchies."""
    return {
        file.parent: [int(word) for word in file.read_text().split()]
        for top in _tops()
        for file in (top / parent).glob("*/cgroup.procs")
    }
