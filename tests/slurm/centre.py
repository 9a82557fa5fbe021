# SPDX-License-Identifier: Apache-2.0
"""A centre: an instance of root's, and a Slurm that uses it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SLURM, Cluster, python_is_usable, wait_for
from tests.support.instance import CommandLineInstance
from tests.support.staging_server import forebayd

__all__ = ["Centre", "needs_slurm", "programs", "slurm_centre"]

needs_slurm = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: Slurm's node starts jobs as other users"),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test slurm installs it"),
    pytest.mark.skipif(not python_is_usable(), reason="needs the distribution's Python in the version of this one"),
    pytest.mark.timeout(400),
]


def programs() -> Path:
    """The folder of dw_wlm_cli and dwstat."""
    return forebayd().parents[1] / "workflows"


@dataclass(frozen=True)
class Centre:
    """Both parts."""

    instance: CommandLineInstance
    cluster: Cluster

    def states(self) -> dict[str, str]:
        """State of each job, by its number; of one that came back, of its last run."""
        return {job["token"]: job["state"] for job in self.instance.ask("status", "--all")["jobs"]}

    def wait_until_gone(self, *jobs: int, seconds_max: float = 180) -> None:
        """Until the manager has nothing of these jobs any more, and Slurm neither."""
        for job in jobs:
            wait_for(lambda job=job: self.states().get(str(job)) == "gone", self._story(job), seconds_max)  # type: ignore[misc]
            wait_for(lambda job=job: f"JobID={job} " not in self.cluster.buffers(), self._story(job), seconds_max)  # type: ignore[misc]

    def must_be_clean(self) -> None:
        """No space is taken, neither here nor in Slurm's books, and `forebay doctor` has no complaint."""
        wait_for(lambda: "JobID=" not in self.cluster.buffers(), "Slurm to have let go of all jobs' buffers")
        assert self.instance.ask("ls")["reservations"] == []
        wait_for(lambda: "UsedSpace=0" in self.cluster.buffers(), "Slurm to count nothing as used")
        with self.instance.manager() as manager:
            assert manager.attachments() == []
        done = self.instance.run("doctor")
        assert done.returncode == 0, done.stdout + done.stderr

    def _story(self, job: int) -> str:
        return f"job {job} to be gone; it printed {self.cluster.output(job)!r}"


@contextlib.contextmanager
def slurm_centre(
    folder: Path,
    python: Path,
    *,
    settings: str = "",
    slurm_user: str = SLURM,
    capacity: str = "1GiB",
    up_options: tuple[str, ...] = (),
    **options: Any,
) -> Iterator[Centre]:
    """Starts both below ``folder``, which every user can enter. ``settings``: lines of [slurm] and tables behind it.
    ``up_options``: of ``forebay up``."""
    configuration = folder / "forebay.toml"
    configuration.write_text(f'root = "{folder}/root"\n[slurm]\nscheduler_user = "{slurm_user}"\n{settings}\n')
    instance = CommandLineInstance(folder / "root", capacity=capacity, python=python, up_options=up_options)
    instance.environment["FOREBAY_CONFIG"] = str(configuration)
    instance.environment["SLURM_CONF"] = str(folder / "slurm" / "etc" / "slurm.conf")
    with instance:
        wait_for((folder / "root" / "slurm" / "snapshot").exists, "the pool's list")
        with Cluster(folder / "slurm", programs(), configuration, slurm_user=slurm_user, **options) as cluster:
            yield Centre(instance, cluster)
