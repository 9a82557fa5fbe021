# SPDX-License-Identifier: Apache-2.0
"""Jobs of two nodes whose files a site's own commands show: a real Slurm, and a stand-in for the site's engine."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files.guest_centre import CAPACITY, HOME, GuestCentre, guest_centre
from tests.slurm.cluster import PERSON, make_person, make_python, wait_for
from tests.support.guests import GuestError, why_no_guests
from tests.support.site_engine import SiteEngine

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("munged") is None, reason="needs MUNGE; ./run test files installs it"),
    pytest.mark.timeout(600),
]

_JOB = f"#!/bin/bash\n#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch\n"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="site-", dir="/var/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def site(folder: Path) -> SiteEngine:
    return SiteEngine(folder / "site")


@pytest.fixture(scope="module")
def site_centre(folder: Path, site: SiteEngine) -> Iterator[GuestCentre]:
    make_person()
    try:
        with guest_centre(folder, make_python(folder / "python"), site) as running:
            yield running
    except GuestError as error:
        pytest.skip(str(error))


@pytest.fixture
def outside(folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the person's."""
    with tempfile.TemporaryDirectory(prefix="outside-", dir=folder) as name:
        path = Path(name)
        shutil.chown(path, PERSON)
        yield path


# crash-matrix: A Slurm job of two nodes whose files a site's commands show | nobody | what one node wrote the other reads by the same name; it is staged in and out, and nothing is left
def test_what_node_2_writes_node_1_reads_and_it_is_staged_out(
    site_centre: GuestCentre, site: SiteEngine, outside: Path
) -> None:
    site.forget_calls()
    (outside / "input").write_bytes(content := os.urandom(2_000_000))
    (outside / "input").chmod(0o644)
    script = f"""\
{_JOB}#DW stage_in type=file source={outside}/input destination=$DW_JOB_STRIPED/input
#DW stage_out type=directory source=$DW_JOB_STRIPED destination={outside}/out
set -e
cd "$DW_JOB_STRIPED"
srun --nodes=1 --ntasks=1 --nodelist=n2 sh -c 'cat "$DW_JOB_STRIPED/input" > "$DW_JOB_STRIPED/data"; hostname > writer'
cmp data input
hostname > reader
grep " hostfs " /proc/mounts | grep .mounts > mounts
"""
    job = site_centre.submit(script)
    site_centre.wait_until_gone(job)
    out = outside / "out"
    assert (out / "reader").exists(), site_centre.story(job)
    assert (out / "data").read_bytes() == content
    assert ((out / "writer").read_text(), (out / "reader").read_text()) == ("n2\n", "n1\n")
    assert len((out / "mounts").read_text().splitlines()) == 1
    assert not (out / "fenced").exists(), site_centre.story(job)
    site_centre.must_be_clean()
    assert site.operations() == [
        *("prepare", "start", "ready", "mount", "admit n1", "admit n2"),
        *("release n1", "release n2", "unmount", "stop", "destroy"),
    ]
    for guest in site_centre.guests.values():
        told = guest.run("cat /run/site-calls; rm /run/site-calls")
        assert [part for part in ("=mount\t", "=unmount\t") if f"FOREBAY_OPERATION{part}" in told] == [
            "=mount\t",
            "=unmount\t",
        ]
    assert PERSON not in json.dumps(site.calls())


# crash-matrix: A Slurm job of two nodes whose files a site's commands show | a node, which loses power | the site's command fences it before anything is copied, and the receipt names it
def test_a_node_that_dies_is_fenced_before_anything_is_copied(
    site_centre: GuestCentre, site: SiteEngine, outside: Path
) -> None:
    site.forget_calls()
    script = f"""\
{_JOB}#DW stage_out type=directory source=$DW_JOB_STRIPED destination={outside}/out
srun --nodes=1 --ntasks=1 --nodelist=n2 sh -c '
    echo whole > "$DW_JOB_STRIPED/synced"; sync "$DW_JOB_STRIPED/synced"; touch "$DW_JOB_STRIPED/ready"; sleep 600'
"""
    job = site_centre.submit(script)
    wait_for(lambda: bool(list(site.folder.glob(f"tree/{job}/ready"))), "both nodes to be at work", 120)
    site_centre.guests["n2"].kill()
    site_centre.cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    try:
        site_centre.wait_until_gone(job)
        assert (outside / "out" / "synced").read_text() == "whole\n"
        assert (outside / "out" / "fenced").read_text() == "n2\n"
        root = site_centre.instance.root
        heads = [json.loads(path.open().readline()) for path in root.glob("receipts/*/[0-9]*")]
        (receipt,) = [head for head in heads if head["job"]["outside"] == f"{outside}/out"]
        assert receipt["job"]["unclean_nodes"] == ["n2"]
        ends = [call for call in site.operations() if call.startswith(("fence", "release"))]
        assert ends == ["release n1", "fence n2"]
    finally:
        site_centre.guests["n2"].boot()
        site_centre.cluster.start_node("n2")
        site_centre.cluster.run("scontrol", "update", "nodename=n2", "state=resume")
        site_centre.cluster.wait_for_nodes()
    site_centre.must_be_clean()


# crash-matrix: A persistent reservation that a site's commands show | nobody | its tree outlives each job, and goes with the reservation; a job on the home uses it there
def test_a_persistent_tree_outlives_its_jobs_and_is_used_at_the_home(
    site_centre: GuestCentre, site: SiteEngine, outside: Path
) -> None:
    site.forget_calls()
    cluster = site_centre.cluster
    mesh = f"#BB create_persistent name=mesh capacity={CAPACITY} access=striped type=scratch"
    cluster.submit(f"#!/bin/bash\n{mesh}\ntrue\n", "--output=/dev/null")
    wait_for(lambda: "Name=mesh" in cluster.buffers(), "Slurm to know the reservation", 120)
    script = """\
#!/bin/bash
#DW persistentdw name=mesh
cd "$DW_PERSISTENT_STRIPED_mesh"
"""
    out = f"#DW stage_out type=file source=$DW_PERSISTENT_STRIPED_mesh/read destination={outside}/read\n"
    writes = cluster.submit(f"{script}echo kept > written\n", "--nodelist=n1", "--output=/tmp/job-%j.out")
    site_centre.wait_until_gone(writes)
    head, cd = script.rsplit("cd", 1)
    reads = cluster.submit(f"{head}{out}cd{cd}cat written > read\n", f"--nodelist={HOME}", "--output=/dev/null")
    site_centre.wait_until_gone(reads)
    assert (outside / "read").read_text() == "kept\n", site_centre.story(reads)
    assert "destroy" not in site.operations()
    cluster.submit("#!/bin/bash\n#BB destroy_persistent name=mesh\ntrue\n", "--output=/dev/null")
    wait_for(lambda: site_centre.instance.ask("ls")["reservations"] == [], "the reservation to go", 120)
    site_centre.must_be_clean()
    operations = site.operations()
    assert operations[-3:] == ["unmount", "stop", "destroy"]
    assert [operation for operation in operations if operation.startswith("fence")] == []
    assert operations.count("prepare") == 1
