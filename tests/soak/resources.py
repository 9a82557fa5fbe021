# SPDX-License-Identifier: Apache-2.0
"""What server and manager hold at quiet points of a soak, and whether that stays what it was."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

__all__ = ["Holding", "draw", "growths", "measure", "table", "unjudged"]

#: The first quiet point of a process's life is warm-up: allocator, caches, the first threads.
_WARM_UP_POINTS = 1
#: How much more a process may hold at any later quiet point of the same life than at its first warm one.
#: The manager's threads keep connections of their own, to the database and the server, once they have needed one.
_COUNT_MARGIN = {
    "server": {"descriptors": 3, "threads": 2, "mappings": 24},
    "manager": {"descriptors": 10, "threads": 6, "mappings": 48},
}
#: How much more memory, by the median, the last third of a life's warm points may show than the first third; however
#: many points there are and however long the life is, so that the longer a soak, the slower a leak it sees.
#: Rounds that have larger steps and more clients than those before account for as much.
_MEMORY_MARGIN_BYTES = {"server": 16 << 20, "manager": 24 << 20}
_MEMORY_POINTS_MIN = 3


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
            first, highest = getattr(warm[0], count), max(getattr(point, count) for point in warm[1:])
            if highest > first + margin:
                grown.append(f"{process} (pid {pid}): {count} went from {first} to {highest}")
        if len(warm) < _MEMORY_POINTS_MIN:
            continue
        # Of thirds, since one point may have met the allocator at a bad moment.
        third = len(warm) // 3
        early, late = (median(point.memory_bytes for point in part) for part in (warm[:third], warm[-third:]))
        if late > early + _MEMORY_MARGIN_BYTES[process]:
            risen = f"from {early / 2**20:.1f} to {late / 2**20:.1f} MiB"
            grown.append(f"{process} (pid {pid}): memory rose {risen} over {len(warm)} quiet points")
    return grown


def unjudged(holdings: list[Holding]) -> list[str]:
    """Processes none of whose lives was long enough to tell whether memory grows."""
    points = Counter((holding.process, holding.pid) for holding in holdings)
    judged = {process for (process, _), count in points.items() if count >= _WARM_UP_POINTS + _MEMORY_POINTS_MIN}
    return sorted({holding.process for holding in holdings} - judged)


def table(holdings: list[Holding]) -> str:
    """All quiet points, one a line, and whose memory they say nothing of."""
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
    lines = ["  ".join(text.rjust(11) for text in row) for row in rows]
    lines += [f"memory of the {process}: not judged, all its lives were too short" for process in unjudged(holdings)]
    return "\n".join(lines)


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
