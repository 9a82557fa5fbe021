# SPDX-License-Identifier: Apache-2.0
"""One centre of two guests for the tests of this folder, which leave nothing behind in it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files.guest_centre import GuestCentre, guest_centre
from tests.slurm.cluster import PERSON, make_person, make_python
from tests.support.guests import GuestError


@pytest.fixture(scope="session")
def centre() -> Iterator[GuestCentre]:
    """Below /var/tmp: a guest has folders of its own where this machine has /tmp and /run."""
    make_person()
    with tempfile.TemporaryDirectory(prefix="files-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with contextlib.ExitStack() as stack:
            try:
                running = stack.enter_context(guest_centre(folder, make_python(folder / "python")))
            except GuestError as error:
                pytest.skip(str(error))
            yield running


@pytest.fixture
def destination(centre: GuestCentre, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty folder of the person's on the file system that stays."""
    with tempfile.TemporaryDirectory(prefix=f"{request.node.name[:40]}-", dir="/var/tmp") as name:
        path = Path(name)
        shutil.chown(path, PERSON)
        yield path
