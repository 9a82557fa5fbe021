# SPDX-License-Identifier: Apache-2.0
"""The example of particles, run as its head says: both ways hold the same numbers, and both are copied out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import forebay
from tests.support.example_programs import EXAMPLES
from tests.support.instance import CommandLineInstance
from tests.support.time_limits import seconds

STEPS, PARTICLES, RANKS = 3, 5000, 2


def test_stream_and_shared_file_hold_the_same_particles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CommandLineInstance(tmp_path / "root") as instance:
        instance.up()
        for name, value in instance.environment.items():
            monkeypatch.setenv(name, value)
        program = str(EXAMPLES / "23_particles" / "particles.py")
        options = ["--steps", str(STEPS), "--particles", str(PARTICLES), "--output", str(tmp_path / "out")]
        done = subprocess.run(
            [sys.executable, program, *options],
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=seconds(200),
        )
        assert done.returncode == 0, done.stderr
        rates = re.findall(r"^step (\d): 0 MB; stream \d+ MB/s, shared HDF5 \d+ MB/s$", done.stdout, re.MULTILINE)
        assert rates == ["0", "1", "2"]
        assert re.search(r"^median: .*; the stream is \d+\.\d\d times as fast$", done.stdout, re.MULTILINE)

        first = np.arange(RANKS * PARTICLES)
        with forebay.open("particles/particles") as stream:
            assert [step.number for step in stream.steps()] == [0, 1, 2]
            for number in range(STEPS):
                step = stream[number]
                np.testing.assert_array_equal(step["id2"][...], 2 * first + number)
                np.testing.assert_array_equal(step["y"][...], first % 1000 + 1000 + 0.125 * number)
                with h5py.File(tmp_path / "out" / "vpic" / f"particles.{number:05d}.h5") as file:
                    assert sorted(file) == sorted(step.variables) == sorted(["id1", "id2", "px", "py", "pz", *"xyz"])
                    for name in file:
                        assert file[name].dtype == step[name].dtype
                        np.testing.assert_array_equal(file[name][...], step[name][...])
    assert sorted(path.name for path in (tmp_path / "out" / "vpic").iterdir() if path.suffix == ".h5") == [
        f"particles.{number:05d}.h5" for number in range(STEPS)
    ]
    assert (tmp_path / "out" / "steps" / "particles.000002.bp").exists()
    assert (tmp_path / "out" / "steps" / "receipt.json").exists()
