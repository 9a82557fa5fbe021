# SPDX-License-Identifier: Apache-2.0
"""Fixtures that need a running staging server."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.slurm.cluster import make_python, python_is_usable
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.other_user import folder_for_all
from tests.support.slurm_calls import SlurmCalls, Start
from tests.support.staging_server import StagingServer


@pytest.fixture(scope="session")
def server() -> Iterator[StagingServer]:
    """One server for all tests that leave it running; clients of this process and its children find it.

    Other users reach it, too.
    """
    with (
        folder_for_all("instance") as folder,
        StagingServer(folder / "root") as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in running.environment.items():
            environment.setenv(name, value)
        yield running


@pytest.fixture
def reservation(server: StagingServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A reservation of the test's own, of 64 MiB."""
    name = "t-" + re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:50]
    with forebay.Admin() as admin:
        admin.create(name, "64MiB")
        try:
            yield name
        finally:
            admin.destroy(name, force=True)


@pytest.fixture(scope="session")
def everybodys_python() -> Iterator[Path | None]:
    """A Python with forebay that jobs' users may run; None where they are nobody else."""
    if os.geteuid() != 0:
        yield None
        return
    if not python_is_usable():
        pytest.skip("needs a Python that other users may run: the distribution's, in the version of this one")
    with tempfile.TemporaryDirectory(prefix="python-") as folder:
        Path(folder).chmod(0o755)
        yield make_python(Path(folder) / "python")


@pytest.fixture
def start_slurm(everybodys_python: Path | None) -> Iterator[Start]:
    """Starts an instance with these settings of [slurm]; jobs' users can reach its folder."""
    running: list[CommandLineInstance] = []
    # Not below pytest's folders, which it closes to others whenever another run begins.
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)

        def begin(*settings: str) -> tuple[SlurmCalls, CommandLineInstance]:
            instance = CommandLineInstance(folder / "root", python=everybodys_python)
            slurm = SlurmCalls(folder, instance, *settings)
            instance.up()
            running.append(instance)
            until((instance.root / "slurm" / "snapshot").exists, "the snapshot")
            return slurm, instance

        yield begin
        for instance in running:
            done = instance.run("down", "--force")
            assert done.returncode == 0, done.stderr + instance.logs()
