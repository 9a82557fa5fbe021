# SPDX-License-Identifier: Apache-2.0
"""The packed cylinder in ParaView while it is simulated: the solid cut open, and the speed of the flow on the cut.

It runs in ParaView's Python, which finds the package ``forebay`` by PYTHONPATH (docs/consumers/paraview.md):

    pvpython paraview_live.py run1/flow newest.png
"""

from __future__ import annotations

import sys
from typing import Any

from paraview import simple

import forebay
from forebay.viz import paraview

#: The speed of the settled flow, as in scene.toml.
FASTEST = 0.025


class Scene:
    """A view of the stream; the newest step is drawn when it is asked for."""

    def __init__(self, address: str) -> None:
        self.source = paraview.source(address)
        newest = self.source.TimestepValues[-1]
        self.source.UpdatePipeline(newest)
        self.view: Any = simple.CreateView("RenderView", ViewSize=[960, 720], Background=[0.05, 0.06, 0.09])
        self.view.UseColorPaletteForBackground = 0
        self.view.ViewTime = newest
        left, right, bottom, top, front, back = self.source.GetDataInformation().GetBounds()
        middle = [(left + right) / 2, (bottom + top) / 2, (front + back) / 2]
        values = simple.CellDatatoPointData(Input=self.source)

        half = simple.Clip(Input=values, ClipType="Plane")
        half.ClipType.Origin, half.ClipType.Normal = middle, [1, 0, 0]
        solid = simple.Contour(Input=half, ContourBy=["POINTS", "solid"], Isosurfaces=[0.5])
        self._show(solid, None)

        cut = simple.Slice(Input=values, SliceType="Plane")
        cut.SliceType.Origin, cut.SliceType.Normal = middle, [1, 0, 0]
        self._show(simple.Clip(Input=cut, ClipType="Scalar", Scalars=["POINTS", "solid"], Value=0.5), "velocity")

        colours = simple.GetColorTransferFunction("velocity")
        colours.ApplyPreset("Inferno (matplotlib)", True)
        colours.RescaleTransferFunction(0.0, FASTEST)
        self.view.CameraFocalPoint = middle
        self.view.CameraPosition = [middle[0] + 2.0, middle[1] + 0.7, middle[2] - 0.5]
        self.view.CameraViewUp = [0, 1, 0]
        simple.ResetCamera(self.view)
        simple.GetActiveCamera().Zoom(1.4)

    def draw_newest(self, picture: str) -> float | None:
        """Looks for new steps, draws the newest one to a file, and returns its time."""
        time = paraview.refresh(self.source, self.view)
        simple.SaveScreenshot(picture, self.view)
        return time

    def _show(self, source: Any, coloured_by: str | None) -> None:
        display = simple.Show(source, self.view)
        if coloured_by is None:
            simple.ColorBy(display, None)
            display.AmbientColor = display.DiffuseColor = [0.74, 0.77, 0.82]
        else:
            simple.ColorBy(display, ("POINTS", coloured_by, "Magnitude"))


def main() -> None:
    address, picture = sys.argv[1:]
    with forebay.open(address) as stream:
        scene = None
        for step in stream.follow(start="latest", latest_only=True):
            scene = scene or Scene(address)
            print(f"step {step.number}: {picture} is of time {scene.draw_newest(picture)}", flush=True)


if __name__ == "__main__":
    main()
