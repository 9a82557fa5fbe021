# SPDX-License-Identifier: Apache-2.0
"""Files of another user give that user nothing that only their reader may read."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.connectors import amrex
from forebay.errors import InvalidArgumentError, PermissionDeniedError
from forebay.hdf5_presence import check_present
from forebay.hdf5_reading import open_hdf5, readable_path
from forebay.viz.publishing.publication import FileFormat, Publication, Viewer
from tests.support.plotfiles import write_plotfile
from tests.support.users import Users

h5py = pytest.importorskip("h5py")

_SECRET = b"only ada may read this"


def _refused(read: Callable[[], Any]) -> None:
    """Raises nothing if reading is refused: for another process, whose failures are errors."""
    with pytest.raises(PermissionDeniedError):
        read()


def _read(path: Path) -> bytes:
    with open_hdf5(path) as file:
        return bytes(file["data"][...])


def _external(file: Any, private: Path) -> None:
    file.create_dataset("data", (len(_SECRET),), "u1", external=[(str(private), 0, len(_SECRET))])


def _virtual(file: Any, private: Path) -> None:
    layout = h5py.VirtualLayout((len(_SECRET),), "u1")
    layout[:] = h5py.VirtualSource(f"{private}.h5", "data", (len(_SECRET),), "u1")
    file.create_virtual_dataset("data", layout)


def _link(file: Any, private: Path) -> None:
    file["data"] = h5py.ExternalLink(f"{private}.h5", "data")


@pytest.mark.parametrize("refer", [_external, _virtual, _link])
def test_what_a_strangers_hdf5_file_refers_to_is_not_read(
    users: Users, common: Path, refer: Callable[[Any, Path], None]
) -> None:
    ada, eve = users("ada"), users("eve")
    private, file = ada.home / "private", common / "his00001.h5"

    def keep() -> None:
        private.write_bytes(_SECRET)
        with h5py.File(f"{private}.h5", "w") as made:
            made["data"] = np.frombuffer(_SECRET, np.uint8)

    def lay(path: Path) -> None:
        with h5py.File(path, "w") as made:
            refer(made, private)
        path.chmod(0o644)

    ada.call(keep)
    eve.call(lambda: lay(file))
    ada.call(lambda: _refused(lambda: _read(file)))

    def refused_by_libraries() -> None:
        with readable_path(file):
            pass

    ada.call(lambda: _refused(refused_by_libraries))
    # A detector's own file goes on to refer to its parts.
    own = common / "own.h5"
    ada.call(lambda: lay(own))

    def whole() -> None:
        assert _read(own) == _SECRET

    ada.call(whole)


def test_a_strangers_file_that_takes_the_name_of_ones_own_is_not_read(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    name, other = common / "his00001.h5", common / "other.h5"

    def lay(path: Path) -> None:
        with h5py.File(path, "w") as made:
            made["data"] = np.frombuffer(_SECRET, np.uint8)
        path.chmod(0o644)

    ada.call(lambda: lay(name))
    eve.call(lambda: lay(other))

    def read() -> None:
        with readable_path(name) as path:
            other.rename(path)
            opened = h5py.File(path, "r")
        opened.close()

    ada.call(lambda: _refused(read))


def test_what_a_strangers_part_of_ones_own_file_refers_to_is_not_read(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    private, part, own = ada.home / "private", common / "part", ada.home / "master.h5"

    def lay() -> None:
        with h5py.File(f"{part}.h5", "w") as made:
            _external(made, private)
        Path(f"{part}.h5").chmod(0o644)

    def keep() -> None:
        private.write_bytes(_SECRET)
        with h5py.File(own, "w") as made:
            _virtual(made, part)

    eve.call(lay)
    ada.call(keep)

    def read() -> None:
        with open_hdf5(own) as file:
            check_present(file["data"])

    ada.call(lambda: _refused(read))


def test_a_strangers_file_without_references_is_read(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    file = common / "plain.h5"

    def lay() -> None:
        with h5py.File(file, "w") as made:
            made["data"] = np.frombuffer(_SECRET, np.uint8)
            made["again"] = h5py.SoftLink("/data")
        file.chmod(0o644)

    eve.call(lay)

    def whole() -> None:
        assert _read(file) == _SECRET

    ada.call(whole)


def test_a_strangers_link_leads_to_no_input(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    private, link = ada.home / "private.h5", common / "his00001.h5"

    def keep() -> None:
        with h5py.File(private, "w") as made:
            made["data"] = np.frombuffer(_SECRET, np.uint8)

    ada.call(keep)
    eve.call(lambda: link.symlink_to(private))
    ada.call(lambda: _refused(lambda: _read(link)))


def test_a_strangers_plotfile_publishes_no_other_file(users: Users, common: Path) -> None:
    codecs.lookup("ascii")  # a forked process of another user may not load it
    ada, eve = users("ada"), users("eve")
    private, plotfile = ada.home / "plt00001", common / "plt00001"
    ada.call(lambda: write_plotfile(private, 1))

    def lay() -> None:
        write_plotfile(plotfile, 1)
        data = next((plotfile / "Level_0").glob("Cell_D_*"))
        data.unlink()
        data.symlink_to(private / "Level_0" / data.name)

    eve.call(lay)

    def read() -> None:
        found = amrex.Plotfile.read(plotfile)
        _refused(lambda: list(found.blocks(0, found.fields)))

    ada.call(read)


@pytest.mark.parametrize("file_format", [FileFormat.VTI, FileFormat.XDMF])
def test_a_strangers_pipe_in_the_place_of_an_index_holds_nobody(
    users: Users, common: Path, file_format: FileFormat
) -> None:
    ada, eve = users("ada"), users("eve")

    def publish() -> Path:
        return Publication(common, Viewer.PARAVIEW, "flow", file_format=file_format).index

    index = ada.call(publish)
    eve.call(lambda: os.mkfifo(index, 0o666))

    def refused() -> None:
        with pytest.raises(InvalidArgumentError, match=r"no regular file|was not written by"):
            publish()

    ada.call(refused)
