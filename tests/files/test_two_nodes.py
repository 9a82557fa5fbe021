# SPDX-License-Identifier: Apache-2.0
"""A job of two nodes with a tutorial's `#DW` line: real Slurm, and the real NFS client in guests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.files.guest_centre import CAPACITY, GuestCentre
from tests.slurm.cluster import PERSON, wait_for
from tests.support.guests import why_no_guests

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("munged") is None, reason="needs MUNGE; ./run test files installs it"),
    pytest.mark.timeout(600),
]

_SIZE = 20_000_000

_SCRIPT = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
#DW stage_in type=file source={{destination}}/input destination=$DW_JOB_STRIPED/input
#DW stage_out type=directory source=$DW_JOB_STRIPED/out destination={{destination}}/out
set -e
cd "$DW_JOB_STRIPED"
mkdir out
srun --nodes=1 --ntasks=1 --nodelist=n2 sh -c '
    cat "$DW_JOB_STRIPED/input" > "$DW_JOB_STRIPED/out/data"
    hostname > "$DW_JOB_STRIPED/out/writer"'
sha256sum < out/data > out/sum
hostname > out/reader
grep " nfs4 " /proc/mounts > out/mounts
echo "$DW_JOB_STRIPED" > out/name
"""


# crash-matrix: A Slurm job with #DW lines on two nodes | nobody | what one node wrote the other reads by the same name; it is staged out, and no mount, process or image is left
def test_what_node_2_writes_node_1_reads_and_it_is_staged_out(centre: GuestCentre, destination: Path) -> None:
    content = os.urandom(_SIZE)
    (destination / "input").write_bytes(content)
    (destination / "input").chmod(0o644)
    job = centre.submit(_SCRIPT.format(destination=destination))
    centre.wait_until_gone(job)

    out = destination / "out"
    assert (out / "sum").exists(), centre.story(job)
    assert (out / "sum").read_text().split()[0] == hashlib.sha256(content).hexdigest()
    assert (out / "data").read_bytes() == content
    assert ((out / "writer").read_text(), (out / "reader").read_text()) == ("n2\n", "n1\n")
    assert (out / "name").read_text() == f"{centre.node_folder}/{job}/\n"
    assert (out / "data").owner() == PERSON
    (mount,) = (out / "mounts").read_text().splitlines()
    options = mount.split()[3].split(",")
    assert {"hard", "nosuid", "nodev", "vers=4.2"} <= set(options)
    centre.must_be_clean()


def test_private_scratch_of_one_node_lies_beside_the_striped_one(centre: GuestCentre, destination: Path) -> None:
    script = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
#DW jobdw capacity={CAPACITY} access_mode=private type=scratch
#DW stage_out type=directory source=$DW_JOB_STRIPED destination={destination}/out
set -e
echo mine > "$DW_JOB_PRIVATE/own"
ls "$DW_JOB_STRIPED" > "$DW_JOB_STRIPED/listed"
cat "$DW_JOB_PRIVATE/own" >> "$DW_JOB_STRIPED/listed"
"""
    job = centre.cluster.submit(script, "--nodes=1", "--output=/tmp/job-%j.out")
    centre.wait_until_gone(job)
    assert (destination / "out" / "listed").read_text() == "listed\nmine\n", centre.story(job)
    centre.must_be_clean()


def test_private_scratch_of_two_nodes_is_a_folder_for_each(centre: GuestCentre, destination: Path) -> None:
    script = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
#DW jobdw capacity={CAPACITY} access_mode=private type=scratch
#DW stage_out type=directory source=$DW_JOB_STRIPED destination={destination}/out
set -e
srun --ntasks-per-node=1 sh -c 'hostname > "$DW_JOB_PRIVATE/mine"'
ls "$DW_JOB_STRIPED" > /tmp/listed
srun --ntasks-per-node=1 sh -c 'cp "$DW_JOB_PRIVATE/mine" "$DW_JOB_STRIPED/of-$(hostname)"'
cp /tmp/listed "$DW_JOB_STRIPED/listed"
echo "$DW_JOB_PRIVATE" > "$DW_JOB_STRIPED/name"
"""
    job = centre.submit(script)
    centre.wait_until_gone(job)
    out = destination / "out"
    assert (out / "name").exists(), centre.story(job)
    assert (out / "name").read_text() == f"{centre.node_folder}/.private/{job}/\n"
    assert [(out / f"of-{node}").read_text() for node in ("n1", "n2")] == ["n1\n", "n2\n"]
    assert (out / "listed").read_text() == ""
    centre.must_be_clean()


