# SPDX-License-Identifier: Apache-2.0
"""A job of two nodes that uses a persistent reservation on another server than the manager's: real Slurm, and the real
NFS client in guests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.files.guest_centre import CAPACITY, SECOND, GuestCentre, second_server
from tests.slurm.cluster import PERSON, wait_for
from tests.support.guests import why_no_guests

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("munged") is None, reason="needs MUNGE; ./run test files installs it"),
    pytest.mark.timeout(600),
]

_SCRIPT = """\
#!/bin/bash
#DW persistentdw name=far
set -e
cd "$DW_PERSISTENT_STRIPED_far"
srun --nodes=1 --ntasks=1 --nodelist=n2 sh -c 'hostname > "$DW_PERSISTENT_STRIPED_far/writer"'
cat writer > seen
hostname >> seen
grep " nfs4 " /proc/mounts > mounts
"""


def _as_person(centre: GuestCentre, *arguments: str) -> None:
    command = ["setpriv", f"--reuid={PERSON}", f"--regid={PERSON}", "--init-groups"]
    environment = os.environ | {"FOREBAY_ROOT": str(centre.instance.root), "HOME": f"/home/{PERSON}"}
    subprocess.run([*command, *centre.instance.command(*arguments)], env=environment, check=True, timeout=120)


def test_a_job_uses_files_of_a_home_that_is_not_the_managers_server(centre: GuestCentre) -> None:
    with second_server(centre) as second:
        _as_person(centre, "create", "far", "--on", SECOND, "--capacity", "32MiB", "--files", CAPACITY, "--persistent")
        (files,) = second.root.glob("reservations/*/files")
        # slurmctld asks for reservations that it has not made when it starts.
        centre.cluster.restart_controller()
        wait_for(lambda: "Name=far" in centre.cluster.buffers(), "Slurm to know the reservation", 60)
        job = centre.submit(_SCRIPT)
        centre.wait_until_gone(job)
        assert (files / "seen").read_text() == "n2\nn1\n", centre.story(job)
        assert (files / "seen").owner() == PERSON
        (mount,) = (files / "mounts").read_text().splitlines()
        assert mount.split()[1].startswith(f"{centre.node_folder}/.mounts/")
        (answer,) = [each for each in centre.instance.ask("why", str(job))["answers"] if "job" in each["subject"]]
        assert "fenced" not in str(answer), answer
        _as_person(centre, "destroy", "far", "--force")
        centre.cluster.restart_controller()
        assert [path.name for path in (second.root / "drivers").iterdir() if path.is_dir()] == []
        assert list(Path(second.root / "reservations").iterdir()) == []
    centre.must_be_clean()
