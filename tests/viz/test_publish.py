# SPDX-License-Identifier: Apache-2.0
"""Published files are what VTK's reader and yt's Chombo reader take them for, also while they are published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkIOXML import vtkXMLImageDataReader

import forebay
from forebay.viz.publishing.publication import Publication, Viewer
from tests.support.load import until
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds
from tests.viz.conftest import SHAPE, field, write_flow


def publish(address: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "publish", address, str(folder), *arguments, "--timeout", "60"]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds(110), check=False)


def told(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def series(index: Path) -> dict[float, str]:
    """Times and files of a PVD index."""
    entries = ElementTree.parse(index).getroot().iter("DataSet")
    return {float(entry.attrib["timestep"]): entry.attrib["file"] for entry in entries}


def test_vtk_reads_each_step(flow: str, tmp_path: Path) -> None:
    done = publish(flow, tmp_path, "--for", "paraview", "--json")
    assert told(done) == {"published": 4, "steps": [0, 1, 2, 3], "index": str(tmp_path / "flow.pvd")}
    assert "spectrum is not published: its shape is (4,)" in done.stderr
    files = series(tmp_path / "flow.pvd")
    assert sorted(files) == [0.0, 0.25, 0.5, 0.75]
    for number in range(4):
        reader = vtkXMLImageDataReader()
        reader.SetFileName(str(tmp_path / files[0.25 * number]))
        reader.Update()
        image = reader.GetOutput()
        assert image.GetSpacing() == (0.5, 0.5, 0.5)
        assert image.GetOrigin() == (1.0, 2.0, 3.0)
        assert image.GetDimensions() == (11, 9, 7)
        cells = image.GetCellData()
        np.testing.assert_array_equal(vtk_to_numpy(cells.GetArray("T")).reshape(SHAPE), field(number))
        velocity = vtk_to_numpy(cells.GetArray("velocity")).reshape(*SHAPE, 3)
        np.testing.assert_array_equal(velocity[..., 2], 3 * field(number))
        assert image.GetFieldData().GetArray("TimeValue").GetValue(0) == 0.25 * number


def test_yt_reads_each_step_as_a_series(flow: str, tmp_path: Path) -> None:
    yt = pytest.importorskip("yt", reason="yt is not installed: pip install yt")
    assert told(publish(flow, tmp_path, "--for", "yt", "--json"))["steps"] == [0, 1, 2, 3]
    yt.set_log_level("error")
    loaded = yt.DatasetSeries(str(tmp_path / "plt*.3d.hdf5"))
    assert len(loaded) == 4
    for number, dataset in enumerate(loaded):
        assert float(dataset.current_time) == 0.25 * number
        grid = dataset.covering_grid(0, dataset.domain_left_edge, dataset.domain_dimensions)
        np.testing.assert_array_equal(np.asarray(grid["chombo", "T"]).transpose(2, 1, 0), field(number))
        np.testing.assert_array_equal(np.asarray(grid["chombo", "velocity_y"]).transpose(2, 1, 0), 2 * field(number))


def xdmf_steps(index: Path) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Time, T and the third component of velocity of each step, as VTK's reader gives them."""
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline
    from vtkmodules.vtkIOXdmf2 import vtkXdmfReader

    reader = vtkXdmfReader()
    reader.SetFileName(str(index))
    reader.UpdateInformation()
    times = reader.GetOutputInformation(0).Get(vtkStreamingDemandDrivenPipeline.TIME_STEPS()) or (0.0,)
    found = []
    for time in times:
        reader.UpdateTimeStep(time)
        image = reader.GetOutputDataObject(0)
        assert image.GetSpacing() == (0.5, 0.5, 0.5)
        assert image.GetOrigin() == (1.0, 2.0, 3.0)
        assert image.GetDimensions() == (11, 9, 7)
        cells = image.GetCellData()
        velocity = vtk_to_numpy(cells.GetArray("velocity")).reshape(*SHAPE, 3)
        found.append((time, vtk_to_numpy(cells.GetArray("T")).reshape(SHAPE).copy(), velocity[..., 2].copy()))
    return found


