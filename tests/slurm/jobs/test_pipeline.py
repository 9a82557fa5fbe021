# SPDX-License-Identifier: Apache-2.0
"""examples/19_slurm_pipeline, as its page says: simulation, renderer and drain over one persistent reservation."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

import adios2

from tests.slurm.centre import Centre, needs_slurm
from tests.slurm.cluster import PERSON, wait_for
from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds

pytestmark = needs_slurm

_ROOT = Path(__file__).parents[3]
#: The same flow on a small grid, so that it takes seconds.
_QUICK = "--nx=24 --ny=24 --nz=40 --plenum=7 --sphere-radius=4 --solid-fraction=0.42 --iterations-per-step=5"


def test_three_jobs_share_a_reservation(centre: Centre, home: Path, python: Path, folder: Path) -> None:
    desk = home / "cylinder"
    shutil.rmtree(desk, ignore_errors=True)
    desk.mkdir()
    shutil.chown(desk, PERSON)
    programs = folder / "programs"
    programs.mkdir()
    (programs / "forebay").write_text(f'#!/bin/sh\nexec {python} -m forebay "$@"\n')
    (programs / "forebay").chmod(0o755)
    simulation = forebayd().parents[1] / "examples/01_packed_cylinder/packed_cylinder"
    (programs / "packed_cylinder").symlink_to(simulation)

    page = (_ROOT / "examples/19_slurm_pipeline/README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = "\n".join(line.removeprefix("$ ") for line in block.splitlines()).replace("STEPS=100", "STEPS=21")
    done = subprocess.run(
        ["runuser", "-u", PERSON, "--", "bash", "-euc", commands],
        cwd=_ROOT,
        env={
            "HOME": pwd.getpwnam(PERSON).pw_dir,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_CONF": str(centre.cluster.configuration),
            "OPTIONS": _QUICK,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    def told() -> str:
        return centre.cluster.ask("squeue") + "".join(path.read_text() for path in desk.glob("slurm-*.out"))

    wait_for(lambda: len(list((desk / "checkpoints").glob("*.bp"))) == 3, f"the checkpoints: {told()}", 240)
    wait_for(lambda: "cylinder" not in centre.cluster.buffers(), f"the reservation to go: {told()}", 120)
    assert len(list((desk / "pictures" / "frames").glob("*.png"))) == 21, told()
    newest = max((desk / "checkpoints").glob("*.bp"))
    with adios2.FileReader(str(newest)) as reader:
        assert reader.read("velocity").shape == (40, 24, 24, 3)
    centre.must_be_clean()
