# SPDX-License-Identifier: Apache-2.0
"""The layer ``cutaway``: a solid with a quarter left open, and a variable on the faces of the cut."""

from __future__ import annotations

from vtkmodules.vtkCommonDataModel import vtkPolyData
from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper, vtkProp

from forebay.viz.scenes.colors import ColorScale, color_table
from forebay.viz.scenes.description import Color, CutawayLayer, Quality, SceneDescription
from forebay.viz.scenes.faces import CutFaces
from forebay.viz.scenes.solid import Solid, end_rings, solid_surface
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["DrawnCutaway"]

_RING_COLOR = (0.62, 0.69, 0.80)


class DrawnCutaway:
    """What depends on the solid alone is made anew only when the solid changes."""

    def __init__(self, layer: CutawayLayer, scene: SceneDescription) -> None:
        self._layer, self._quality = layer, scene.quality
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self.props: list[vtkProp] = []
        self._solid: Solid | None = None
        self._faces: CutFaces | None = None

    def show(self, fields: StepFields) -> None:
        """Paints the faces; see :class:`forebay.viz.scenes.layers.DrawnLayer`."""
        solid = Solid.of_step(fields, self._layer)
        if self._solid is None or self._faces is None or not solid.same(self._solid):
            self._faces = CutFaces(solid, color_table(self._layer.colors), 6 if self._quality is Quality.FULL else 3)
            actors = [_actor(solid_surface(solid, self._quality), self._layer.color), *self._faces.actors]
            actors[0].GetProperty().SetSpecular(0.35)
            actors[0].GetProperty().SetSpecularPower(30)
            if solid.cylinder_radius:
                actors.append(_actor(end_rings(solid), _RING_COLOR))
            low, _ = fields.corners()
            for actor in actors:
                actor.SetPosition(*low)
            self.props = [*actors]
            self._solid = solid
        values = fields.magnitude(self._layer.variable)
        self._faces.paint(values, *self.scale.fit_from_zero(values[solid.cells == 0]))


def _actor(surface: vtkPolyData, color: Color) -> vtkActor:
    mapper = vtkPolyDataMapper()
    mapper.SetInputData(surface)
    mapper.ScalarVisibilityOff()
    actor = vtkActor()
    actor.SetMapper(mapper)
    actor.GetProperty().SetColor(*color)
    actor.GetProperty().SetAmbient(0.12)
    actor.GetProperty().SetDiffuse(0.82)
    return actor
