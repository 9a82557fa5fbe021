# SPDX-License-Identifier: Apache-2.0
"""One centre of two nodes for the tests of this folder, which leave nothing behind in it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.centre import Centre, programs, slurm_centre
from tests.slurm.cluster import PERSON, Cluster, make_person, make_python
from tests.support.instance import CommandLineInstance

SIMULATE = """\
import adios2, numpy as np
io = adios2.Adios().declare_io("flow")
io.set_engine("Plugin")
io.set_parameters({"PluginName": "forebay", "PluginLibrary": "forebay_adios2", "Stream": "flow"})
with adios2.Stream(io, "flow", "w") as stream:
    for _ in stream.steps(5):
        T = np.full((8, 8), float(stream.current_step()))
        stream.write("T", T, T.shape, [0, 0], T.shape)
"""


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Where other users may go: pytest closes its own folders to them whenever another run begins."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def home() -> Path:
    """Of the person, with what the jobs read."""
    person = make_person()
    path = Path(person.pw_dir)
    (path / "input.txt").write_text("water flows\n")
    (path / "simulate.py").write_text(SIMULATE)
    return path


@pytest.fixture(scope="session")
def python(folder: Path) -> Path:
    return make_python(folder / "python")


def job_submit_of_the_guide() -> str:
    """What docs/operations/slurm.md has administrators write."""
    page = (Path(__file__).parents[2] / "docs/operations/slurm.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```lua\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(script).replace("/path/to/dw_wlm_cli", str(programs() / "dw_wlm_cli"))


@pytest.fixture(scope="session")
def centre(folder: Path, home: Path, python: Path) -> Iterator[Centre]:
    """The centre, whose prolog and epilog are Forebay's, and whose nodes have a folder each of their own."""
    below = folder / "centre"
    below.mkdir(mode=0o755)
    for name in ("begin", "end"):
        script = below / name
        script.write_text(
            f"#!/bin/sh\nexport FOREBAY_CONFIG={below}/forebay.toml\n"
            f"exec {programs()}/forebay-job {name} >> {below}/{name}.log 2>&1\n"
        )
        script.chmod(0o755)
    with slurm_centre(
        below,
        python,
        settings=f'node_folder = "{below}/node"',
        node_count=2,
        cores=4,
        node_folder=below / "node",
        more=f"Prolog={below}/begin\nEpilog={below}/end\nPrologFlags=Alloc\nJobSubmitPlugins=lua",
        scripts={"job_submit.lua": job_submit_of_the_guide()},
    ) as running:
        yield running


@pytest.fixture(scope="session")
def instance(centre: Centre) -> CommandLineInstance:
    return centre.instance


@pytest.fixture(scope="session")
def cluster(centre: Centre) -> Cluster:
    return centre.cluster


@pytest.fixture
def destination(home: Path, request: pytest.FixtureRequest) -> Path:
    """An empty folder of the person's."""
    path = home / str(request.node.name)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    shutil.chown(path, PERSON)
    return path
