# SPDX-License-Identifier: Apache-2.0
"""The scripts of docs/datawarp-users.md, submitted as the page says by a user who has only these."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm.centre import Centre, needs_slurm
from tests.slurm.cluster import PERSON, wait_for
from tests.support.time_limits import seconds

pytestmark = needs_slurm

_PAGE = (Path(__file__).parents[3] / "docs/datawarp-users.md").read_text(encoding="utf-8")


class Desk:
    """A folder of the person's with the scripts of one section, where its commands are typed."""

    def __init__(self, centre: Centre, section: str, folder: Path) -> None:
        _, _, rest = _PAGE.partition(f"\n## {section}\n")
        assert rest, f"the page has no section {section!r}"
        text = rest.partition("\n## ")[0]
        self.folder = folder
        self._centre = centre
        for name, content in re.findall(r"^`(\S+)`:\n\n```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            (folder / name).write_text(content)
            shutil.chown(folder / name, PERSON)
        self.blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def type(self, block: str) -> list[int]:
        """Types the commands of a block, which must succeed; the jobs that they submitted."""
        commands = "\n".join(line.removeprefix("$ ") for line in block.splitlines())
        done = subprocess.run(
            ["runuser", "-u", PERSON, "--", "bash", "-euc", commands],
            cwd=self.folder,
            env=os.environ
            | {"HOME": pwd.getpwnam(PERSON).pw_dir, "SLURM_CONF": str(self._centre.cluster.configuration)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds(180),
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        found = re.findall(r"(?:batch job|Granted job allocation) (\d+)", done.stdout)
        return [int(number) for number in found]


@pytest.fixture
def desk_folder(destination: Path) -> Path:
    return destination


def test_a_job_with_scratch(centre: Centre, desk_folder: Path) -> None:
    desk = Desk(centre, "A job with scratch", desk_folder)
    centre.wait_until_gone(*desk.type(desk.blocks[0]))
    assert (desk_folder / "results" / "sorted.txt").read_text() == "a\nb\nc\n"


def test_a_persistent_reservation_and_its_users(centre: Centre, desk_folder: Path) -> None:
    desk = Desk(centre, "A persistent reservation, used by several jobs", desk_folder)
    create, *users = desk.type(desk.blocks[0])
    assert len(users) == 3
    for user in users:
        wait_for((desk_folder / f"from-job.{user}").exists, f"job {user} to stage out", 180)
    centre.wait_until_gone(create, *users)
    assert centre.instance.ask("ls")["reservations"][0]["name"] == "shelf"
    (destroy,) = desk.type(desk.blocks[1])
    centre.wait_until_gone(destroy)
    centre.must_be_clean()


def test_an_interactive_job(centre: Centre, desk_folder: Path) -> None:
    desk = Desk(centre, "An interactive job", desk_folder)
    desk.type(desk.blocks[0])
    wait_for((desk_folder / "notes.txt").exists, "the notes to be staged out", 180)
    assert (desk_folder / "notes.txt").read_text() == "seen by hand\n"
