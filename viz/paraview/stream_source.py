# SPDX-License-Identifier: Apache-2.0
"""A plugin for ParaView: the source *ForebayStream* reads the steps of a running stream from the staging server.

A time of ParaView is a step. Arrays are the steps' own bytes where one block covers a variable: nothing is copied, and
the step stays pinned while ParaView shows it. ParaView does not ask a source for new times by itself, so the source has
a button *Refresh*. It runs in ParaView's Python with NumPy alone beside the package ``forebay``.
"""

from __future__ import annotations

import bisect
import itertools
from typing import Any

import numpy as np
from paraview.util.vtkAlgorithm import smhint, smproperty, smproxy
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.util.vtkAlgorithm import VTKPythonAlgorithmBase
from vtkmodules.vtkCommonCore import vtkOutputWindow
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline

import forebay
from forebay.viz.grid import Grid

__all__ = ["ForebayStream"]

_TIME_STEP = vtkStreamingDemandDrivenPipeline.UPDATE_TIME_STEP


@smproxy.source(name="ForebayStream", label="ForebayStream")
@smhint.xml('<ShowInMenu category="Forebay"/>')
class ForebayStream(VTKPythonAlgorithmBase):
    """The steps of a stream, each as image data with a value for each cell."""

    def __init__(self) -> None:
        super().__init__(nInputPorts=0, nOutputPorts=1, outputType="vtkImageData")
        self._address, self._instance, self._names = "", "", ""
        self._stream: forebay.Stream | None = None
        self._numbers: list[int] = []
        self._times: list[float] = []

    @smproperty.stringvector(name="Address", default_values="")
    def SetAddress(self, address: str) -> None:  # noqa: N802 - ParaView's way of naming
        """RES/STREAM."""
        self._choose("_address", address)

    @smproperty.stringvector(name="Instance", default_values="", panel_visibility="advanced")
    def SetInstance(self, instance: str) -> None:  # noqa: N802
        """The instance's root or socket; empty: that of the environment."""
        self._choose("_instance", instance)

    @smproperty.stringvector(name="Variables", default_values="", panel_visibility="advanced")
    def SetVariables(self, names: str) -> None:  # noqa: N802
        """What to read, separated by commas; empty: all on the grid."""
        self._choose("_names", names)

    @smproperty.xml('<Property name="Refresh" command="Refresh" panel_widget="command_button"/>')
    def Refresh(self) -> None:  # noqa: N802
        """Looks for new steps."""
        self.Modified()

    @smproperty.doublevector(name="TimestepValues", information_only="1", si_class="vtkSITimeStepsProperty")
    def GetTimestepValues(self) -> list[float]:  # noqa: N802
        """The simulated times of the steps, else their numbers."""
        return self._times

    def RequestInformation(self, _request: Any, _inputs: Any, outputs: Any) -> int:  # noqa: N802
        """Which steps there are, and how large the grid of the newest one is."""
        information = outputs.GetInformationObject(0)
        for key in (self._key().TIME_STEPS(), self._key().TIME_RANGE()):
            information.Remove(key)
        if not self._address:
            return 1
        try:
            self._look()
            if not self._times:
                return 1
            grid = self._grid(self._numbers[-1])
        except (forebay.ForebayError, ValueError) as error:
            return self._tell(error)
        information.Set(self._key().TIME_STEPS(), self._times, len(self._times))
        information.Set(self._key().TIME_RANGE(), (self._times[0], self._times[-1]), 2)
        information.Set(self._key().WHOLE_EXTENT(), _extent(grid), 6)
        return 1

    def RequestData(self, _request: Any, _inputs: Any, outputs: Any) -> int:  # noqa: N802
        """The step of the time that is asked for: the last one that is not later."""
        if not self._times:
            return 1
        information = outputs.GetInformationObject(0)
        time = information.Get(_TIME_STEP()) if information.Has(_TIME_STEP()) else self._times[-1]
        place = max(bisect.bisect_right(self._times, time) - 1, 0)
        try:
            try:
                grid = self._grid(self._numbers[place])
            except (forebay.StepGoneError, forebay.StepNotFoundError) as error:
                # Retention has dropped it since the last look. A failure here would fail every filter behind it.
                self._look()
                if not self._numbers:
                    raise
                place = max(bisect.bisect_right(self._times, time) - 1, 0)
                grid = self._grid(self._numbers[place])
                self._tell(f"{error}; step {self._numbers[place]} is shown. Refresh looks for what there is")
        except (forebay.ForebayError, ValueError) as error:
            return self._tell(error)
        image = vtkImageData.GetData(outputs, 0)
        image.SetExtent(*_extent(grid))
        image.SetOrigin(*grid.origin)
        image.SetSpacing(*grid.spacing)
        for name, field in grid.fields.items():
            components = field.shape[3] if field.ndim == 4 else 1
            array = numpy_to_vtk(np.ascontiguousarray(field).reshape(-1, components), deep=0)
            array.SetName(name)
            image.GetCellData().AddArray(array)
        image.GetInformation().Set(image.DATA_TIME_STEP(), self._times[place])
        return 1

    def _choose(self, name: str, text: str) -> None:
        if getattr(self, name) != (text or ""):
            setattr(self, name, text or "")
            self._close()
            self.Modified()

    def _look(self) -> None:
        """The steps that the stream has now."""
        if self._stream is None:
            self._stream = forebay.open(self._address, instance=self._instance or None, timeout=0)
        try:
            found = self._stream.steps_at()
        except forebay.StreamNotFoundError:
            self._close()  # another stream may have the name now
            raise
        self._numbers = [int(number) for number in found.numbers]
        times = [float(number) for number in self._numbers]
        if len(found) and all("time" in layout and not layout["time"].shape for layout in found.layouts):
            simulated = [float(value) for value in found.values("time")]
            # ParaView needs times that grow.
            if all(earlier < later for earlier, later in itertools.pairwise(simulated)):
                times = simulated
        self._times = times

    def _grid(self, number: int) -> Grid:
        assert self._stream is not None
        names = [name.strip() for name in self._names.split(",") if name.strip()]
        with self._stream[number] as step:
            grid = Grid.of_step(step, names or None)
        if grid.edges is not None:
            raise forebay.UnsupportedError(
                "the cells have different sides, which this source does not show: publish the stream with "
                "--for paraview --format xdmf",
                f"stream {self._stream.address}@{number}",
            )
        return grid

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        self._numbers, self._times = [], []
        if stream is not None:
            stream.close()

    def _tell(self, error: Exception | str) -> int:
        """Says what is wrong where ParaView shows messages; 0, as for a request that failed."""
        vtkOutputWindow.GetInstance().DisplayErrorText(f"ForebayStream: {error}\n")
        return 0

    @staticmethod
    def _key() -> Any:
        return vtkStreamingDemandDrivenPipeline


def _extent(grid: Grid) -> tuple[int, int, int, int, int, int]:
    z, y, x = grid.shape
    return 0, x, 0, y, 0, z
