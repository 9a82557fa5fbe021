# SPDX-License-Identifier: Apache-2.0
"""Jobs of two nodes whose files lie on another server than the manager's, in a persistent reservation or in their own:
real Slurm, and the real NFS client in guests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from forebay.workflows.manager.core.pools.server_name import server_name
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

#: Moves a tree in and out by way of the node's mount, as the manager's node does for stages.
_MOVES = """\
import sys
from unittest.mock import Mock
from forebay.workflows.staging.file_mover import move

for inward, outside in (("1", sys.argv[2]), ("0", sys.argv[3])):
    request = {"inside": sys.argv[1], "inward": inward, "path": "moved", "outside": outside, "name": "far"}
    move(request | {"only": "", "acls": "0", "wait_closed_ms": "1000"}, Mock())
"""

#: Of all that a stage keeps but content.
_LISTING = "find . -type f -printf '%P %m %n %u\\n' -o -type l -printf '%P %u %l\\n' | sort"

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


_OWN_SCRIPT = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped,private type=scratch
set -e
cd "$DW_JOB_STRIPED"
srun --nodes=1 --ntasks=1 --nodelist=n2 sh -c 'hostname > writer; hostname > "$DW_JOB_PRIVATE/own"'
hostname > "$DW_JOB_PRIVATE/own"
cat writer > seen
hostname >> seen
until [ -e go ]; do sleep 0.2; done
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


def test_a_jobs_own_scratch_lies_on_the_emptiest_server(centre: GuestCentre) -> None:
    with second_server(centre) as second:
        # The other server has 1 GiB.
        centre.instance.ask("create", "ballast", "--on", server_name(), "--capacity", "1200MiB", "--persistent")
        job = centre.submit(_OWN_SCRIPT)

        def scratch() -> list[Path]:
            return list(second.root.glob(f"reservations/*/files/{job}/seen"))

        try:
            wait_for(lambda: any(path.read_text() == "n2\nn1\n" for path in scratch()), "the job's files", 120)
        except AssertionError as error:
            raise AssertionError(f"{error}; {centre.cluster.show(job)}\n{centre.story(job)}") from None
        (seen,) = scratch()
        assert seen.owner() == PERSON
        own = {path.parent.name: path.read_text() for path in seen.parents[1].glob("private/*/own")}
        assert own == {"n1": "n1\n", "n2": "n2\n"}
        (seen.parent / "go").touch()
        centre.wait_until_gone(job)
        (answer,) = [each for each in centre.instance.ask("why", str(job))["answers"] if "job" in each["subject"]]
        assert "fenced" not in str(answer), answer
        assert list((second.root / "reservations").iterdir()) == []
        centre.instance.ask("destroy", "ballast", "--force")
    centre.must_be_clean()


def _make_tree(tree: Path) -> None:
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "large").write_bytes(os.urandom(5 << 20))
    os.link(tree / "deep" / "large", tree / "again")
    (tree / "link").symlink_to("deep/large")
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o750)
    with (tree / "holes").open("wb") as written:
        written.truncate(8 << 20)
        written.seek(4 << 20)
        written.write(b"end")
    os.utime(tree / "run", ns=(1, 1_600_000_000_000_000_001))
    subprocess.run(["chown", "-R", "-h", PERSON, str(tree)], check=True)


def _facts(tree: Path) -> dict[str, tuple[object, ...]]:
    """What must be as it was of each entry; of times the seconds, for Ganesha sets no more of them."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        of_all = (status.st_mode, status.st_uid)
        if path.is_symlink():
            found[str(path.relative_to(tree))] = (*of_all, path.readlink())
        elif path.is_file():
            of_file = (status.st_nlink, int(status.st_mtime), path.read_bytes())
            found[str(path.relative_to(tree))] = (*of_all, *of_file)
        else:
            found[str(path.relative_to(tree))] = of_all
    return found


def test_the_mover_moves_trees_by_way_of_a_nodes_mount(centre: GuestCentre, destination: Path) -> None:
    """What comes out is compared there: nodes write nothing into this machine's folders."""
    source = destination / "source"
    _make_tree(source)
    (destination / "moves.py").write_text(_MOVES)
    with second_server(centre) as second:
        _as_person(centre, "create", "far", "--on", SECOND, "--capacity", "32MiB", "--files", CAPACITY, "--persistent")
        (files,) = second.root.glob("reservations/*/files")
        centre.cluster.restart_controller()
        wait_for(lambda: "Name=far" in centre.cluster.buffers(), "Slurm to know the reservation", 60)
        job = centre.submit(
            "#!/bin/bash\n#DW persistentdw name=far\n"
            'cd "$DW_PERSISTENT_STRIPED_far"; exec > said 2>&1\n'
            f"{centre.python} {destination}/moves.py $(pwd) {source} /tmp/back && diff -r {source} /tmp/back\n"
            f"(cd /tmp/back && {_LISTING}) > /tmp/listed\n"
            f"(cd {source} && {_LISTING}) | diff - /tmp/listed && echo equal\n"
            "rm -rf /tmp/back /tmp/listed\n"
        )
        centre.wait_until_gone(job)
        said = (files / "said").read_text()
        assert said == "equal\n", said + centre.story(job)
        assert _facts(files / "moved") == _facts(source)
        assert sorted(path.name for path in files.iterdir()) == ["moved", "said"]
        _as_person(centre, "destroy", "far", "--force")
        centre.cluster.restart_controller()
    centre.must_be_clean()
