# SPDX-License-Identifier: Apache-2.0
"""What a user writes into a folder where another may change names goes into no other file of that user's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import forebay
from forebay.checksum import crc32c
from forebay.files.by_descriptor import copy_out, found_entry, found_place
from forebay.files.checked_lines import checked_line
from forebay.manager.jobs import StepsJob
from forebay.new_output import new_output
from forebay.viz import movie
from forebay.viz.publishing import publication
from forebay.viz.publishing.publication import Publication, Viewer
from forebay.viz.recorder import Recorder
from forebay.workflows.beamline import service
from forebay.workflows.staging.publication import remove_leftovers
from forebay.workflows.staging.receipt import Receipt, StepEntry
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.fault.instance import Instance
from tests.support.instance import CommandLineInstance
from tests.support.users import Users


def test_a_published_file_follows_no_link_that_another_has_put_there(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    private, target = ada.home / "private", common / "flow.000000.vti"
    ada.call(lambda: private.write_text("mine") and None)
    eve.call(lambda: (common / f".{target.name}.part").symlink_to(private))
    ada.call(lambda: publication._put(target, lambda path: path.write_text("published")))
    assert private.read_text() == "mine"
    assert target.read_text() == "published"


def test_who_exchanges_the_hidden_folder_gets_nothing_and_gives_nothing(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    target = common / "picture.png"

    def exchange() -> None:
        (hidden,) = common.glob(".picture.png.*.part")
        hidden.rename(common / "taken")
        hidden.mkdir()
        (hidden / target.name).write_text("eve's")

    may_write, is_exchanged = os.pipe()

    def write(tell: Callable[[Any], None]) -> str:
        with new_output(target) as path:
            tell("waits")
            os.read(may_write, 1)
            path.write_text("ada's")
        return "written"

    with ada.child(write) as child:
        assert child.next() == "waits"
        eve.call(exchange)
        os.write(is_exchanged, b"!")
        assert child.next() == "written"
    assert target.read_text() == "ada's"
    assert target.stat().st_uid == ada.uid
    assert os.listdir(common / "taken") == []


def test_a_movie_follows_no_link_that_another_has_put_there(users: Users, common: Path) -> None:
    """Nor does it make what is not there: a link may lead to any name of the user's."""
    ada, eve = users("ada"), users("eve")
    earlier, new = ada.home / "earlier.mp4", ada.home / "new"
    ada.call(lambda: earlier.touch())
    for private in (earlier, new):
        link = common / f"{private.name}.mp4"
        eve.call(partial(link.symlink_to, private))

        def record(link: Path = link) -> str:
            with pytest.raises(movie.MovieError, match="is a link"):
                movie.Movie(link, 64, 48)
            return "refused"

        assert ada.call(record) == "refused"
        assert link.is_symlink()
    assert earlier.exists()
    assert not new.exists()


