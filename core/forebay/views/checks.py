# SPDX-License-Identifier: Apache-2.0
"""What `forebay doctor` says of the user's views, and mends."""

from __future__ import annotations

import os
from pathlib import Path

from forebay.errors import NotFoundError
from forebay.records import Finding, Severity
from forebay.views.folder import ViewsFolder, default_folder
from forebay.views.keeping import keeper_runs, start_keeper
from forebay.views.left_over import remove_without_holder, views_left_over
from forebay.views.mounting import dead_mounts, remove_dead_mounts

__all__ = ["check", "heal"]


def check(root: Path) -> list[Finding]:
    """Views that nobody keeps, as their keeper or the command that made them was killed, and mounts without process."""
    dead = [
        Finding(Severity.PROBLEM, folder, "the process of this mount has died: run `forebay doctor --heal`")
        for folder in dead_mounts()
    ]
    path = default_folder(root)
    try:
        folder = ViewsFolder.open(path, create=False)
    except NotFoundError:
        return dead
    with folder, folder.turn():
        left_over = 0
        for view, holder in views_left_over(folder):
            left_over += 1
            view.close()
            if holder is not None:
                os.close(holder.descriptor)
    if not left_over:
        return dead
    counted = "1 view that nobody keeps" if left_over == 1 else f"{left_over} views that nobody keeps"
    return [*dead, Finding(Severity.PROBLEM, str(path), f"{counted}: run `forebay doctor --heal`")]


def heal(root: Path) -> None:
    """Removes views that nobody keeps or needs. Those whose process lives get a keeper again. Unmounts what is dead."""
    remove_dead_mounts()
    try:
        folder = ViewsFolder.open(default_folder(root), create=False)
    except NotFoundError:
        return
    with folder, folder.turn():
        if keeper_runs(folder) or not folder.names():
            remove_without_holder(folder)
        else:
            start_keeper(folder)
