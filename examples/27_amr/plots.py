# SPDX-License-Identifier: Apache-2.0
"""Plotfiles become steps as they appear, and go once they are drawn: ``python plots.py RES``.

Started again after its death it continues: a plotfile whose step is there is passed over.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay.connectors import amrex

FIELD = "density"
RENDERER = "render"  #: the consumer's name of `forebay render`


def number_of(name: str) -> int:
    """6 of ``plt00006`` and of ``plt00006.drawn``."""
    return int(name[3:8])


def finest_grid(plotfile: amrex.Plotfile, field: str) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """A field on the whole domain in cells of the finest level, and of which level each value is.

    Finer levels lie over coarser ones; a coarse cell's value stands in all fine cells of its place.
    """
    shape = plotfile.levels[-1].domain.count
    values, levels = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    for number, level in enumerate(plotfile.levels):
        ratio = shape[0] // level.domain.count[0]
        for box, _, cells in plotfile.blocks(number, [field]):
            starts = [(first - zero) * ratio for first, zero in zip(box.low, level.domain.low, strict=True)][::-1]
            place = tuple(slice(first, first + count * ratio) for first, count in zip(starts, box.count, strict=True))
            for axis in range(3):
                cells = np.repeat(cells, ratio, axis)
            values[place], levels[place] = cells, number
    return values, levels


def write_step(stream: forebay.WritableStream, path: str) -> None:
    """All levels of the field, each with a block for each box, and what the renderer draws."""
    plotfile = amrex.Plotfile.read(path)
    with stream.step(number_of(Path(path).name)) as step:
        amrex.write_step(step, plotfile, [FIELD])
        # The renderer's grid is that of the finest level.
        step.attributes["spacing"] = np.array(plotfile.levels[-1].spacing)
        step["finest"], step["level"] = finest_grid(plotfile, FIELD)


def drop_drawn(reservation: str) -> int:
    """Removes the plotfiles of which there is a frame on disk; returns how many are left."""
    with forebay.Admin() as admin:
        folder = Path(admin.reservation(reservation).files_path) / "run"
        consumers = admin.stream(f"{reservation}/plots").consumers
    drawn = next((consumer.position for consumer in consumers if consumer.name == RENDERER), 0)
    for path in folder.glob("plt?????"):
        if number_of(path.name) < drawn:
            # At once by a name that nobody follows: half a plotfile is none.
            path.rename(path.with_suffix(".drawn"))
    for path in folder.glob("plt?????.drawn"):
        shutil.rmtree(path)
    return len(list(folder.glob("plt?????")))


def main() -> None:
    (reservation,) = sys.argv[1:]
    most = written = 0
    # A step is kept until it is drawn.
    with forebay.open(f"{reservation}/plots", "a", rank=0, ranks=1, retention=f"consumers:{RENDERER}") as stream:
        for file in forebay.follow_files(f"{reservation}:run", "plt?????", "plots", until="finished"):
            if number_of(file.name) >= stream.next_step:
                write_step(stream, file.path)
                written += 1
            file.done()
            most = max(most, drop_drawn(reservation))
    print(f"{written} plotfiles became steps; at most {most} lay there at once")


if __name__ == "__main__":
    main()
