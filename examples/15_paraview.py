# SPDX-License-Identifier: Apache-2.0
"""ParaView shows a running stream: an iso-surface and a cut of each newest step, without files in between.

It runs in ParaView's Python, which finds the package ``forebay`` by PYTHONPATH (docs/consumers/paraview.md). It needs a
running instance and a reservation, and a producer in another terminal:

    forebay up && forebay create demo --capacity 256MiB
    python examples/15_paraview.py write demo/pulse
    pvpython examples/15_paraview.py show demo/pulse pictures
"""

import sys
from pathlib import Path

import numpy as np

import forebay

STEPS = 12


def write(address: str) -> None:
    """The simulation: a pulse that runs along x. It begins when somebody looks."""
    z, y, x = np.mgrid[:32, :32, :64].astype(np.float32)
    with forebay.open(address, mode="w", rendezvous_readers=1) as stream:
        stream.attributes["spacing"] = 0.1
        for number in range(STEPS):
            with stream.step() as step:
                step["density"] = np.exp(-((x - 5 * number) ** 2 + (y - 16) ** 2 + (z - 16) ** 2) / 60)
                step["time"] = 0.5 * number


def show(address: str, folder: Path) -> None:
    """ParaView: looks for new steps, and draws the newest one."""
    from paraview import simple

    from forebay.viz import paraview

    with forebay.open(address) as stream, stream.follow() as follower:
        source = None
        for step in follower:
            if source is None:
                source = paraview.source(address)
                view = simple.GetActiveViewOrCreate("RenderView")
                values = simple.CellDatatoPointData(Input=source)
                surface = simple.Contour(Input=values, ContourBy=["POINTS", "density"], Isosurfaces=[0.5])
                cut = simple.Slice(Input=values, SliceType="Plane")
                cut.SliceType.Origin, cut.SliceType.Normal = [3.2, 1.6, 1.6], [0, 0, 1]
                for shown in (surface, cut):
                    display = simple.Show(shown, view)
                    simple.ColorBy(display, ("POINTS", "density"))
                simple.GetColorTransferFunction("density").RescaleTransferFunction(0.0, 1.0)
                simple.ResetCamera(view)
            time = paraview.refresh(source, view)
            simple.SaveScreenshot(str(folder / "newest.png"), view, ImageResolution=[640, 480])
            print(f"step {step.number} is shown, of time {time:g}", flush=True)


def main() -> None:
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        folder = Path(sys.argv[3])
        folder.mkdir(parents=True, exist_ok=True)
        show(sys.argv[2], folder)


if __name__ == "__main__":
    main()
