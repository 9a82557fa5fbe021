# SPDX-License-Identifier: Apache-2.0
"""Files that the driver `nfs` shows to two guests, against the same NFS server and client started by hand; what that
costs the home's own programs; how long it takes to show and hide them; the server's memory.

Guests are user-mode Linux on the processors of this machine: absolute rates are those of a slow client.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from forebay.workflows.files.daemon_cgroup import NO_CGROUP
from forebay.workflows.files.daemons import end_daemons, find_daemons, program_path, start_daemon
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import MIB, Workbench
from tests.files.shown_tree import HOME, Actor, Actors, ShownTree, shown_tree
from tests.slurm.cluster import wait_for
from tests.support.mounted import mounted

__all__ = ["files_life", "files_memory", "files_on_nodes", "files_restart", "home_files"]

_IMAGE_MEBIBYTES = 1024
_SMALL_FILES = 300
_MANY_FILES = 100_000
_MANY_FILES_QUICK = 20_000
_PORT = 21049
_BY_HAND = """\
NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Enable_NLM = false; Enable_UDP = false; Enable_RQUOTA = false; }}
NFSV4 {{ RecoveryBackend = fs; RecoveryRoot = "{folder}/recovery"; Grace_Period = 10; Lease_Lifetime = 10; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
  Export_Id = 1; Path = "{tree}"; Pseudo = "/tree"; Access_Type = RW; Squash = Root_Squash; FSAL {{ Name = VFS; }}
}}
"""


def home_files() -> Suite:
    """A program of the home, while the tree is shown to two nodes; on such an image that nobody shows; on a folder."""
    rate = "bytes_per_second"
    return Suite(
        name="files-home",
        cases=[Case("home", _at_home), Case("image", _on_an_image), Case("folder", _in_a_folder)],
        rows=[
            Row("home: write and sync 1 MiB pieces", "such an image", "home", "image", f"write_{rate}", 0.95),
            Row("home: read them again", "such an image", "home", "image", f"read_{rate}", 0.95),
            Row("home: write and sync 1 MiB pieces", "a folder", "home", "folder", f"write_{rate}", guarded=False),
            Row("home: read them again", "a folder", "home", "folder", f"read_{rate}"),
        ],
        repetitions=5,
        repetitions_quick=3,
        best_of=1,
    )


def files_on_nodes() -> Suite:
    """From guests. The file that is read was written by the other one."""
    rate = "bytes_per_second"
    shared = Row("4 processes, 2 nodes, locks", "a file for each", "nfs", "nfs", f"shared_{rate}", None, f"own_{rate}")
    return Suite(
        name="files-nfs",
        cases=[Case("nfs", _shown), Case("by hand", _by_hand)],
        rows=[
            Row("node: write and sync 1 MiB pieces", "Ganesha by hand", "nfs", "by hand", f"write_{rate}", 0.95),
            Row("node: read what another wrote", "Ganesha by hand", "nfs", "by hand", f"read_{rate}", 0.95),
            Row("node: make 300 files", "Ganesha by hand", "nfs", "by hand", "make_seconds"),
            replace(shared, guarded=False),
        ],
        repetitions=5,
        repetitions_quick=3,
        best_of=1,
    )


def files_life() -> Suite:
    """From an empty disk until two nodes have it mounted; back until nothing is left."""
    return Suite(
        name="files-life",
        cases=[Case("nfs", _life)],
        rows=[
            Row("image, server, 2 nodes mount", "limit 3 s", "nfs", 3.0, "show_seconds", 1.0),
            Row("2 nodes unmount, server ends", "limit 2 s", "nfs", 2.0, "hide_seconds", 1.0),
        ],
        repetitions=3,
        repetitions_quick=2,
        best_of=1,
    )


def files_restart() -> Suite:
    """The server killed, and started again as the manager does; the other node has nothing open, and asks nothing."""
    return Suite(
        name="files-restart",
        cases=[Case("nfs", _restart)],
        rows=[
            Row("server killed: a node writes on", "limit 15 s", "nfs", 15.0, "write_seconds", 1.0),
            Row("server killed: a node opens a file", "limit 15 s", "nfs", 15.0, "open_seconds", 1.0, guarded=False),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def files_memory() -> Suite:
    """A node has looked at each of 10⁵ files of one folder."""
    return Suite(
        name="files-memory",
        cases=[Case("nfs", _memory)],
        rows=[
            Row("100 000 files: the server's daemons", "limit 100 MiB", "nfs", 100.0 * MIB, "server_bytes", 1.0),
            Row("100 000 files: a node", "limit 100 MiB", "nfs", 100.0 * MIB, "node_bytes"),
        ],
        repetitions=1,
        repetitions_quick=1,
        best_of=1,
    )


def _at_home(bench: Workbench) -> Figures:
    with bench.scratch() as folder, shown_tree(folder, _IMAGE_MEBIBYTES) as shown:
        return _write_and_read(bench, shown.actor(HOME))


def _on_an_image(bench: Workbench) -> Figures:
    with bench.scratch() as folder, mounted(folder / "files", _IMAGE_MEBIBYTES, "xfs") as tree:
        return _local(bench, tree)


def _in_a_folder(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        return _local(bench, folder)


def _local(bench: Workbench, folder: Path) -> Figures:
    with Actors("127.0.0.1") as actors:
        return _write_and_read(bench, actors.here(folder, uid=0))


def _write_and_read(bench: Workbench, actor: Actor) -> Figures:
    mebibytes = bench.steps(256, 64)
    actor.ask("write_large", "first", mebibytes)  # the image gets its blocks
    written = _seconds(actor, "write_large", "first", mebibytes)
    read = _seconds(actor, "read_large", "first")
    size = mebibytes * MIB
    return {"write_bytes_per_second": size / written, "read_bytes_per_second": size / read}


def _shown(bench: Workbench) -> Figures:
    with bench.scratch() as folder, shown_tree(folder, _IMAGE_MEBIBYTES) as shown:
        return _from_nodes(bench, shown)


def _by_hand(bench: Workbench) -> Figures:
    with bench.scratch() as folder, shown_tree(folder, _IMAGE_MEBIBYTES) as shown:
        shown.hide()
        with _ganesha(folder, shown):
            return _from_nodes(bench, shown)


@contextlib.contextmanager
def _ganesha(folder: Path, shown: ShownTree) -> Iterator[None]:
    """As a manual shows it, mounted without options."""
    configuration = folder / "by-hand.conf"
    configuration.write_text(_BY_HAND.format(port=_PORT, folder=folder, tree=shown.tree))
    (folder / "recovery").mkdir()
    command = [program_path("ganesha.nfsd", "nfs-ganesha-vfs"), "-F", "-f", str(configuration)]
    start_daemon([*command, "-L", str(folder / "log"), "-p", str(folder / "pid")], folder / "out", {}, NO_CGROUP)
    try:
        for guest in shown.guests.values():
            mount = f"mount -t nfs4 -o port={_PORT},retry=0 {shown.network.host}:/tree {shown.place}"
            wait_for(lambda guest=guest, mount=mount: guest.try_to_run(mount)[0] == 0, "the server")  # type: ignore[misc]
        yield
        shown.end_actors()
        for guest in shown.guests.values():
            guest.run(f"umount {shown.place}")
    finally:
        end_daemons(configuration, time.monotonic() + 30)


def _from_nodes(bench: Workbench, shown: ShownTree) -> Figures:
    mebibytes = bench.steps(128, 32)
    first, second = shown.actor("n1"), shown.actor("n2")
    size = mebibytes * MIB
    first.ask("put", "open", "")  # no grace is left to wait for
    written = _seconds(first, "write_large", "first", mebibytes)
    read = _seconds(second, "read_large", "first")
    first.ask("mkdir", "small")
    made = _seconds(first, "make_files", "small", _SMALL_FILES)
    four = [first, second, shown.actor("n1"), shown.actor("n2")]
    each = mebibytes // 4
    began = time.perf_counter()
    for place, actor in enumerate(four):
        actor.begin("write_large", f"own-{place}", each)
    for actor in four:
        actor.answer()
    own = time.perf_counter() - began
    began = time.perf_counter()
    for place, actor in enumerate(four):
        actor.begin("write_shared", "shared", place, 4, each)
    for actor in four:
        actor.answer()
    shared = time.perf_counter() - began
    return {
        "write_bytes_per_second": size / written,
        "read_bytes_per_second": size / read,
        "make_seconds": made,
        "own_bytes_per_second": size / own,
        "shared_bytes_per_second": size / shared,
    }


def _life(bench: Workbench) -> Figures:
    with bench.scratch() as folder, shown_tree(folder, _IMAGE_MEBIBYTES) as shown:
        shown.hide()
        image = folder / "another"
        began = time.perf_counter()
        with image.open("wb") as file:
            file.truncate(_IMAGE_MEBIBYTES * MIB)
        subprocess.run(["mkfs.xfs", "-q", image], check=True)
        shown.show()
        shown_after = time.perf_counter() - began
        began = time.perf_counter()
        shown.hide()
        return {"show_seconds": shown_after, "hide_seconds": time.perf_counter() - began}


def _restart(bench: Workbench) -> Figures:
    with bench.scratch() as folder, shown_tree(folder, _IMAGE_MEBIBYTES) as shown:
        first, second = shown.actor("n1"), shown.actor("n2")
        second.ask("put", "second", "x")
        file = first.ask("open", "first", "O_RDWR|O_CREAT")
        first.ask("pwrite", file, "before", 0)
        first.ask("fsync", file)
        began = time.perf_counter()
        end_daemons(shown.server_file, time.monotonic() + 30)
        shown.engines.start_ended()
        first.ask("pwrite", file, "behind", 0)
        first.ask("fsync", file)
        written = time.perf_counter() - began
        first.ask("put", "another", "x")
        return {"write_seconds": written, "open_seconds": time.perf_counter() - began}


def _memory(bench: Workbench) -> Figures:
    with bench.scratch() as folder, shown_tree(folder, _IMAGE_MEBIBYTES) as shown:
        home, node = shown.actor(HOME), shown.actor("n1")
        count = bench.steps(_MANY_FILES, _MANY_FILES_QUICK)
        home.ask("mkdir", "many")
        home.ask("make_files", "many", count)
        before = _slab(shown)
        if node.ask("look_at_all", "many") != count:
            raise RuntimeError("a node does not see all files")
        daemons = [*find_daemons(shown.server_file), *find_daemons(shown.server_file.with_name("bus.conf"))]
        server = sum(map(_resident, daemons))
        return {"server_bytes": float(server), "node_bytes": float(_slab(shown) - before)}


def _slab(shown: ShownTree) -> int:
    """What the guest's kernel keeps of names and attributes."""
    (line,) = [line for line in shown.guests["n1"].run("cat /proc/meminfo").splitlines() if line.startswith("Slab:")]
    return int(line.split()[1]) * 1024


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def _seconds(actor: Actor, *request: object) -> float:
    began = time.perf_counter()
    actor.ask(str(request[0]), *request[1:])
    return time.perf_counter() - began
