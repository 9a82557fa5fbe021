# SPDX-License-Identifier: Apache-2.0
"""A job's nodes: their names, and the links that prolog and epilog make on each."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.errors import InvalidArgumentError, StorageError
from forebay.workflows.files.namespaces import make_namespaces, private_folder
from forebay.workflows.slurm.node_names import parse_node_names
from tests.support.mounted import silent_mount
from tests.support.staging_server import forebayd
from tests.support.time_limits import seconds


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("n1", {"n1"}),
        ("n[1-3]", {"n1", "n2", "n3"}),
        ("n[08-10,12],login-1.site", {"n08", "n09", "n10", "n12", "login-1.site"}),
        ("r[1-2]c,r3", {"r1c", "r2c", "r3"}),
    ],
)
def test_lists_of_nodes_are_read_as_slurm_writes_them(text: str, names: set[str]) -> None:
    assert parse_node_names(text) == names


@pytest.mark.parametrize("text", ["n[", "n[1-", "n[a]", "n 1", "(null)", "n[1-999999999]"])
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_node_names(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An instance's, whose job 17 has private scratch on its nodes."""
    (tmp_path / "slurm").mkdir()
    files = tmp_path / "files"
    make_namespaces(_made(files), "17", os.geteuid(), os.getegid(), private=True, prolog=True)
    (tmp_path / "slurm" / "snapshot").write_text("== pools\n{}\n== parts\n2\n== end\n")
    (tmp_path / "slurm" / "snapshot.0").write_text(
        "== sessions\n\n== paths 18\nFOREBAY_RESERVATION=x\n== paths 16\n== end\n"
    )
    (tmp_path / "slurm" / "snapshot.1").write_text(
        f"== sessions\n\n== paths 17\nDW_JOB_STRIPED={files}/17/\nDW_JOB_PRIVATE={tmp_path}/node/17/\n== end\n"
    )
    return tmp_path


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def begin(root: Path, job: str, node: str, settings: str = "") -> subprocess.CompletedProcess[str]:
    """What a prolog runs. `settings`: lines of [slurm]."""
    return _run(root, "begin", job, settings, SLURMD_NODENAME=node)


def end(root: Path, job: str, settings: str = "") -> subprocess.CompletedProcess[str]:
    """What an epilog runs."""
    return _run(root, "end", job, settings)


def _run(root: Path, verb: str, job: str, settings: str, **told: str) -> subprocess.CompletedProcess[str]:
    configuration = root / "forebay.toml"
    configuration.write_text(f'# of the centre\nroot = "{root}"  # here\n[slurm]\n{settings}\n')
    environment = {"FOREBAY_CONFIG": str(configuration), "SLURM_JOB_ID": job, **told}
    program = forebayd().parents[1] / "workflows" / "forebay-job"
    return subprocess.run(
        [program, verb], env=environment, capture_output=True, text=True, check=False, timeout=seconds(30)
    )


def test_each_node_has_its_own_directory_behind_the_same_link(root: Path) -> None:
    for node in ("n1", "n2", "n1"):
        assert begin(root, "17", node).stdout == f"made {root}/node/17\n"
        assert (root / "node" / "17").resolve() == private_folder(root / "files", node)
    assert private_folder(root / "files", "n1").stat().st_mode & 0o777 == 0o700


def test_begin_and_end_take_less_than_20_ms_of_processor(root: Path) -> None:
    """Every node runs them for every job. A thousand other jobs are there."""
    part = root / "slurm" / "snapshot.1"
    others = "".join(f"== paths {job}\nDW_JOB_STRIPED={root}/files/{job}/\n" for job in range(101, 2101, 2))
    part.write_text(part.read_text().replace("== paths 17\n", f"{others}== paths 17\n"))

    def least_seconds(call: Callable[[], subprocess.CompletedProcess[str]]) -> float:
        taken = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert call().returncode == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(taken)

    assert least_seconds(lambda: begin(root, "17", "n1")) < 0.020
    assert least_seconds(lambda: end(root, "17")) < 0.020


