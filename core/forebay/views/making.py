# SPDX-License-Identifier: Apache-2.0
"""Makes the view of a step, and hands it over to the keeper."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from forebay.manager.process_identity import process_identity
from forebay.step import Step
from forebay.views.address import ViewAddress
from forebay.views.copying import copy_to
from forebay.views.folder import ViewRecord, ViewsFolder
from forebay.views.formats import format_named
from forebay.views.holder import Holder
from forebay.views.keeping import hand_over
from forebay.views.left_over import remove_without_holder

__all__ = ["MadeView", "make_view"]


@dataclass(frozen=True)
class MadeView:
    """A view that the keeper keeps."""

    path: Path
    size_bytes: int


def make_view(step: Step, address: ViewAddress, holder: Holder, path: Path) -> MadeView:
    """Makes the file below the folder of views ``path``.

    Raises
    ------
    VariableNotFoundError, UnsupportedError
        The format cannot hold what is asked for.
    StepGoneError, CorruptError
        The step cannot be read.
    NoSpaceError, PermissionDeniedError, BusyError, StorageError
        The folder is full, not the user's alone, or its keeper is at fault.
    """
    sealed = format_named(address.format).lay_out(step, address.variable)
    name = address.file_name(step)
    with ViewsFolder.open(path, create=True) as folder:
        with folder.turn():
            remove_without_holder(folder)
            view = folder.make()
        try:
            # While it is made it lives for this process.
            view.write_record(ViewRecord(name, process_identity(os.getpid()) or ""))
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400, dir_fd=view.descriptor)
            try:
                copy_to(file, sealed, step)
            finally:
                os.close(file)
            view.write_record(ViewRecord(name, holder.identity))
            with folder.turn():
                hand_over(folder, view, holder)
        except BaseException:
            folder.remove(view)
            raise
        view.close()
        return MadeView(folder.path_of(view, name), sealed.size_bytes)