# crash-matrix: A Slurm job with #DW lines on two nodes | a node, which loses power | it is fenced before anything is copied; the rest is staged out, and `forebay why` and the receipt name the node
def test_a_node_that_dies_is_fenced_and_named(centre: GuestCentre, destination: Path) -> None:
    script = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
#DW stage_out type=directory source=$DW_JOB_STRIPED destination={destination}/out
cd "$DW_JOB_STRIPED"
srun --nodes=1 --ntasks=1 --nodelist=n2 sh -c '
    echo whole > "$DW_JOB_STRIPED/synced"; sync "$DW_JOB_STRIPED/synced"
    exec 9> "$DW_JOB_STRIPED/lost"; echo unsynced >&9; touch "$DW_JOB_STRIPED/ready"; sleep 600'
"""
    job = centre.submit(script)
    root = centre.instance.root
    wait_for(lambda: bool(list(root.glob(f"reservations/*/files/{job}/ready"))), "both nodes to be at work", 120)
    assert "node" not in _why(centre, job)["waits_for"]
    centre.guests["n2"].kill()
    centre.cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    try:
        centre.wait_until_gone(job)
        assert (destination / "out" / "synced").read_text() == "whole\n"
        said = _why(centre, job)
        assert "node n2 was fenced" in said["waits_for"], said
        heads = [json.loads(path.open().readline()) for path in root.glob("receipts/*/[0-9]*")]
        (receipt,) = [head for head in heads if head["job"]["outside"] == f"{destination}/out"]
        assert receipt["job"]["unclean_nodes"] == ["n2"]
    finally:
        centre.guests["n2"].boot()
        centre.cluster.start_node("n2")
        centre.cluster.run("scontrol", "update", "nodename=n2", "state=resume")
        centre.cluster.wait_for_nodes()
    centre.must_be_clean()


# crash-matrix: A persistent reservation that two jobs use on different nodes | nobody | each reads what the other wrote, and the end of one does not disturb the other
def test_two_jobs_share_a_persistent_reservation_on_different_nodes(centre: GuestCentre, destination: Path) -> None:
    mesh = f"#BB create_persistent name=mesh capacity={CAPACITY} access=striped type=scratch"
    centre.cluster.submit(f"#!/bin/bash\n{mesh}\ntrue\n", "--output=/dev/null")
    wait_for(lambda: "Name=mesh" in centre.cluster.buffers(), "Slurm to know the reservation", 120)
    script = f"""\
#!/bin/bash
#DW persistentdw name=mesh
#DW stage_out type=file source=$DW_PERSISTENT_STRIPED_mesh/of-{{own}} destination={destination}/of-{{own}}
cd "$DW_PERSISTENT_STRIPED_mesh"
echo {{own}} > to-{{other}}.new && mv to-{{other}}.new to-{{other}}
until cat to-{{own}} > of-{{own}} 2> /dev/null; do sleep 0.2; done
"""
    jobs = [
        centre.cluster.submit(
            script.format(own=own, other=other), "--nodes=1", f"--nodelist={own}", "--output=/tmp/job-%j.out"
        )
        for own, other in (("n1", "n2"), ("n2", "n1"))
    ]
    for job in jobs:
        centre.wait_until_gone(job)
    assert (destination / "of-n1").read_text() == "n2\n", centre.story(jobs[0])
    assert (destination / "of-n2").read_text() == "n1\n", centre.story(jobs[1])
    centre.cluster.submit("#!/bin/bash\n#BB destroy_persistent name=mesh\ntrue\n", "--output=/dev/null")
    wait_for(lambda: centre.instance.ask("ls")["reservations"] == [], "the reservation to go", 120)
    centre.must_be_clean()


def _why(centre: GuestCentre, job: int) -> dict[str, str]:
    answers: list[dict[str, str]] = centre.instance.ask("why", str(job))["answers"]
    (answer,) = [answer for answer in answers if answer["subject"].startswith("job ")]
    return answer