def test_a_job_without_private_scratch_needs_nothing(root: Path) -> None:
    for job in ("18", "16", "20"):
        done = begin(root, job, "n1")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_node_that_does_not_see_the_files_says_so(root: Path) -> None:
    os.rename(root / "files", root / "elsewhere")
    done = begin(root, "17", "n1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: this node does not see $DW_JOB_STRIPED (")


def test_a_reservation_that_somebody_destroyed_is_no_fault_of_the_node(root: Path) -> None:
    part = root / "slurm" / "snapshot.0"
    part.write_text(part.read_text().replace("== paths 18\n", f"== paths 18\nDW_PERSISTENT_STRIPED_x={root}/gone/\n"))
    assert begin(root, "18", "n1").returncode == 1
    (root / "reservations").mkdir()
    done = begin(root, "18", "n1")
    assert done.returncode == 0
    assert "$DW_PERSISTENT_STRIPED_x is gone: somebody destroyed the reservation" in done.stderr


def test_a_reservation_with_private_scratch_that_its_user_destroyed_costs_the_job_alone(root: Path) -> None:
    begin(root, "17", "n1")
    os.rename(root / "files", root / "elsewhere")
    (root / "reservations").mkdir()
    done = begin(root, "17", "n1")
    assert (done.returncode, done.stdout) == (0, f"removed {root}/node/17\n")
    assert "job 17 has no private scratch here, by its user's doing: the reservation is gone" in done.stderr
    assert not os.path.lexists(root / "node" / "17")


def test_a_token_that_went_with_a_cancelled_job_costs_the_job_alone(root: Path) -> None:
    token = root / "slurm" / "tokens" / "18"
    part = root / "slurm" / "snapshot.0"
    part.write_text(part.read_text().replace("== paths 18\n", f"== paths 18\nFOREBAY_TOKEN_FILE={token}\n"))
    assert begin(root, "18", "n1").returncode == 1  # nodes that do not see the folder do not see tokens
    token.parent.mkdir()
    done = begin(root, "18", "n1")
    assert done.returncode == 0
    assert "job 18 has no token" in done.stderr


@pytest.mark.parametrize("name", ["snapshot", "snapshot.1"])
def test_half_a_snapshot_is_none(root: Path, name: str) -> None:
    snapshot = root / "slurm" / name
    snapshot.write_text(snapshot.read_text()[:-4])
    done = begin(root, "17", "n1")
    assert done.returncode == 1
    assert "this node cannot read what jobs have, or it is not whole" in done.stderr