def test_vtk_reads_xdmf_over_hdf5_and_publishing_continues_it(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    write_flow(address, 0, 2)
    options = ("--for", "paraview", "--format", "xdmf", "--json")
    assert told(publish(address, tmp_path, *options))["index"] == str(tmp_path / "flow.xdmf")
    write_flow(address, 2, 4, mode="a")
    assert told(publish(address, tmp_path, *options)) == {
        "published": 2,
        "steps": [0, 1, 2, 3],
        "index": str(tmp_path / "flow.xdmf"),
    }
    steps = xdmf_steps(tmp_path / "flow.xdmf")
    assert [time for time, _, _ in steps] == [0.0, 0.25, 0.5, 0.75]
    for number, (_, temperature, component) in enumerate(steps):
        np.testing.assert_array_equal(temperature, field(number))
        np.testing.assert_array_equal(component, 3 * field(number))
    (tmp_path / "flow.xdmf").write_text("no index")
    assert "was not written by forebay publish" in publish(address, tmp_path, *options[:-1]).stderr


def test_xdmf_is_for_paraview_alone(flow: str, tmp_path: Path) -> None:
    done = publish(flow, tmp_path, "--for", "yt", "--format", "xdmf")
    assert done.returncode == 1
    assert "--format xdmf goes with --for paraview" in done.stderr


#: Records the commands that a script gives. It is not VisIt, which was not at hand.
FAKE_VISIT = """
import os, runpy, sys
folder = sys.argv[1]
calls = []

class Named:
    name = "T"
    PNG = 4

def recorded(command, result=None):
    def call(*arguments):
        calls.append(command)
        if command == "SaveWindow":
            with open(os.path.join(folder, "calls"), "a") as file:
                file.write(" ".join(calls) + "\\n")
            calls.clear()
        return result
    return call

class MetaData:
    def GetScalars(self, number):
        return Named()

def states():
    with open(os.path.join(folder, "flow.visit")) as file:
        return len(file.read().splitlines())

commands = {name: recorded(name) for name in ("OpenDatabase", "AddPlot", "DrawPlots", "SetTimeSliderState",
    "SetSaveWindowAttributes", "SaveWindow", "CheckForNewStates")}
commands |= {"TimeSliderGetNStates": states, "SaveWindowAttributes": Named, "GetMetaData": lambda name: MetaData()}
runpy.run_path(os.path.join(folder, "visit_follow.py"), init_globals=commands)
"""


def test_script_for_visit_draws_each_newest_state(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    write_flow(address, 0, 2)
    publish(address, tmp_path, "--for", "visit")
    environment = os.environ | {"VISIT_FOLLOW_IDLE_SECONDS": "20"}
    following = subprocess.Popen([sys.executable, "-c", FAKE_VISIT, str(tmp_path)], env=environment)
    calls = tmp_path / "calls"
    try:
        until(lambda: calls.exists(), "the first picture")
        write_flow(address, 2, 3, mode="a")
        publish(address, tmp_path, "--for", "visit")
        until(lambda: "CheckForNewStates" in calls.read_text(), "a picture of the new state")
    finally:
        following.kill()
        following.wait()
    first, second = calls.read_text().splitlines()[:2]
    assert first == "OpenDatabase AddPlot DrawPlots SetTimeSliderState SetSaveWindowAttributes SaveWindow"
    assert second == "CheckForNewStates SetTimeSliderState SetSaveWindowAttributes SaveWindow"


def test_visit_has_an_index_of_whole_files(flow: str, tmp_path: Path) -> None:
    """No VisIt was at hand: what its Chombo reader opens is compared with its source's list of attributes."""
    publish(flow, tmp_path, "--for", "visit")
    assert (tmp_path / "flow.visit").read_text().splitlines() == [f"plt{number:06d}.3d.hdf5" for number in range(4)]
    with h5py.File(tmp_path / "plt000003.3d.hdf5") as file:
        assert file["Chombo_global"].attrs["SpaceDim"] == 3
        assert {"time", "iteration", "num_levels", "max_level", "num_components", "component_0"} <= set(file.attrs)
        level = file["level_0"]
        assert {"dx", "ref_ratio", "prob_domain", "time"} <= set(level.attrs)
        assert {"boxes", "data:datatype=0", "data_attributes"} <= set(level)
        assert "outputGhost" in level["data_attributes"].attrs
        assert file.attrs["prob_lo"].tolist() == [1.0, 2.0, 3.0]


def test_started_again_it_continues(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    write_flow(address, 0, 2)
    assert told(publish(address, tmp_path, "--for", "paraview", "--json"))["published"] == 2
    before = (tmp_path / "flow.000001.vti").stat().st_ino
    write_flow(address, 2, 4, mode="a")
    assert told(publish(address, tmp_path, "--for", "paraview", "--json"))["published"] == 2
    assert sorted(series(tmp_path / "flow.pvd")) == [0.0, 0.25, 0.5, 0.75]
    assert (tmp_path / "flow.000001.vti").stat().st_ino == before


def test_another_folder_gets_all_kept_steps(flow: str, tmp_path: Path) -> None:
    for folder in ("one", "other", "one"):
        assert told(publish(flow, tmp_path / folder, "--for", "paraview", "--json"))["steps"] == [0, 1, 2, 3]
    write_flow(flow, 2, 5, mode="a", append_after=1)
    for folder in ("one", "other"):
        assert told(publish(flow, tmp_path / folder, "--for", "paraview", "--json"))["steps"] == [0, 1, 2, 3, 4]


# crash-matrix: forebay publish | the producer is rewound by a restart | withdrawn steps leave the index before their files go
def test_withdrawn_steps_are_taken_out(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    write_flow(address, 0, 4)
    publish(address, tmp_path, "--for", "paraview")
    write_flow(address, 2, 3, mode="a", append_after=1)
    assert told(publish(address, tmp_path, "--for", "paraview", "--json"))["steps"] == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.glob("*.vti")) == [f"flow.{number:06d}.vti" for number in range(3)]


# crash-matrix: forebay publish | it dies between a step's file and the index | the index names whole steps; the step is published again
def test_step_that_is_not_in_the_index_is_published_again(flow: str, tmp_path: Path) -> None:
    with forebay.open(flow) as stream:
        publication = Publication(tmp_path, Viewer.PARAVIEW, "flow")
        publication.publish(stream[0])
        index = publication.index.read_text()
        publication.publish(stream[1])
    publication.index.write_text(index)  # as if it had died before
    (tmp_path / ".flow.000002.vti.part").write_text("half a step")
    again = Publication(tmp_path, Viewer.PARAVIEW, "flow")
    assert again.steps == [0]
    assert not list(tmp_path.glob(".*.part"))
    assert told(publish(flow, tmp_path, "--for", "paraview", "--json"))["steps"] == [0, 1, 2, 3]


@pytest.mark.parametrize("repeated", [0.0, 1.0, 1e-12, -3.5, float("nan")])
def test_each_step_has_a_time_of_its_own(reservation: str, tmp_path: Path, repeated: float) -> None:
    """Viewers show one step for each time."""
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        for _ in range(4):
            with stream.step() as step:
                step["T"], step["time"] = np.zeros((2, 3, 4)), repeated
    assert told(publish(f"{reservation}/flow", tmp_path, "--for", "paraview", "--json"))["published"] == 4
    found = series(tmp_path / "flow.pvd")
    assert sorted(found.values()) == [f"flow.{number:06d}.vti" for number in range(4)]
    assert list(found.values()) == [found[time] for time in sorted(found)]
    if np.isfinite(repeated):
        assert max(found) == pytest.approx(repeated, rel=1e-14, abs=1e-14)


def test_a_field_of_two_dimensions_is_published_as_one_layer(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/flat", mode="w") as stream:
        stream.attributes["spacing"] = np.array([0.5, 0.25])
        with stream.step() as step:
            step["T"] = np.arange(12.0).reshape(3, 4)
    told(publish(f"{reservation}/flat", tmp_path, "--for", "paraview", "--json"))
    reader = vtkXMLImageDataReader()
    reader.SetFileName(str(tmp_path / "flat.000000.vti"))
    reader.Update()
    assert reader.GetOutput().GetDimensions() == (5, 4, 2)
    assert reader.GetOutput().GetSpacing() == (0.5, 0.25, 0.5)
    np.testing.assert_array_equal(vtk_to_numpy(reader.GetOutput().GetCellData().GetArray("T")), np.arange(12.0))


def test_what_cannot_be_published_says_why(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/lines"
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["profile"] = np.zeros(5)
    done = publish(address, tmp_path, "--for", "paraview")
    assert done.returncode == 1
    assert "so there is no grid" in done.stderr
    write_flow(f"{reservation}/flow", 0, 1)
    done = publish(f"{reservation}/flow", tmp_path, "--for", "yt", "--variables", "T,p")
    assert done.returncode == 1
    assert "has no variable p" in done.stderr
    done = publish(f"{reservation}/flow", tmp_path, "--for", "paraview", "--variables", "spectrum,T", "--consumer", "x")
    assert done.returncode == 1
    assert "spectrum cannot be published" in done.stderr


def test_commands_are_for_the_instance_that_is_named(
    flow: str, server: StagingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_ROOT", str(tmp_path / "another"))
    command = [sys.executable, "-m", "forebay", "--root", str(server.root)]
    for arguments in (
        ("publish", flow, str(tmp_path / "plots"), "--for", "yt"),
        ("view", flow, "--out", str(tmp_path / "now.png")),
    ):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=seconds(110), check=False)
        assert done.returncode == 0, done.stderr
