# SPDX-License-Identifier: Apache-2.0
"""The layer ``arrow``: the direction of the mean of a vector field."""

from __future__ import annotations

import numpy as np
from vtkmodules.vtkFiltersSources import vtkArrowSource
from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper, vtkProp

from forebay.viz.scenes.description import ArrowLayer, SceneDescription
from forebay.viz.scenes.marks import TEXT_HEIGHT, text_in_space
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["DrawnArrow"]

_COLOR = (0.93, 0.95, 0.98)


class DrawnArrow:
    """An arrow along one axis, above the end where the field comes in; hidden while the field is 0."""

    def __init__(self, layer: ArrowLayer, scene: SceneDescription) -> None:
        self._variable = layer.variable
        self.scale = None
        source = vtkArrowSource()
        source.SetTipResolution(24)
        source.SetShaftResolution(16)
        source.SetTipLength(0.28)
        source.SetTipRadius(0.075)
        source.SetShaftRadius(0.024)
        mapper = vtkPolyDataMapper()
        mapper.SetInputConnection(source.GetOutputPort())
        self._arrow = vtkActor()
        self._arrow.SetMapper(mapper)
        self._arrow.GetProperty().SetColor(*_COLOR)
        self._arrow.GetProperty().SetAmbient(0.8)
        self._arrow.GetProperty().SetDiffuse(0.2)
        height = 1.15 * TEXT_HEIGHT * scene.size[1]
        self._label = text_in_space(layer.label, np.zeros(3), height, bold=True, color=_COLOR)
        self.props: list[vtkProp] = [self._arrow, self._label]

    def show(self, fields: StepFields) -> None:
        """See :class:`forebay.viz.scenes.layers.DrawnLayer`."""
        velocity = fields.vector_field(self._variable)
        mean = np.nan_to_num(velocity.reshape(-1, 3).mean(axis=0, dtype=np.float64))
        low, high = fields.corners()
        extent = high - low
        reach = 0.5 * float(min(extent[:2]))
        axis = int(np.argmax(np.abs(mean)))
        flows = bool(abs(mean[axis]) > 1e-12)
        for prop in self.props:
            prop.SetVisibility(flows)
        if not flows:
            return
        way = np.zeros(3)
        way[axis] = np.sign(mean[axis])
        size = 0.95 * reach
        tail = 0.5 * extent - way * (0.5 * extent[axis] - 0.1 * reach)
        tail[1] = 0.5 * extent[1] + 1.3 * reach
        self._arrow.SetScale(size, size, size)
        self._arrow.SetPosition(*(low + tail))
        self._label.SetPosition(*(low + tail + 0.5 * size * way + np.array([0.0, 0.2 * reach, 0.0])))
        # The source's arrow runs along x.
        self._arrow.SetOrientation(0.0, 0.0, 0.0)
        if axis == 0 and way[0] < 0:
            self._arrow.RotateY(180.0)
        elif axis == 1:
            self._arrow.RotateZ(90.0 * way[1])
        elif axis == 2:
            self._arrow.RotateY(-90.0 * way[2])
