# SPDX-License-Identifier: Apache-2.0
"""Views whose keeper, or the command that made them, was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from forebay.errors import NotFoundError
from forebay.views.folder import ViewFolder, ViewsFolder
from forebay.views.holder import Holder, holder_of

__all__ = ["remove_without_holder", "views_left_over"]


def views_left_over(folder: ViewsFolder) -> Iterator[tuple[ViewFolder, Holder | None]]:
    """The views that nobody keeps, locked, with the process that they live for if it lives; in this process's turn."""
    for name in folder.names():
        if (view := folder.left_over(name)) is not None:
            yield view, _living_holder(view)


def remove_without_holder(folder: ViewsFolder) -> int:
    """Removes those that nobody keeps or needs; how many. In this process's turn."""
    removed = 0
    for view, holder in views_left_over(folder):
        if holder is None:
            folder.remove(view)
            removed += 1
        else:
            os.close(holder.descriptor)
            view.close()
    return removed


def _living_holder(view: ViewFolder) -> Holder | None:
    record = view.read_record()
    if record is None or not record.holder:
        return None
    try:
        found = holder_of(int(record.holder.split("/")[1]))
    except (NotFoundError, IndexError, ValueError):
        return None
    if found.identity == record.holder:
        return found
    os.close(found.descriptor)
    return None
