# SPDX-License-Identifier: Apache-2.0
"""`forebay lint` on job scripts, without an instance."""

from __future__ import annotations

import json
from pathlib import Path

from forebay.cli.failures import ExitStatus
from tests.support.instance import CommandLineInstance


def test_all_mistakes_of_a_script_are_told_at_once(tmp_path: Path) -> None:
    nobody = CommandLineInstance(tmp_path / "root")
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#BB create_persistent name=a capacity=1.5GiB\n#DW swap 2GiB\ntrue\n")
    told = nobody.run("lint", str(script))
    assert told.returncode == ExitStatus.ERROR
    assert [line.split(" of")[0] for line in told.stdout.splitlines()] == ["line 2", "line 3"]
    assert len(json.loads(nobody.run("lint", str(script), "--json").stdout)["mistakes"]) == 2

    script.write_text("#!/bin/bash\n#BB create_persistent name=a capacity=2GiB\ntrue\n")
    assert nobody.ask("lint", str(script)) == {"mistakes": []}
    assert nobody.run("lint", str(tmp_path / "none")).returncode == ExitStatus.ERROR