def test_a_file_of_a_transaction_changes_the_mode_of_no_other(
    users: Users, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a name that others see as soon as it is there, and they may put a link in its place."""
    pytest.importorskip("fsspec")
    from forebay.connectors import fsspec

    ada, eve = users("ada"), users("eve")
    private, target = ada.home / "private", common / "results"
    ada.call(lambda: private.touch(0o600))
    target.touch()
    target.chmod(0o666)
    may_exchange, is_exchanged = os.pipe(), os.pipe()
    make = os.open

    def make_and_wait(path: Any, *options: Any, **more: Any) -> int:
        descriptor = make(path, *options, **more)
        if str(path).endswith(".part"):
            os.write(may_exchange[1], b"!")
            os.read(is_exchanged[0], 1)
        return descriptor

    def write(tell: Callable[[Any], None]) -> str:
        monkeypatch.setattr(os, "open", make_and_wait)
        file = fsspec._FileInTransaction(target, "wb")
        file.write(b"ada's")
        return oct(os.fstat(file.fileno()).st_mode & 0o777)

    def exchange() -> None:
        (hidden,) = common.glob(".forebay-*.part")
        hidden.unlink()
        hidden.symlink_to(private)

    with ada.child(write) as child:
        os.read(may_exchange[0], 1)
        eve.call(exchange)
        os.write(is_exchanged[1], b"!")
        assert child.next() == "0o666"
    assert private.stat().st_mode & 0o777 == 0o600


def test_files_of_a_shared_reservation_lead_to_no_others(users: Users, common: Path) -> None:
    """As one goes by paths in `files/`: Snakemake's storage and fsspec do."""
    ada, eve = users("ada"), users("eve")
    private, new = ada.home / "private", ada.home / "new"
    ada.call(lambda: private.write_text("mine") and None)
    eve.call(lambda: (common / "way").symlink_to(ada.home))
    eve.call(lambda: (common / "private").symlink_to(private))

    def read(path: Path) -> str:
        with found_entry(path) as entry:
            return entry.read_text()

    def remove(path: Path) -> None:
        with found_place(path) as place:
            place.unlink()

    def make(path: Path) -> None:
        with found_place(path, makes=True) as place:
            place.touch()

    for action in (
        partial(read, common / "private"),
        partial(read, common / "way" / "private"),
        partial(remove, common / "way" / "private"),
        partial(make, common / "way" / "new"),
        partial(make, common / "way" / "folder" / "new"),
    ):
        with pytest.raises(forebay.PermissionDeniedError, match="has put a link there"):
            ada.call(action)
    assert private.read_text() == "mine"
    assert not new.exists()
    # A link goes as a link, and one's own leads where it says.
    ada.call(partial(remove, common / "way"))
    ada.call(lambda: (common / "own").symlink_to(ada.home))
    assert ada.call(partial(read, common / "own" / "private")) == "mine"


def test_a_tree_is_copied_out_without_what_links_in_it_lead_to(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    private, target = ada.home / "private", ada.home / "copy"
    ada.call(lambda: private.write_text("mine") and None)

    def fill() -> None:
        (common / "tree" / "inner").mkdir(parents=True)
        (common / "tree" / "inner" / "data").write_text("eve's")
        (common / "tree" / "link").symlink_to(private)

    def copy() -> None:
        with found_entry(common / "tree") as entry:
            copy_out(entry, target)

    eve.call(fill)
    ada.call(copy)
    ada.call(copy)  # over what is there
    assert (target / "inner" / "data").read_text() == "eve's"
    assert os.readlink(target / "link") == str(private)


@pytest.mark.parametrize("action", ["read", "write", "append", "touch", "remove", "move", "transaction"])
def test_fsspec_follows_no_link_that_another_has_put_into_a_reservation(
    users: Users, server: Instance, action: str
) -> None:
    pytest.importorskip("fsspec")
    from forebay.connectors.fsspec import ReservationFileSystem

    ada, eve = users("ada"), users("eve")
    private = ada.home / "private"
    ada.call(lambda: private.write_text("mine") and None)
    server.create("shared", "16MiB", files="1MiB", owner_uid=ada.uid, owner_gid=ada.gid)
    socket = server.socket()
    with forebay.Admin(socket) as admin:
        admin.share("shared", "write", user=eve.uid)
        files = Path(admin.reservation("shared").files_path)
    eve.call(lambda: (files / "link").symlink_to(private))
    eve.call(lambda: (files / "way").symlink_to(ada.home))

    def act() -> None:
        system = ReservationFileSystem(socket)
        link, below = "shared/files/link", "shared/files/way/private"
        match action:
            case "read":
                system.cat_file(link)
            case "write" | "append":
                with system.open(link, f"{action[0]}b") as file:
                    file.write(b"more")
            case "touch":
                system.touch(link)
            case "remove":
                system.rm(below, recursive=True)
            case "move":
                system.mv(below, "shared/files/taken")
            case "transaction":
                with system.transaction, system.open(below, "wb") as file:
                    file.write(b"other")

    with pytest.raises(forebay.PermissionDeniedError, match="has put a link there"):
        ada.call(act)
    assert private.read_text() == "mine"


def test_a_dataset_for_idx_goes_by_no_link_to_another_one(users: Users, common: Path) -> None:
    """It removed the steps of the other one, which its own index did not name."""
    pytest.importorskip("OpenVisus")
    from forebay.viz.publishing.idx import IdxPublication

    ada, eve = users("ada"), users("eve")
    private = ada.home / "idx" / "flow"
    ada.call(lambda: (private / "t000001").mkdir(parents=True))
    eve.call(lambda: (common / "flow").symlink_to(private))
    with pytest.raises(forebay.PermissionDeniedError, match="has put a link there"):
        ada.call(lambda: IdxPublication(common, "flow") and None)
    assert (private / "t000001").is_dir()


def test_frames_go_by_no_link_to_those_of_another_movie(users: Users, common: Path) -> None:
    """They became part of this movie, and were replaced and removed."""
    ada, eve = users("ada"), users("eve")
    private = ada.home / "frames"

    def make() -> None:
        private.mkdir()
        Image.new("RGB", (64, 48)).save(private / "000001.png")

    ada.call(make)
    eve.call(lambda: (common / "frames").symlink_to(private))
    painter = SimpleNamespace(size=(64, 48))
    with pytest.raises(forebay.PermissionDeniedError, match="has put a link there"):
        ada.call(lambda: Recorder(common, painter).close())  # type: ignore[arg-type]
    assert (private / "000001.png").exists()
    assert not (common / "movie.mp4").exists()


def test_what_a_chain_says_goes_into_no_file_that_another_has_put_there(users: Users, common: Path) -> None:
    ada, eve = users("ada"), users("eve")
    private = ada.home / "private"
    ada.call(lambda: private.write_text("mine") and None)
    eve.call(lambda: (common / "render.log").symlink_to(private))

    def run() -> list[str]:
        said: list[str] = []
        part = service._Part("render", ["/bin/echo", "drawn"], {}, common)
        part.wait(service.Outcome("scan-0001"), said.append)
        return said

    assert ada.call(run) == ["render: drawn"]
    assert private.read_text() == "mine"
    assert (common / "render.log").read_text() == "drawn\n"
    assert (common / "render.log").stat().st_uid == ada.uid


def test_a_chain_writes_into_no_results_that_another_has_put_there(
    users: Users, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, eve = users("ada"), users("eve")
    earlier = ada.home / "earlier"
    ada.call(earlier.mkdir)
    eve.call(lambda: (common / "scan-0001").symlink_to(earlier))
    monkeypatch.setattr(service, "_next_name", lambda _: "scan-0001")
    settings = service.ChainSettings("run1", common / "scan.h5", common)
    with pytest.raises(forebay.PermissionDeniedError, match="has put a link there"):
        ada.call(lambda: service.run_chain(settings, {}) and None)
    assert list(earlier.iterdir()) == []


def test_another_folder_that_has_the_name_of_a_left_one_stays(users: Users, common: Path) -> None:
    """Eve cannot enter Ada's folder, and gives it a name that a killed process of Ada's may have left."""
    ada, eve = users("ada"), users("eve")
    precious = common / "precious"
    ada.call(partial(_make_thesis, precious))
    painter = SimpleNamespace(size=(64, 48))
    for name, look in (
        (".flow.0001.vti.0123abcd.part", lambda: Publication(common, Viewer.PARAVIEW, "flow") and None),
        (".000001.png.0123abcd.part", lambda: Recorder(common, painter, frames=common).close()),  # type: ignore[arg-type]
        (".flow.bp.partial-0123abcd", lambda: remove_leftovers(common)),
        (".flow.bp.replaced-0123abcd", lambda: remove_leftovers(common)),
    ):
        eve.call(partial(precious.rename, common / name))
        ada.call(look)
        eve.call(partial((common / name).rename, precious))
        assert (precious / "text").exists(), name


def test_a_stage_goes_by_nobody_elses_receipt(
    users: Users, common: Path, instance: CommandLineInstance, forebay_command: list[str]
) -> None:
    """One named what was to be replaced anywhere, and Ada's stage removed it."""
    ada, eve = users("ada"), users("eve")
    assert ada.run([*forebay_command, "create", "adas", "--capacity", "32MiB"]).returncode == 0
    ada.call(lambda: _write_step(instance.root))
    thesis = ada.home / "thesis"
    ada.call(partial(_make_thesis, thesis))
    named = {"output": os.path.relpath(thesis, common), "stream": "adas/flow", "uuid": "u", "format": "bp5"}
    entry = named | {"epoch": 1, "step": 0, "committed_ns": 0, "staged_ns": 0, "complete": True, "verified": "read"}
    entry |= {"variables": [], "files": [], "forebay": "1"}
    lines = checked_line({"format": "forebay.staged-steps.log", "version": 1}) + checked_line(entry)
    whole = json.dumps({"format": "forebay.staged-steps", "version": 1, "steps": [entry]}).encode()
    for name, content in ((".receipt.log", lines), ("receipt.json", whole)):
        eve.call(partial((common / name).write_bytes, content))
        done = ada.run([*forebay_command, "stage-out", "adas/flow", str(common)])
        assert done.returncode == 1
        assert "is not yours" in done.stderr
        assert (thesis / "text").exists()
        (common / name).unlink()
    for name in ("elsewhere", f".all.bp.{crc32c(json.dumps(['bp5', []]).encode()):08x}.steps"):
        eve.call(partial((common / name).symlink_to, ada.home))
    for words in ([str(common / "elsewhere")], [str(common), "--into", "all.bp"]):
        done = ada.run([*forebay_command, "stage-out", "adas/flow", *words])
        assert done.returncode == 1, done
        assert "has put a link there" in done.stderr or "move it away" in done.stderr
    assert [path.name for path in ada.home.iterdir() if not path.name.startswith(".")] == ["thesis"]


def test_who_exchanges_the_destination_of_steps_leads_the_stage_nowhere_else(
    users: Users, common: Path, server: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ada has an older archive with outputs of the same names."""
    ada, eve = users("ada"), users("eve")
    server.create("adas", "64MiB", owner_uid=ada.uid, owner_gid=ada.gid)
    root, out, archive = server.root, common / "out", ada.home / "archive"
    ada.call(lambda: _write_step(root))
    ada.call(partial(_make_thesis, archive))
    ada.call(partial(_make_thesis, archive / "flow.000000.bp"))
    may_exchange, is_exchanged = os.pipe(), os.pipe()
    announce = Receipt.announce

    def wait(receipt: Receipt, entry: StepEntry) -> None:
        announce(receipt, entry)
        os.write(may_exchange[1], b"!")
        os.read(is_exchanged[0], 1)

    def stage(tell: Callable[[Any], None]) -> str:
        monkeypatch.setattr(Receipt, "announce", wait)
        result = stage_steps(StepsJob("adas/flow", str(out)), JsonReporter(StringIO()), forebay.Instance(root))
        return str(result["receipt"])

    with ada.child(stage) as child:
        os.read(may_exchange[0], 1)
        eve.call(partial(out.rename, common / "taken"))
        eve.call(partial(out.symlink_to, archive))
        os.write(is_exchanged[1], b"!")
        assert child.next() == str(out / "receipt.json")
    assert sorted(path.name for path in archive.iterdir()) == ["flow.000000.bp", "text"]
    assert (archive / "flow.000000.bp" / "text").exists()
    assert sorted(os.listdir(common / "taken")) == ["flow.000000.bp", "receipt.json"]


def _make_thesis(folder: Path) -> None:
    folder.mkdir(0o700)
    (folder / "text").write_text("mine")


def _write_step(root: Path) -> None:
    with forebay.open("adas/flow", mode="w", instance=forebay.Instance(root)) as stream, stream.step() as step:
        step["x"] = np.arange(4.0)
