# SPDX-License-Identifier: Apache-2.0
"""ParaView's source of live streams, in Debian's ParaView: values, times, new steps by Refresh, and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import forebay
from tests.paraview.conftest import ParaView
from tests.viz.conftest import field, write_flow

pytestmark = pytest.mark.timeout(300)

#: Cells of the tests' grid, and where it lies.
POINTS = [11, 9, 7]


def test_source_has_the_step_s_grid_values_and_times(reservation: str, paraview: ParaView) -> None:
    write_flow(f"{reservation}/flow", 0, 3)
    paraview.do(f"source = forebay_paraview.source('forebay://{reservation}/flow')")
    assert paraview.get("list(source.TimestepValues)") == [0.0, 0.25, 0.5]
    for number in range(3):
        values = np.array(paraview.get(f"cells(source, 'T', {0.25 * number})"), np.float32)
        np.testing.assert_array_equal(values, field(number).reshape(-1))
    velocity = np.array(paraview.get("cells(source, 'velocity')"), np.float32)
    np.testing.assert_array_equal(velocity[:, 2], 3 * field(2).reshape(-1))
    paraview.do("image = servermanager.Fetch(source)")
    assert paraview.get("list(image.GetDimensions())") == POINTS
    assert paraview.get("[list(image.GetOrigin()), list(image.GetSpacing())]") == [[1.0, 2.0, 3.0], [0.5] * 3]
    # ParaView's own filters take it.
    paraview.do("threshold = simple.Threshold(Input=source, Scalars=['CELLS', 'T'], LowerThreshold=0.5)")
    paraview.do("threshold.UpdatePipeline(0.5)")
    expected = int((field(2) >= 0.5).sum())
    assert paraview.get("threshold.GetDataInformation().GetNumberOfCells()") == expected


def test_refresh_sees_the_steps_of_a_running_stream(reservation: str, paraview: ParaView, tmp_path: Path) -> None:
    address, picture = f"{reservation}/live", tmp_path / "newest.png"
    with forebay.open(address, mode="w", retention="last:2") as stream:
        for number in (0, 1):
            with stream.step() as step:
                step["T"], step["time"] = field(number), 0.25 * number
        paraview.do(f"source = forebay_paraview.source('{address}'); view = simple.GetActiveViewOrCreate('RenderView')")
        paraview.do("simple.Show(source, view); simple.ColorBy(simple.GetDisplayProperties(source), ('CELLS', 'T'))")
        assert paraview.get("list(source.TimestepValues)") == [0.0, 0.25]
        for number in (2, 3, 4):
            with stream.step() as step:
                step["T"], step["time"] = field(number), 0.25 * number
            assert paraview.get("forebay_paraview.refresh(source, view)") == 0.25 * number
            assert paraview.get("[source.TimestepValues[-1], view.ViewTime]") == [0.25 * number] * 2
        values = np.array(paraview.get("cells(source, 'T')"), np.float32)
        np.testing.assert_array_equal(values, field(4).reshape(-1))
        paraview.do("simple.GetColorTransferFunction('T').RescaleTransferFunction(0, 1)")
        paraview.do("display = simple.GetDisplayProperties(source); display.Representation = 'Surface'")
        paraview.do(f"simple.ResetCamera(view); simple.SaveScreenshot({str(picture)!r}, view)")
    with Image.open(picture) as image:
        # The bump is there in its colours, before ParaView's even background.
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 50
    assert paraview.get("messages.GetOutput()") == ""


def test_variables_are_chosen_by_name(reservation: str, paraview: ParaView) -> None:
    write_flow(f"{reservation}/flow", 0, 1)
    paraview.do(f"source = forebay_paraview.source('{reservation}/flow'); source.Variables = 'velocity'")
    paraview.do("source.UpdatePipeline()")
    assert paraview.get("source.CellData.keys()") == ["velocity"]


def test_errors_are_told_in_paraview_s_messages(reservation: str, paraview: ParaView) -> None:
    paraview.do(f"source = forebay_paraview.source('{reservation}/none'); source.UpdatePipeline()")
    told = paraview.get("messages.GetOutput()")
    assert "ForebayStream: " in told
    assert f"{reservation}/none" in told
    # It is there when it comes.
    write_flow(f"{reservation}/none", 0, 2)
    assert paraview.get("forebay_paraview.refresh(source)") == 0.25
    with forebay.open(f"{reservation}/none", mode="w") as stream, stream.step() as step:
        step["spectrum"] = np.zeros(4)
    paraview.do("messages.__class__; source.SMProxy.InvokeCommand('Refresh'); source.UpdatePipeline()")
    assert "there is no grid" in paraview.get("messages.GetOutput()")


def test_shown_step_outlives_its_drop(reservation: str, paraview: ParaView) -> None:
    address = f"{reservation}/short"
    with forebay.open(address, mode="w", retention="last:1") as stream:
        with stream.step() as step:
            step["T"] = field(0)
        paraview.do(f"source = forebay_paraview.source('{address}')")
        paraview.do("source.UpdatePipeline(); kept = servermanager.Fetch(source)")
        for number in (1, 2, 3):
            with stream.step() as step:
                step["T"] = field(number)
        # The view that ParaView holds is a pin: its bytes stay.
        values = np.array(paraview.get("cells(source, 'T', 0.0)"), np.float32)
        np.testing.assert_array_equal(values, field(0).reshape(-1))
        assert paraview.get("forebay_paraview.refresh(source)") == 3.0


def test_dropped_step_is_told_and_the_oldest_kept_one_is_shown(reservation: str, paraview: ParaView) -> None:
    address = f"{reservation}/gone"
    with forebay.open(address, mode="w") as stream:
        for number in range(4):
            with stream.step() as step:
                step["T"] = field(number)
    paraview.do(f"source = forebay_paraview.source('{address}')")
    with forebay.Admin() as admin:
        admin.set_retention(address, "last:2")
    values = np.array(paraview.get("cells(source, 'T', 0.0)"), np.float32)
    np.testing.assert_array_equal(values, field(2).reshape(-1))
    told = paraview.get("messages.GetOutput()")
    assert "step 2 is shown" in told
    assert f"{address}" in told
    assert paraview.get("source.GetDataInformation().GetTime()") == 2.0
