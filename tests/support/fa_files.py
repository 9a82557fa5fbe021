# SPDX-License-Identifier: Apache-2.0
"""Writes FA and LFI files with epygram: ``python -m tests.support.fa_files PATH KIND HOUR NAME...``.

A process of its own: having written FA, the library under epygram often aborts at the end of the interpreter.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["NX", "NY", "write_file"]

#: Points along x and y, in FA with the extension zone, in LFI with the halo.
NX, NY = 40, 30


def write_file(path: Path, kind: str, hour: int, names: Sequence[str]) -> None:
    """Writes random fields, other ones for each hour and place."""
    command = [sys.executable, "-m", "tests.support.fa_files", str(path), kind, str(hour), *names]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr


def _geometry(kind: str) -> Any:
    """A Lambert grid as Arome has it; in FA with an extension zone of 11 rows and columns."""
    import epygram

    angle = epygram.util.Angle
    dimensions: dict[str, int] = {"X": NX, "Y": NY}
    if kind == "FA":
        inner, width = 11, 4
        dimensions |= {"X_CIzone": NX - inner, "Y_CIzone": NY - inner, "X_Iwidth": width, "Y_Iwidth": width}
        dimensions |= {"X_Czone": NX - inner - 2 * width, "Y_Czone": NY - inner - 2 * width}
        dimensions |= {"X_CIoffset": 0, "Y_CIoffset": 0}
    return epygram.geometries.ProjectedGeometry(
        name="lambert",
        grid={
            "X_resolution": 2500.0,
            "Y_resolution": 2500.0,
            "input_position": ((NX - 1) / 2, (NY - 1) / 2),
            "input_lon": angle(2.0, "degrees"),
            "input_lat": angle(46.7, "degrees"),
            "LAMzone": "CIE" if kind == "FA" else None,
        },
        dimensions=dimensions,
        projection={
            "reference_lon": angle(2.0, "degrees"),
            "reference_lat": angle(46.7, "degrees"),
            "rotation": angle(0.0, "degrees"),
        },
        position_on_horizontal_grid="center",
        vcoordinate=epygram.geometries.VGeometry(
            typeoffirstfixedsurface=1,
            levels=[0],
            position_on_grid="mass",
            # Three levels of the model.
            grid={
                "gridlevels": tuple((number + 1, {"Ai": 0.0, "Bi": number / 3}) for number in range(4)),
                "ABgrid_position": "flux",
            },
        ),
    )


def _write(path: str, kind: str, hour: int, names: Sequence[str]) -> None:
    import epygram

    epygram.init_env()
    validity = epygram.base.FieldValidityList(
        epygram.base.FieldValidity(basis=datetime.datetime(2026, 11, 27, 12), term=datetime.timedelta(hours=hour))
    )
    options: Mapping[str, Any] = {"validity": validity} if kind == "FA" else {}
    file = epygram.formats.resource(path, "w", fmt=kind, **options)
    for number, name in enumerate(names):
        field = epygram.fields.H2DField(
            structure="H2D",
            fid={kind: name if kind == "FA" else (name, 0)},
            geometry=_geometry(kind),
            validity=validity,
            comment="made by a test",
        )
        field.setdata(250 + 20 * np.random.default_rng([hour, number]).random((NY, NX)))
        file.writefield(field)
    file.close()


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    sys.stderr.flush()
    os._exit(0)