def test_what_the_user_put_there_is_not_followed_and_costs_the_job_alone(root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    begin(root, "17", "n1")
    private_folder(root / "files", "n1").rmdir()
    private_folder(root / "files", "n1").symlink_to(tmp_path / "precious")
    done = begin(root, "17", "n1")
    # A status other than 0 would drain the node.
    assert (done.returncode, done.stdout) == (0, "")
    assert "job 17 has no private scratch here, by its user's doing: it is no folder" in done.stderr
    assert not os.path.lexists(root / "node" / "17")


@pytest.mark.parametrize("kind", ["file", "link", "nothing"])
def test_a_folder_of_private_scratch_that_the_user_replaced_costs_the_job_alone(root: Path, kind: str) -> None:
    private = private_folder(root / "files", "n1").parent
    private.rename(root / "moved")
    if kind == "file":
        private.write_text("mine")
    elif kind == "link":
        private.symlink_to(root / "moved")
    done = begin(root, "17", "n1")
    assert (done.returncode, done.stdout) == (0, "")
    assert "job 17 has no private scratch here, by its user's doing: private is no folder" in done.stderr
    assert not (root / "moved" / "n1").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_what_is_mounted_in_a_jobs_files_is_not_asked(root: Path) -> None:
    """A raw FUSE file system whose program never answers: whoever asks it for anything waits for ever."""
    begin(root, "17", "n1")
    private = private_folder(root / "files", "n1")
    (root / "node" / "16").symlink_to(root / "elsewhere" / "private" / "n1")
    (root / "elsewhere" / "private" / "n1").mkdir(parents=True)
    for place, warning in (
        (private, ""),
        (root / "elsewhere" / "private" / "n1", ""),
        (root / "files" / "17", ""),
        (private.parent, "another file system is mounted on private"),
    ):
        with silent_mount(place):
            done = begin(root, "17", "n1")
            assert done.returncode == 0, done.stderr
            assert warning in done.stderr
            assert end(root, "17", f'node_folder = "{root}/node"').returncode == 0
        assert os.path.lexists(root / "node" / "16")


def test_the_end_of_a_job_removes_its_link_and_those_of_lost_jobs(root: Path) -> None:
    begin(root, "17", "n1")
    (root / "node" / "5").symlink_to(root / "gone/private/n1")
    (root / "node" / "other").symlink_to(root / "gone/private/n1")
    setting = f'node_folder = "{root}/node"'
    assert end(root, "17").stdout == ""
    assert end(root, "17", setting).stdout == f"removed {root}/node/5\nremoved {root}/node/17\n"
    assert end(root, "17", setting).stdout == ""
    assert sorted(path.name for path in (root / "node").iterdir()) == ["other"]


NAMES = ("", "n1", "n[1-3]", "n[08-10,12],login-1.site", "r[1-2]c,r3")


@pytest.mark.parametrize("text", NAMES)
def test_the_prolog_does_nothing_on_nodes_that_see_no_burst_buffer(root: Path, text: str) -> None:
    """And reads the list of those that do as the manager does."""
    names = parse_node_names(text)
    for node in ("n1", "n3", "n4", "n8", "n08", "n10", "n012", "n12", "login-1.site", "r1c", "r1", "r2c", "r3", "x"):
        made = f"made {root}/node/17\n" if not text or node in names else ""
        done = begin(root, "17", node, f"nodes = '{text}'")
        assert (done.returncode, done.stdout) == (0, made), (node, done.stderr)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('nodes = "n["', "is no list of nodes"),
        ('nodes = "n[a]"', "is no list of nodes"),
        ("nodes = 5", "nodes in "),
        ('nodes = "n\\\\1"', "without backslashes"),
        ('nodes = """n1"""', "is no text in quotes"),
    ],
)
def test_what_the_prolog_cannot_read_of_the_configuration_it_refuses(root: Path, settings: str, reason: str) -> None:
    done = begin(root, "17", "n1", settings)
    assert done.returncode == 1
    assert reason in done.stderr


def test_settings_that_are_written_in_another_way_are_not_taken_for_missing(root: Path) -> None:
    configuration = root / "other.toml"
    configuration.write_text(f'root = "{root}"\nslurm.nodes = "n1"\n')
    program = forebayd().parents[1] / "workflows" / "forebay-job"
    environment = {"FOREBAY_CONFIG": str(configuration)}
    done = subprocess.run([program, "begin", "17"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "write the settings of slurm below a line [slurm]" in done.stderr


@pytest.mark.parametrize("job", ["0", "../17", "017", "", "17 "])
def test_what_is_no_job_number_is_refused(root: Path, job: str) -> None:
    for call in (begin(root, job, "n1"), end(root, job)):
        assert call.returncode == 1
        assert "is no job number" in call.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_private_scratch_is_made_with_the_rights_of_the_jobs_user(root: Path) -> None:
    private = private_folder(root / "files", "n1").parent
    os.chown(private, 65534, 65534)
    begin(root, "17", "n1")
    assert private_folder(root / "files", "n1").stat().st_uid == 65534
    private.chmod(0o500)
    done = begin(root, "17", "n2")
    assert done.returncode == 0
    assert "by its user's doing: Permission denied" in done.stderr


def test_scratch_that_has_another_things_name_is_not_given_away(tmp_path: Path) -> None:
    files = _made(tmp_path / "files")
    (tmp_path / "precious").mkdir(mode=0o700)
    (files / "17").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match="scratch cannot be made"):
        make_namespaces(files, "17", os.geteuid(), os.getegid(), private=False, prolog=False)
    assert (tmp_path / "precious").stat().st_mode & 0o777 == 0o700
