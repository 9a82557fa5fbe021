# SPDX-License-Identifier: Apache-2.0
"""ADIOS2 of a version that no test knows: what needs more than its promised interface is off, and says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.support.adios2_programs import built, run, run_environment
from tests.support.time_limits import seconds

CONFIGURATION = """<?xml version="1.0"?>
<adios-config>
    <io name="numbers">
        <engine type="Plugin">
            <parameter key="PluginName" value="forebay"/>
            <parameter key="PluginLibrary" value="forebay_adios2"/>
            <parameter key="Stream" value="{address}"/>
        </engine>
    </io>
</adios-config>
"""


@pytest.fixture
def other_version(tmp_path: Path) -> str:
    """A folder for LD_LIBRARY_PATH with the ADIOS2 that is installed, whose core says that it is another version."""
    import adios2

    package = Path(adios2.__file__).parent
    others = tmp_path / "other" / "adios2"
    others.mkdir(parents=True)
    for library in package.glob("libadios2_*.so.2.12"):
        (others / library.name).symlink_to(library.resolve())
    (others.parent / "adios2.libs").symlink_to(package.parent / "adios2.libs")
    core = others / "libadios2_core.so.2.12"
    content = core.read_bytes()
    core.unlink()
    assert content.count(b"2.12.1.1001\0") >= 1
    core.write_bytes(content.replace(b"2.12.1.1001\0", b"2.13.7.1001\0"))
    return str(others)


def test_forebay_run_fails_with_the_reason(reservation: str, tmp_path: Path, other_version: str) -> None:
    environment = {"LD_LIBRARY_PATH": other_version}
    command = [built("stock_cxx_program"), "asked.bp", "left.bp"]
    result = run(["--reservation", reservation, "--engine-for", "asked.bp"], command, tmp_path, environment)
    assert result.returncode == 0, result.stderr
    assert "asked.bp failed" in result.stdout
    assert "2.13.7" in result.stdout
    assert not (tmp_path / "asked.bp").exists()
    # What was not asked for is none of its business.
    assert (tmp_path / "left.bp").is_dir()


def test_variables_have_no_minimum_and_one_line_says_so(reservation: str, tmp_path: Path, other_version: str) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        for number in (3, 4):
            stream.write("numbers", np.array([number, number + 6]))
    (tmp_path / "adios2.xml").write_text(CONFIGURATION.format(address=f"{reservation}/flow"))

    def outcome(**more: str) -> subprocess.CompletedProcess[str]:
        environment = run_environment(**more)
        folder = Path(environment["FOREBAY_ADIOS2_LIBRARY"]).parent
        return subprocess.run(
            [built("stock_cxx_reader"), "adios2.xml"],
            cwd=tmp_path,
            env={**environment, "ADIOS2_PLUGIN_PATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=seconds(100),
        )

    # Two engines, one after the other: the first number, Variable::Min and Max, and the same of Engine::BlocksInfo.
    known = outcome()
    assert known.stdout.splitlines() == 2 * ["3: 3 9, 3 9", "4: 4 10, 4 10"], known.stderr
    assert "Variable::Min" not in known.stderr
    unknown = outcome(LD_LIBRARY_PATH=other_version)
    assert unknown.stdout.splitlines() == 2 * ["3: 0 0, 3 9", "4: 0 0, 4 10"], unknown.stderr
    assert unknown.stderr.count("Variable::Min, Max and Steps answer 0") == 1
    silenced = outcome(LD_LIBRARY_PATH=other_version, FOREBAY_VARIABLE_FACTS="false")
    assert silenced.stdout == unknown.stdout
    assert "Variable::Min" not in silenced.stderr
