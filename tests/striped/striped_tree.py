# SPDX-License-Identifier: Apache-2.0
"""One tree over two servers, by the driver `juicefs`, on nodes that are network namespaces of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError, error_of_code
from forebay.workflows.cluster.network import Network, why_not
from forebay.workflows.files.daemons import end_daemons, find_daemons
from forebay.workflows.files.juicefs.engine_program import installed_program
from forebay.workflows.files.juicefs.room_plan import image_bytes
from forebay.workflows.files.mounts import mounts_below
from tests.support.mounted import mounted
from tests.support.time_limits import seconds

__all__ = ["CAPACITY_BYTES", "StripedTree", "striped_tree", "why_no_striping"]

CAPACITY_BYTES = 256 << 20
_FILE_SYSTEM_BYTES = 80 << 20  # what XFS keeps of an image for itself, its log above all
_IMAGE_BYTES_MIN = 300 << 20
_PROCESS_SECONDS = 5.0


def why_no_striping() -> str:
    """Why these tests cannot run here; empty if they can."""
    if reason := why_not():
        return reason
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    for program, package in (("redis-server", "redis-server"), ("mkfs.xfs", "xfsprogs"), ("nsenter", "util-linux")):
        if not any(os.access(f"{folder}/{program}", os.X_OK) for folder in ("/usr/sbin", "/sbin", "/usr/bin", "/bin")):
            return f"needs {program} (package {package}); ./run test striped installs it"
    try:
        installed_program()
    except ForebayError as error:
        return f"{error}; ./run test striped does"
    return ""


@dataclass
class StripedTree:
    """Its parts are on nodes 1 to `parts`; those after them mount."""

    folder: Path
    network: Network
    label: str
    parts: int
    capacity_bytes: int
    reservation: str = field(default_factory=lambda: str(uuid.uuid4()))
    incarnation: int = 1
    trees: list[Path] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)
    tickets: dict[str, dict[str, Any]] = field(default_factory=dict)

    def drivers(self, part: int) -> Path:
        """The folder of a server's drivers."""
        return self.folder / f"server{part}" / "drivers"

    def state_folder(self, part: int) -> Path:
        """Of a part."""
        return self.drivers(part) / self.reservation

    def node_folder(self, node: int) -> Path:
        """What a node remembers of its mount."""
        return self.folder / f"node{node}" / "mounts" / self.reservation

    def place(self, node: int) -> Path:
        """Where a node has it mounted."""
        return self.folder / f"node{node}" / "files"

    def prefix(self, node: int) -> list[str]:
        """What runs a command in a node's network, and with this machine's mounts."""
        return ["nsenter", f"--net=/run/netns/{self.label}-{node}"]

    def begin(self, node: int, operation: str, folder: Path, **values: str) -> subprocess.Popen[str]:
        """Starts an operation on a node. FAIL_POINT: where it dies."""
        values = {
            "DRIVER": "juicefs",
            "FOLDER": str(folder),
            "RESERVATION": self.reservation,
            "INCARNATION": str(self.incarnation),
            "SECONDS": str(seconds(30)),
            "CGROUP": "forebay-tests",
            **values,
        }
        fail_point = values.pop("FAIL_POINT", None)
        environment = os.environ | {f"FOREBAY_FILES_{name}": value for name, value in values.items()}
        if fail_point is not None:
            environment["FOREBAY_FAIL_POINT"] = fail_point
        command = [*self.prefix(node), sys.executable, "-P", "-m", "forebay.workflows.files", operation]
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """What a begun operation answers; raises what it says."""
        said, words = process.communicate(timeout=seconds(60))
        assert said, f"status {process.returncode}: {words}"
        answer = json.loads(said)
        if error := answer.get("error"):
            raise error_of_code(error["code"], error["what"], error["where"])
        assert isinstance(answer, dict)
        return answer

    def at_part(self, part: int, operation: str, **values: str) -> dict[str, Any]:
        """An operation on the server of a part."""
        return self.end(self.begin_at_part(part, operation, **values))

    def begin_at_part(self, part: int, operation: str, **values: str) -> subprocess.Popen[str]:
        """Starts it."""
        return self.begin(part + 1, operation, self.state_folder(part), PART=str(part), **values)

    def prepare(self, part: int, key: str = "", **values: str) -> dict[str, Any]:
        """Of one part."""
        return self.at_part(
            part,
            "prepare",
            TREE=str(self.trees[part]),
            ADDRESS=self.network.address(part + 1),
            PORTS="700-999",
            CAPACITY_BYTES=str(self.capacity_bytes),
            PARTS_COUNT=str(self.parts),
            KEY=key,
            **values,
        )

    def open(self) -> None:
        """Prepares and starts all parts; idempotent."""
        home = self.prepare(0)
        answers = [home, *(self.prepare(part, home["key"]) for part in range(1, self.parts))]
        self.gates = [{"address": answer["address"], "port": answer["port"]} for answer in answers]
        self.start()

    def start(self) -> None:
        """The home last."""
        others = [self.begin_at_part(part, "start", PARTS="[]") for part in range(1, self.parts)]
        for process in others:
            self.end(process)
        self.at_part(0, "start", PARTS=json.dumps(self.gates))
        for part in range(self.parts):
            self.at_part(part, "ready")

    def admit(self, *nodes: int, **values: str) -> None:
        """At the home first, which gives the numbers."""
        names = {f"n{node}": None for node in nodes}
        mounts = self.at_part(0, "admit", NODES=json.dumps(names), **values)["mounts"]
        self.tickets |= mounts
        numbers = json.dumps({name: mounts[name]["number"] for name in names})
        for part in range(1, self.parts):
            self.at_part(part, "admit", NODES=numbers)

    def mount(self, node: int, *, squash: bool = False, **values: str) -> Path:
        """On a node that was admitted."""
        ticket = json.dumps(self.tickets[f"n{node}"])
        self.place(node).parent.mkdir(exist_ok=True)
        place = str(self.place(node))
        self.end(
            self.begin(
                node, "mount", self.node_folder(node), PLACE=place, TICKET=ticket, SQUASH=str(int(squash)), **values
            )
        )
        return self.place(node)

    def unmount(self, node: int, *, lazy: bool = False, **values: str) -> None:
        """On a node."""
        place = str(self.place(node))
        self.end(self.begin(node, "unmount", self.node_folder(node), PLACE=place, LAZY=str(int(lazy)), **values))

    def end_nodes(self, operation: str, *nodes: int) -> None:
        """`release` or `fence`: at the home first."""
        names = json.dumps([f"n{node}" for node in nodes])
        for part in range(self.parts):
            self.at_part(part, operation, NODES=names)

    def close(self) -> None:
        """Unmounts what is mounted, and destroys all parts."""
        for node in self.network.nodes:
            self.unmount(node, lazy=True)
        for part in range(self.parts):
            self.at_part(part, "destroy")

    def wipe(self, part: int) -> None:
        """As if its image were a new one."""
        for entry in self.trees[part].iterdir():
            shutil.rmtree(entry)

    def daemon(self, part: int, name: str) -> int:
        """The process of a part's daemon."""
        (pid,) = find_daemons(self.mark(part, name))
        return pid

    def mark(self, part: int, name: str) -> Path:
        """What a part's daemon is found by."""
        return self.state_folder(part) / ("redis.conf" if name == "redis" else f"{name}.json")

    def daemons(self) -> dict[int, str]:
        """All that run, of parts and nodes."""
        marks = [
            self.mark(part, name)
            for part in range(self.parts)
            for name in ("blocks", "gate", "redis", "forwarder", "keeper")
        ]
        for node in self.network.nodes:
            marks += [self.node_folder(node) / "forwarder.json", self.node_folder(node) / "juicefs.log"]
        return {pid: name for mark in marks for pid, name in find_daemons(mark).items()}

    def daemons_of_node(self, node: int) -> list[int]:
        """What serves a node's mount."""
        return [
            pid for name in ("forwarder.json", "juicefs.log") for pid in find_daemons(self.node_folder(node) / name)
        ]

    def what_is_left(self) -> list[str]:
        """Processes, mounts, sockets and states."""
        left = [f"process {pid} {name}" for pid, name in self.daemons().items()]
        left += [mount.place for mount in mounts_below(self.folder) if Path(mount.place) not in self.trees]
        left += [str(path) for part in range(self.parts) for path in self.drivers(part).glob(f"{self.reservation}*")]
        left += [str(self.node_folder(node)) for node in self.network.nodes if self.node_folder(node).exists()]
        return left + [str(path) for path in Path("/run/forebay-files").glob(f"{self.reservation}*")]

    def run(self, node: int, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """A program on a node, in the mounted tree."""
        return subprocess.run(
            [*self.prefix(node), *command],
            cwd=self.place(node),
            capture_output=True,
            text=True,
            timeout=seconds(120),
            check=True,
            **options,
        )


@contextlib.contextmanager
def striped_tree(
    folder: Path, *, clients: int = 2, parts: int = 2, capacity_bytes: int = CAPACITY_BYTES, rate: str | None = None
) -> Iterator[StripedTree]:
    """Prepared and started; nothing is left of it afterwards, whatever fails. `rate`: what the link of each server
    carries at most.
    """
    with contextlib.ExitStack() as stack:
        label = f"fbyst{os.getpid()}"
        network = Network(label, parts + clients, rate, limited=range(1, parts + 1))
        network.add()
        stack.callback(network.remove)
        tree = StripedTree(folder, network, label, parts, capacity_bytes)
        for part in range(parts):
            tree.drivers(part).mkdir(parents=True)
            size = image_bytes(part, parts, capacity_bytes) + _FILE_SYSTEM_BYTES
            image = folder / f"server{part}" / "files"
            tree.trees.append(stack.enter_context(mounted(image, max(size, _IMAGE_BYTES_MIN) >> 20, "xfs")))
        stack.callback(_end_all, tree)
        tree.open()
        yield tree


def _end_all(tree: StripedTree) -> None:
    deadline = time.monotonic() + seconds(30)
    for mount in mounts_below(tree.folder):
        if mount.kind == "fuse.juicefs":
            subprocess.run(["umount", "--lazy", mount.place], check=False)
    for node in tree.network.nodes:
        for name in ("juicefs.log", "forwarder.json"):
            end_daemons(tree.node_folder(node) / name, deadline)
    for part in range(tree.parts):
        for name in ("keeper", "forwarder", "gate", "redis", "blocks"):
            end_daemons(tree.mark(part, name), deadline)
    for path in Path("/run/forebay-files").glob(f"{tree.reservation}.*"):
        shutil.rmtree(path)
