# SPDX-License-Identifier: Apache-2.0
"""The example that ParaView runs, and ParaView beside the simulation of the packed cylinder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import forebay
from tests.paraview.conftest import ParaView
from tests.support.example_programs import EXAMPLES
from tests.support.plugin import plugin_library
from tests.support.time_limits import seconds

pytestmark = pytest.mark.timeout(300)


def colours_of(picture: Path) -> int:
    with Image.open(picture) as image:
        return len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0))


def test_example_shows_each_step(reservation: str, tmp_path: Path, paraview_environment: dict[str, str]) -> None:
    example, address = EXAMPLES / "15_paraview.py", f"{reservation}/pulse"
    with subprocess.Popen([sys.executable, example, "write", address]) as producer:
        try:
            shown = subprocess.run(
                ["pvpython", example, "show", address, tmp_path],
                env=paraview_environment,
                stdout=subprocess.PIPE,
                text=True,
                timeout=seconds(200),
                check=False,
            )
            assert shown.returncode == 0
            assert producer.wait(seconds(60)) == 0
        finally:
            producer.kill()
    steps = re.findall(r"^step (\d+) is shown, of time (\S+)$", shown.stdout, re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(12))
    # A picture is of the newest step, which may be newer than the one that was told.
    assert all(float(time) >= 0.5 * int(number) for number, time in steps)
    assert steps[-1][1] == "5.5"
    assert colours_of(tmp_path / "newest.png") > 100


def test_packed_cylinder_is_seen_while_it_is_simulated(reservation: str, tmp_path: Path, paraview: ParaView) -> None:
    address = f"{reservation}/flow"
    program = Path(os.environ["FOREBAY_BUILD_DIR"], "examples", "01_packed_cylinder", "packed_cylinder")
    config = EXAMPLES / "01_packed_cylinder" / "adios2.xml"
    # The demo's small grid; it goes on as long as ParaView looks.
    grid = ["--nx=24", "--ny=24", "--nz=40", "--plenum=7", "--sphere-radius=4", "--solid-fraction=0.42"]
    grid += ["--viscosity=0.04", "--force=1e-4", "--steps=100000", "--iterations-per-step=4", "--checkpoint-every=0"]
    simulation = subprocess.Popen(
        [program, "--config", config, *grid, "--pace-ms=100"],
        env={
            **os.environ,
            "FOREBAY_STREAM": address,
            "FOREBAY_RETENTION": "last:4",
            "ADIOS2_PLUGIN_PATH": str(plugin_library().parent),
        },
    )
    try:
        with forebay.open(address, timeout=seconds(60)) as stream, stream.follow(timeout=seconds(60)) as follower:
            next(follower)
            paraview.do((EXAMPLES / "01_packed_cylinder" / "paraview_live.py").read_text())
            paraview.do(f"scene = Scene({address!r})")
            times = []
            for number in range(3):
                picture = tmp_path / f"{number}.png"
                times.append(paraview.get(f"scene.draw_newest({str(picture)!r})"))
                assert colours_of(picture) > 100
                assert follower.info.committed is not None
                newest = follower.info.committed
                while next(follower).number <= newest:  # so that there is a newer one
                    pass
        assert simulation.poll() is None, "the simulation ended before ParaView had looked"
        assert times == sorted(set(times))
    finally:
        simulation.kill()
        simulation.wait()
