# SPDX-License-Identifier: Apache-2.0
"""A job's nodes: their names, and the links that prolog and epilog make on each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forebay.cli.root import run
from forebay.errors import InvalidArgumentError, StorageError
from forebay.workflows.slurm.namespaces import make_namespaces, private_folder
from forebay.workflows.slurm.node_folders import begin_on_node, end_on_node, variables_of
from forebay.workflows.slurm.node_names import parse_node_names


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


def test_each_node_has_its_own_directory_behind_the_same_link(root: Path) -> None:
    for node in ("n1", "n2", "n1"):
        assert begin_on_node(root, "17", node) == [f"{root}/node/17"]
        assert (root / "node" / "17").resolve() == private_folder(root / "files", node)
    assert private_folder(root / "files", "n1").stat().st_mode & 0o777 == 0o700


def test_a_job_without_private_scratch_needs_nothing(root: Path) -> None:
    assert begin_on_node(root, "18", "n1") == []
    assert variables_of(root, "16") == {}
    assert begin_on_node(root, "20", "n1") == []


def test_a_node_that_does_not_see_the_files_says_so(root: Path) -> None:
    os.rename(root / "files", root / "elsewhere")
    with pytest.raises(StorageError, match="does not see"):
        begin_on_node(root, "17", "n1")


@pytest.mark.parametrize("name", ["snapshot", "snapshot.1"])
def test_half_a_snapshot_is_none(root: Path, name: str) -> None:
    snapshot = root / "slurm" / name
    snapshot.write_text(snapshot.read_text()[:-4])
    with pytest.raises(StorageError, match="not whole"):
        begin_on_node(root, "17", "n1")


def test_what_the_user_put_there_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    private_folder(root / "files", "n1").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError):
        begin_on_node(root, "17", "n1")


def test_the_end_of_a_job_removes_its_link_and_those_of_lost_jobs(root: Path) -> None:
    begin_on_node(root, "17", "n1")
    (root / "node" / "5").symlink_to(root / "gone")
    (root / "node" / "other").symlink_to(root / "gone")
    assert end_on_node(str(root / "node"), "17") == [f"{root}/node/5", f"{root}/node/17"]
    assert end_on_node(str(root / "node"), "17") == []
    assert end_on_node("", "17") == []
    assert sorted(path.name for path in (root / "node").iterdir()) == ["other"]


def test_the_prolog_does_nothing_on_nodes_that_see_no_burst_buffer(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configuration = tmp_path / "forebay.toml"
    configuration.write_text(f'root = "{root}"\n[slurm]\nnodes = "n[1-2]"\nnode_folder = "{root}/node"\n')
    monkeypatch.setenv("FOREBAY_CONFIG", str(configuration))
    for node, made in (("n3", ""), ("n1", f"made {root}/node/17\n")):
        assert run(["job-begin", "17", "--node", node]) == 0
        assert capsys.readouterr().out == made
    assert run(["job-end", "17"]) == 0
    assert capsys.readouterr().out == f"removed {root}/node/17\n"


def test_scratch_that_has_another_things_name_is_not_given_away(tmp_path: Path) -> None:
    files = _made(tmp_path / "files")
    (tmp_path / "precious").mkdir(mode=0o700)
    (files / "17").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match="scratch cannot be made"):
        make_namespaces(files, "17", os.geteuid(), os.getegid(), private=False, prolog=False)
    assert (tmp_path / "precious").stat().st_mode & 0o777 == 0o700
