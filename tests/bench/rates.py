# SPDX-License-Identifier: Apache-2.0
"""The rates and latencies that docs/performance.md begins with: kept from a run, shown as a table and as a plot.

``./run bench --record`` keeps those of a whole run; ``python -m tests.bench.rates`` writes table and plot anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.measure import Verdict
from tests.bench.workbench import MIB

__all__ = ["PAGE", "RECORD", "Figure", "keep", "read", "table", "update"]

RECORD = Path(__file__).with_name("recorded_rates.json")
PAGE = Path("docs/performance.md")
PLOT = Path("docs/images/rates.svg")
_BEGIN, _END = "<!-- rates: begin -->\n", "<!-- rates: end -->\n"

#: Rows of the suites that are shown, by what they are called on the page. Peers of one label share its line.
LABELS = {
    "write 16 MiB, both": "write 16 MiB steps, fresh space",
    "write 16 MiB, our defaults": "write 16 MiB steps, fresh space",
    "write 16 MiB recycled, both": "write 16 MiB steps, recycled space",
    "live reader 16 MiB, recycled": "write and read live, 16 MiB steps",
    "live reader 64 MiB, recycled": "write and read live, 64 MiB steps",
    "4 KiB step, EndStep's call to data": "4 KiB step: call of EndStep to data in the reader",
    "step of 10 000 variables, writer": "step of 10 000 variables: writer",
    "step of 10 000 variables, reader": "step of 10 000 variables: reader",
}


@dataclass
class Figure:
    """One line of the table: our figure and those of the peers that did the same."""

    label: str
    unit: str  #: bytes_per_second or seconds
    forebay: float
    peers: dict[str, float] = field(default_factory=dict)


def keep(verdicts: Sequence[Verdict], processor: str, path: Path = RECORD) -> None:
    """Keeps the shown rows of a run; those of other processors, and rows that were not run, stay."""
    machines = read(path)
    known = {figure.label: figure for figure in machines.get(processor, [])}
    fresh: dict[str, Figure] = {}
    for verdict in verdicts:
        if verdict.what in LABELS:
            label = LABELS[verdict.what]
            figure = fresh.setdefault(label, Figure(label, verdict.unit, verdict.ours))
            figure.peers[verdict.against] = verdict.peer
    known |= fresh
    machines[processor] = [known[label] for label in dict.fromkeys(LABELS.values()) if label in known]
    document = {name: [asdict(figure) for figure in figures] for name, figures in machines.items()}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read(path: Path = RECORD) -> dict[str, list[Figure]]:
    """What was kept, for each model of processor."""
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    return {processor: [Figure(**figure) for figure in figures] for processor, figures in document.items()}


def _text(value: float, unit: str) -> str:
    if unit == "bytes_per_second":
        return f"{value / 1e9:.1f} GB/s"
    if unit == "bytes":
        return f"{value / MIB:.0f} MiB"
    return f"{value * 1e3:.2g} ms"


def table(machines: Mapping[str, Sequence[Figure]]) -> str:
    """The table in Markdown."""
    lines = []
    for processor, figures in machines.items():
        lines += [f"| on {processor} | Forebay | peers |", "|---|---|---|"]
        for figure in figures:
            peers = ", ".join(f"{name} {_text(value, figure.unit)}" for name, value in figure.peers.items())
            lines.append(f"| {figure.label} | **{_text(figure.forebay, figure.unit)}** | {peers} |")
        lines.append("")
    return "\n".join(lines)


def update(page: str, machines: Mapping[str, Sequence[Figure]]) -> str:
    """The page with the table of today between its marks."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has not the marks {_BEGIN.strip()} and {_END.strip()}: put them back")
    return before + begin + "\n" + table(machines) + "\n" + end + after


def _plot(figures: Sequence[Figure], path: Path) -> None:
    """Rates on the left, where longer bars are better; times on the right, where shorter ones are."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "forebay"
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    panels = [
        ("bytes_per_second", 1e-9, "GB/s: longer is better", "linear"),
        ("seconds", 1e3, "ms: shorter is better", "log"),
    ]
    figure, all_axes = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for axes, (unit, scale, title, kind) in zip(all_axes, panels, strict=True):
        place, places, labels = 0.0, [], []
        for line in reversed([line for line in figures if line.unit == unit]):
            bars = [*reversed(line.peers.items()), ("Forebay", line.forebay)]
            first = place
            for name, value in bars:
                ours = name == "Forebay"
                axes.barh(place, value * scale, height=0.85, color="#2f6fb0" if ours else "#b9c3cf")
                axes.annotate(
                    f"{name} {value * scale:.2g}", (value * scale, place), xytext=(3, 0), textcoords="offset points",
                    va="center", fontsize=7.5, fontweight="bold" if ours else "normal",
                )  # fmt: skip
                place += 1.0
            places.append((first + place - 1.0) / 2)
            labels.append(line.label.replace(", ", ",\n").replace(": ", ":\n"))
            place += 0.8
        axes.set_yticks(places, labels, fontsize=8)
        axes.set_xscale(kind)
        axes.set_xlabel(title)
        axes.margins(x=0.35)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Writes table and plot."""
    machines = read()
    PAGE.write_text(update(PAGE.read_text(encoding="utf-8"), machines), encoding="utf-8")
    _plot(next(iter(machines.values())), PLOT)


if __name__ == "__main__":
    main()
