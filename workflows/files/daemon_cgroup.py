# SPDX-License-Identifier: Apache-2.0
"""A cgroup of its own for what serves a reservation's files: what it takes counts neither to the job nor to the service
that has started it, and it does not end with them.

It lies below the top of each hierarchy of the kernel (one in version 2, one for each controller in version 1) in which
the starting process is not at the top itself. Nothing is limited or delegated there, so it is a leaf, which takes
processes whatever controllers are enabled above it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from forebay.workflows.files.mounts import Mount, mounts_of

__all__ = ["NO_CGROUP", "DaemonCgroup", "cgroup_problem"]

_PROCESSES = "cgroup.procs"
#: In version 1 a new cgroup has none of these, and takes no process before it has.
_CPUSET = ("cpuset.cpus", "cpuset.mems")
_TRIES_MAX = 10
_REMOVE_SECONDS = 1.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class DaemonCgroup:
    """That of one reservation on this machine."""

    parent: str  #: below the top of each hierarchy; "": daemons stay where who starts them is
    name: str = ""

    @contextlib.contextmanager
    def door(self) -> Iterator[Callable[[], None]]:
        """What a new process calls to go in; made if it is not there. Where it cannot be made, or entered, the process
        stays where it is: `cgroup_problem` says why.
        """
        with contextlib.ExitStack() as stack:
            opened = []
            for place in self._places():
                with contextlib.suppress(OSError):
                    opened.append(_opened(place))
                    stack.callback(os.close, opened[-1])

            def enter() -> None:
                for descriptor in opened:
                    with contextlib.suppress(OSError):
                        os.write(descriptor, b"0")

            yield enter

    def remove(self) -> None:
        """Removes it; one in which something still runs stays."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        for place in self._places():
            while place.is_dir():
                try:
                    place.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline or _has_processes(place):
                        break
                    time.sleep(_POLL_SECONDS)

    def _places(self) -> list[Path]:
        if not self.parent:
            return []
        return [Path(seat.mount.place, self.parent, self.name) for seat in _seats("self") if seat.mount is not None]


@dataclass(frozen=True, slots=True)
class _Seat:
    """Where a process is in one hierarchy."""

    controllers: str  #: "": version 2
    mount: Mount | None  #: the hierarchy's top, as it is seen here
    path: str  #: of the process, below the top


#: Daemons stay where who starts them is.
NO_CGROUP = DaemonCgroup("")


def cgroup_problem(parent: str, daemons: Iterable[int] = ()) -> str:
    """Why what daemons take counts to who starts them; "" if it does not.

    Parameters
    ----------
    daemons : iterable of int
        Those that run.
    """
    if not parent:
        return ""
    for seat in _seats("self"):
        if seat.mount is None:
            return f"the hierarchy of cgroups {seat.controllers or 'of version 2'} is not mounted here"
        place = Path(seat.mount.place, parent)
        try:
            os.close(_opened(place))
        except OSError as error:
            return f"the cgroup {place} cannot be used: {error.strerror}"
    for pid in daemons:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for seat in _seats(str(pid)):
                if not seat.path.startswith(f"/{parent}/"):
                    return f"process {pid} is in the cgroup {seat.path}, where it stays until it is started again"
    return ""


def _opened(place: Path) -> int:
    """By which a process goes in."""
    tries = 0
    while True:
        try:
            for folder in (*reversed(place.parents), place):
                if not folder.is_dir():
                    folder.mkdir(mode=0o755, exist_ok=True)
                    _fill_cpuset(folder)
            return os.open(place / _PROCESSES, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # another process has just removed it
            tries += 1
            if tries == _TRIES_MAX:
                raise


def _fill_cpuset(folder: Path) -> None:
    for name in _CPUSET:
        with contextlib.suppress(FileNotFoundError):
            if not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())


def _has_processes(place: Path) -> bool:
    with contextlib.suppress(OSError):
        return bool((place / _PROCESSES).read_text().strip())
    return False


def _seats(process: str) -> list[_Seat]:
    """Where a process is, in each hierarchy in which it is not at the top. One with a name alone, as systemd's, counts
    nothing.
    """
    mounts = mounts_of("cgroup", "cgroup2")
    seats = []
    for line in Path(f"/proc/{process}/cgroup").read_text(errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        if path == "/" or controllers.startswith("name="):
            continue
        wanted = set(controllers.split(","))
        shown = [mount for mount in mounts if (wanted <= mount.options if controllers else mount.kind == "cgroup2")]
        top = min(shown, key=lambda mount: len(mount.root), default=None)
        below = path if top is None or top.root == "/" else path.removeprefix(top.root)
        if below:
            seats.append(_Seat(controllers, top, below))
    return seats
