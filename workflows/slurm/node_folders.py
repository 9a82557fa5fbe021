# SPDX-License-Identifier: Apache-2.0
"""What a job has on one of its nodes: a link to the node's own private scratch, made by the prolog and removed by the
epilog. The same path leads to another directory on each node.

What the link's name is follows from the snapshot that the manager keeps below the root, so that the nodes need neither
the manager nor Slurm.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from forebay.errors import InvalidArgumentError, StorageError
from forebay.workflows.slurm.namespaces import private_folder
from forebay.workflows.slurm.snapshot_sections import part_name, part_of_job
from forebay.workflows.slurm.users import acting_as

__all__ = ["begin_on_node", "end_on_node", "variables_of"]

_TOKEN = re.compile(r"[1-9][0-9]{0,18}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def variables_of(root: Path, token: str) -> dict[str, str]:
    """The variables of a job; none if the job has no burst buffer.

    Raises
    ------
    StorageError
        The snapshot cannot be read: this node does not see the root, or the caller is not root.
    """
    if _TOKEN.fullmatch(token) is None:
        raise InvalidArgumentError(f"{token[:80]!r} is no job number")
    folder = root / "slurm"
    parts = _section(_whole(folder / "snapshot"), "parts")
    if parts is None:
        raise StorageError("what jobs have is not whole", str(folder / "snapshot"))
    lines = _section(_whole(folder / part_name(part_of_job(token, int(parts)))), f"paths {token}")
    return dict(line.split("=", 1) for line in (lines or "").splitlines() if "=" in line)


def _whole(path: Path) -> str:
    """The content of a file of the snapshot."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(f"this node cannot read what jobs have: {error.strerror}", str(path)) from None
    if not text.endswith("== end\n"):
        raise StorageError("what jobs have is not whole", str(path))
    return text


def _section(text: str, name: str) -> str | None:
    """The lines of a section; None if there is none of that name."""
    _, found, rest = f"\n{text}".partition(f"\n== {name}\n")
    if not found:
        return None
    return "" if rest.startswith("== ") else rest.partition("\n== ")[0]


def begin_on_node(root: Path, token: str, node: str) -> list[str]:
    """Makes what the job needs here; idempotent. Returns what was made.

    Raises
    ------
    StorageError
        The node does not see the job's files, or the link cannot be made.
    """
    if _NODE.fullmatch(node) is None:
        raise InvalidArgumentError(f"{node[:80]!r} is no node's name")
    variables = variables_of(root, token)
    for name, value in variables.items():
        if name.startswith("DW_") and name != "DW_JOB_PRIVATE" and not Path(value).is_dir():
            raise StorageError(f"this node does not see ${name}", value)
    # What the file has only the job's user may read; root on this node may be nobody to the root's file system.
    if (token_file := variables.get("FOREBAY_TOKEN_FILE")) is not None and not os.path.lexists(token_file):
        raise StorageError("this node does not see $FOREBAY_TOKEN_FILE", token_file)
    files = Path(variables.get("DW_JOB_STRIPED", "")).parent
    link, folder = Path(variables.get("DW_JOB_PRIVATE", "")), private_folder(files, node)
    if "DW_JOB_PRIVATE" not in variables or link.is_relative_to(files):
        return []
    try:
        _make_as_owner(folder)
        link.parent.mkdir(mode=0o755, exist_ok=True)
        remove_dangling(link.parent)
        new = link.with_name(f".{link.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(folder)
        new.rename(link)
    except OSError as error:
        raise StorageError(f"the node's private scratch cannot be made: {error.strerror}", error.filename) from None
    return [str(link)]


def end_on_node(node_folder: str, token: str) -> list[str]:
    """Removes what `begin_on_node` made here, and what it made for jobs that are gone; idempotent. Returns the links.

    The directories themselves lie in the job's reservation and go with it.
    """
    if _TOKEN.fullmatch(token) is None:
        raise InvalidArgumentError(f"{token[:80]!r} is no job number")
    if not node_folder:
        return []
    removed = remove_dangling(Path(node_folder))
    link = Path(node_folder) / token
    if link.is_symlink():
        link.unlink(missing_ok=True)
        removed.append(str(link))
    return removed


def remove_dangling(node_folder: Path) -> list[str]:
    """Removes links that lead nowhere: the job's epilog has not run, and its reservation has gone."""
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for link in sorted(node_folder.iterdir()):
            if _TOKEN.fullmatch(link.name) and link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
                removed.append(str(link))
    return removed


def _make_as_owner(folder: Path) -> None:
    """The parent is the job's user's, who might have put anything there: it is made with that user's rights."""
    owner = folder.parent.stat(follow_symlinks=False)
    if not stat.S_ISDIR(owner.st_mode):
        raise StorageError("it is no folder", str(folder.parent))
    with acting_as(owner.st_uid, owner.st_gid):
        folder.mkdir(mode=0o700, exist_ok=True)
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise StorageError("it is no folder", str(folder))
