# SPDX-License-Identifier: Apache-2.0
"""Files that the driver `juicefs` stripes over two servers, from two nodes: network namespaces of this machine, so that
absolute rates say what its processors cost. How evenly a file is spread, and how long it takes to make and end it all.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.suites.striped_by_hand import hand_made_tree
from tests.bench.workbench import MIB, Workbench
from tests.files.shown_tree import USER, Actor, Actors
from tests.striped.striped_tree import StripedTree, striped_tree, why_no_striping
from tests.support.mounted import mounted

__all__ = ["striped_by_hand", "striped_files", "striped_life", "striped_memory", "striped_slowly", "why_no_striping"]

_CAPACITY_BYTES = 1024 * MIB
_IMAGE_MEBIBYTES = 1024
_SLOW_LINK = "400mbit"
_SLOW_LINK_BYTES = 400e6 / 8
_MANY_FILES = 30_000
_MANY_FILES_QUICK = 5_000


def striped_files() -> Suite:
    """One file, by one process and read on the other node; four processes on two nodes."""
    rate = "bytes_per_second"
    return Suite(
        name="files-striped",
        cases=[Case("juicefs", _striped), Case("image", _on_an_image)],
        rows=[
            Row("2 servers: write and sync 1 MiB", "a local image", "juicefs", "image", f"write_{rate}", guarded=False),
            Row(
                "2 servers: read what another wrote", "a local image", "juicefs", "image", f"read_{rate}", guarded=False
            ),
            Row(
                *("one file: the larger part", "60 % of it", "juicefs", "juicefs", "larger_part_bytes", 1.0),
                peer_figure="allowed_part_bytes",
            ),
            Row(
                *("4 processes, 2 nodes, locks", "a file for each", "juicefs", "juicefs"),
                *(f"shared_{rate}", None, f"own_{rate}"),
                guarded=False,
            ),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def striped_by_hand() -> Suite:
    """One file, by one process and read on the other node: what gates, forwarders and syncs cost."""
    rate = "bytes_per_second"
    return Suite(
        name="files-striped-by-hand",
        cases=[Case("juicefs", _large_file), Case("by hand", _large_file_by_hand)],
        rows=[
            Row(
                "2 servers: write and sync 1 MiB", "by hand", "juicefs", "by hand", f"write_{rate}", 0.95, guarded=False
            ),
            Row(
                "2 servers: read what another wrote",
                "by hand",
                "juicefs",
                "by hand",
                f"read_{rate}",
                0.95,
                guarded=False,
            ),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def striped_slowly() -> Suite:
    """Four processes on two nodes write and read a file each, where the servers' links are slower than all else."""
    rate = "bytes_per_second"
    return Suite(
        name="files-striped-slowly",
        cases=[Case("juicefs", _slowly)],
        rows=[
            Row("2 servers of 400 Mbit/s: 4 write", "one such link", "juicefs", _SLOW_LINK_BYTES, f"write_{rate}", 1.7),
            Row("2 servers of 400 Mbit/s: 4 read", "one such link", "juicefs", _SLOW_LINK_BYTES, f"read_{rate}", 1.7),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def striped_life() -> Suite:
    """From two empty images until two nodes have the tree mounted; back until nothing is left."""
    return Suite(
        name="files-striped-life",
        cases=[Case("juicefs", _life)],
        rows=[
            Row("2 servers, 2 nodes mount", "limit 3 s", "juicefs", 3.0, "show_seconds", 1.0, guarded=False),
            Row("2 nodes unmount, all is removed", "limit 2 s", "juicefs", 2.0, "hide_seconds", 1.0, guarded=False),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def striped_memory() -> Suite:
    """A node has made, and another one looked at, many files of one folder."""
    return Suite(
        name="files-striped-memory",
        cases=[Case("juicefs", _memory)],
        rows=[
            Row(
                "30 000 files: the home's daemons", "limit 100 MiB", "juicefs", 100.0 * MIB, "home_bytes", guarded=False
            ),
            Row("30 000 files: the other's daemons", "limit 100 MiB", "juicefs", 100.0 * MIB, "other_bytes", 1.0),
            Row("30 000 files: a node", "limit 100 MiB", "juicefs", 100.0 * MIB, "node_bytes", guarded=False),
        ],
        repetitions=1,
        repetitions_quick=1,
        best_of=1,
    )


def _striped(bench: Workbench) -> Figures:
    with bench.scratch() as folder, _tree(folder) as tree, Actors("127.0.0.1") as actors:
        _show(tree)
        size = bench.steps(512, 128) * MIB
        first, second, *others = [actors.here(tree.place(node), USER, f"n{node}") for node in (3, 4, 3, 4)]
        figures = _write_and_read(first, second, size)
        held = [_held_bytes(part) for part in tree.trees]
        figures["larger_part_bytes"] = float(max(held))
        figures["allowed_part_bytes"] = 0.6 * sum(held)
        first.ask("unlink", "first")
        each = size // MIB // 8
        four = [first, second, *others]
        figures["own_bytes_per_second"] = 4 * each * MIB / _at_once(four, "write_large", each)
        began = time.perf_counter()
        for place, actor in enumerate(four):
            actor.begin("write_shared", "shared", place, 4, each)
        for actor in four:
            actor.answer()
        figures["shared_bytes_per_second"] = 4 * each * MIB / (time.perf_counter() - began)
        return figures


def _large_file(bench: Workbench) -> Figures:
    with bench.scratch() as folder, _tree(folder) as tree, Actors("127.0.0.1") as actors:
        _show(tree)
        first, second = (actors.here(tree.place(node), USER, f"n{node}") for node in (3, 4))
        return _write_and_read(first, second, bench.steps(512, 128) * MIB)


def _large_file_by_hand(bench: Workbench) -> Figures:
    with bench.scratch() as folder, hand_made_tree(folder) as tree, Actors("127.0.0.1") as actors:
        first, second = (actors.here(tree.place(node), USER, f"n{node}") for node in (3, 4))
        return _write_and_read(first, second, bench.steps(512, 128) * MIB)


def _slowly(bench: Workbench) -> Figures:
    with (
        bench.scratch() as folder,
        striped_tree(folder, capacity_bytes=_CAPACITY_BYTES, rate=_SLOW_LINK) as tree,
        Actors("127.0.0.1") as actors,
    ):
        _show(tree)
        four = [actors.here(tree.place(node), USER, f"n{node}-{place}") for place, node in enumerate((3, 4, 3, 4))]
        each = bench.steps(128, 48)
        figures = {"write_bytes_per_second": 4 * each * MIB / _at_once(four, "write_large", each)}
        began = time.perf_counter()
        for place, actor in enumerate(four):  # what a process on the other node has written
            actor.begin("read_large", f"own-{place ^ 1}")
        for actor in four:
            actor.answer()
        figures["read_bytes_per_second"] = 4 * each * MIB / (time.perf_counter() - began)
        return figures


def _on_an_image(bench: Workbench) -> Figures:
    size = bench.steps(512, 128) * MIB
    with (
        bench.scratch() as folder,
        mounted(folder / "files", _IMAGE_MEBIBYTES, "xfs") as tree,
        Actors("127.0.0.1") as actors,
    ):
        actor = actors.here(tree, uid=0)
        return _write_and_read(actor, actor, size)


def _write_and_read(writer: Actor, reader: Actor, size: int) -> Figures:
    began = time.perf_counter()
    writer.ask("write_large", "first", size // MIB)
    written = time.perf_counter() - began
    began = time.perf_counter()
    reader.ask("read_large", "first")
    return {
        "write_bytes_per_second": size / written,
        "read_bytes_per_second": size / (time.perf_counter() - began),
    }


def _at_once(actors: list[Actor], operation: str, mebibytes: int) -> float:
    began = time.perf_counter()
    for place, actor in enumerate(actors):
        actor.begin(operation, f"own-{place}", mebibytes)
    for actor in actors:
        actor.answer()
    return time.perf_counter() - began


def _life(bench: Workbench) -> Figures:
    with bench.scratch() as folder, _tree(folder) as tree:
        tree.close()
        for part in range(tree.parts):
            tree.wipe(part)
        began = time.perf_counter()
        tree.open()
        _show(tree)
        shown_after = time.perf_counter() - began
        began = time.perf_counter()
        tree.unmount(3)
        tree.unmount(4)
        for part in range(tree.parts):
            tree.at_part(part, "destroy")
        return {"show_seconds": shown_after, "hide_seconds": time.perf_counter() - began}


def _memory(bench: Workbench) -> Figures:
    with bench.scratch() as folder, _tree(folder) as tree, Actors("127.0.0.1") as actors:
        _show(tree)
        first, second = (actors.here(tree.place(node), USER, f"n{node}") for node in (3, 4))
        count = bench.steps(_MANY_FILES, _MANY_FILES_QUICK)
        first.ask("mkdir", "many")
        first.ask("make_files", "many", count)
        if second.ask("look_at_all", "many") != count:
            raise RuntimeError("a node does not see all files")
        home = sum(_resident(tree.daemon(0, name)) for name in ("blocks", "gate", "redis", "forwarder", "keeper"))
        other = sum(_resident(tree.daemon(1, name)) for name in ("blocks", "gate"))
        node = sum(map(_resident, tree.daemons_of_node(4)))
        return {"home_bytes": float(home), "other_bytes": float(other), "node_bytes": float(node)}


def _tree(folder: Path) -> contextlib.AbstractContextManager[StripedTree]:
    return striped_tree(folder, capacity_bytes=_CAPACITY_BYTES)


def _show(tree: StripedTree) -> None:
    tree.admit(3, 4)
    tree.mount(3)
    tree.mount(4)


def _held_bytes(tree: Path) -> int:
    return sum(os.stat(f"{folder}/{name}").st_size for folder, _, names in os.walk(tree / "blocks") for name in names)


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024
