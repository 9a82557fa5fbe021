# SPDX-License-Identifier: Apache-2.0
"""What server and manager hold at quiet points of a soak, and whether that stays what it was."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

__all__ = ["Holding", "draw", "growths", "measure", "table"]

#: The first quiet point of a process's life is warm-up: allocator, caches, the first threads.
_WARM_UP_POINTS = 1
#: How much more a process may hold at any later quiet point of the same life than at its first warm one.
#: The manager's threads keep connections of their own, to the database and the server, once they have needed one.
_COUNT_MARGIN = {
    "server": {"descriptors": 3, "threads": 2, "mappings": 24},
    "manager": {"descriptors": 10, "threads": 6, "mappings": 48},
}
#: Growth of memory over a life: this, and no more per hour than twice it. A hundred quiet points share it.
_MEMORY_MARGIN_BYTES = {"server": 12 << 20, "manager": 24 << 20}


@dataclass(frozen=True)
class Holding:
    """One process at one quiet point."""

    seconds: float
    process: str
    pid: int
    memory_bytes: int
    descriptors: int
    threads: int
    mappings: int


def measure(process: str, pid: int, seconds: float) -> Holding:
    """What the kernel says of it now."""
    folder = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Holding(
        seconds,
        process,
        pid,
        int(status["VmRSS"].split()[0]) * 1024,
        len(list((folder / "fd").iterdir())),
        int(status["Threads"]),
        len((folder / "maps").read_text().splitlines()),
    )


def growths(holdings: list[Holding]) -> list[str]:
    """What has grown, life by life; empty: nothing has."""
    grown = []
    lives: dict[tuple[str, int], list[Holding]] = defaultdict(list)
    for holding in holdings:
        lives[holding.process, holding.pid].append(holding)
    for (process, pid), points in lives.items():
        warm = points[_WARM_UP_POINTS:]
        if len(warm) < 2:
            continue
        for count, margin in _COUNT_MARGIN[process].items():
            first, last = getattr(warm[0], count), getattr(warm[-1], count)
            if last > first + margin:
                grown.append(f"{process} (pid {pid}): {count} went from {first} to {last}")
        if len(warm) < 3:
            continue
        # The slope of all points, since one of them may have met the allocator at a bad moment.
        times = np.array([point.seconds for point in warm])
        memory = np.array([point.memory_bytes for point in warm], dtype=float)
        risen = float(np.polyfit(times, memory, 1)[0]) * (times[-1] - times[0])
        allowed = _MEMORY_MARGIN_BYTES[process] * (1 + (times[-1] - times[0]) / 1800)
        if risen > allowed:
            grown.append(f"{process} (pid {pid}): memory rose by {risen / 2**20:.1f} MiB over {len(warm)} quiet points")
    return grown


def table(holdings: list[Holding]) -> str:
    """All quiet points, one a line."""
    rows = [("second", "process", "pid", "MiB", "descriptors", "threads", "mappings")]
    rows += [
        (
            f"{point.seconds:.0f}",
            point.process,
            str(point.pid),
            f"{point.memory_bytes / 2**20:.1f}",
            str(point.descriptors),
            str(point.threads),
            str(point.mappings),
        )
        for point in holdings
    ]
    return "\n".join("  ".join(text.rjust(11) for text in row) for row in rows)


def draw(holdings: list[Holding], path: Path) -> bool:
    """A picture of it; False without Matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    names = [field.name for field in fields(Holding)[3:]]
    figure, axes = plot.subplots(len(names), 1, sharex=True, figsize=(8, 9), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        for process in ("server", "manager"):
            points = [point for point in holdings if point.process == process]
            scale = 2**20 if name == "memory_bytes" else 1
            values = [getattr(point, name) / scale for point in points]
            axis.plot([point.seconds for point in points], values, marker=".", label=process)
        axis.set_ylabel("memory / MiB" if name == "memory_bytes" else name)
        axis.set_ylim(bottom=0)
    axes[0].legend()
    axes[-1].set_xlabel("seconds; quiet points, all clients gone")
    figure.savefig(path, dpi=100)
    plot.close(figure)
    return True
