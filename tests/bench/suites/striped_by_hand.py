# SPDX-License-Identifier: Apache-2.0
"""JuiceFS over two servers as somebody would start it by hand: Redis, and rclone as the server of each part's blocks.
Ports are open to the network, blocks are not synced, and nobody is fenced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forebay.workflows.cluster.network import Network
from forebay.workflows.files.juicefs.engine_program import installed_program
from tests.support.mounted import mounted
from tests.support.time_limits import seconds

__all__ = ["HandMadeTree", "hand_made_tree", "why_no_hand_made_tree"]

_PARTS = 2
_CLIENTS = 2
#: Further addresses of the servers, of which JuiceFS can count the last digit.
_ADDRESS = "10.94.0.10"
_LINK = "eth0"
_BLOCKS_PORT, _REDIS_PORT = 8070, 6379
_NAME, _USER, _PASSWORD = "files", "hand", "made"
_IMAGE_MEBIBYTES = 1024
_POLL_SECONDS = 0.05
#: As the driver mounts, but for what is its own.
_FLAGS = (
    *("--no-usage-report", "--backup-meta", "0", "--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0"),
    *("--cache-size", "0", "--cache-dir", "memory", "--buffer-size", "100", "--no-syslog"),
)


def why_no_hand_made_tree() -> str:
    """Why it cannot be made, beside what striped trees need; "" if it can."""
    return "" if shutil.which("rclone") else "rclone is not installed (package rclone)"


@dataclass(frozen=True, slots=True)
class HandMadeTree:
    """Where nodes have it mounted."""

    folder: Path

    def place(self, node: int) -> Path:
        """Of a node, 3 or 4."""
        return self.folder / f"node{node}"


@contextlib.contextmanager
def hand_made_tree(folder: Path) -> Iterator[HandMadeTree]:
    """Mounted on nodes 3 and 4; nothing is left of it afterwards."""
    label = f"fbyhm{os.getpid()}"
    tree = HandMadeTree(folder)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(label, _PARTS + _CLIENTS))
        parts = [
            stack.enter_context(mounted(folder / f"part{part}", _IMAGE_MEBIBYTES, "xfs")) for part in range(_PARTS)
        ]

        def start(node: int, *command: str) -> None:
            stack.enter_context(_running(label, node, folder / f"{node}-{Path(command[0]).name}.log", command))

        for part, path in enumerate(parts):
            node = part + 1
            add = ["ip", "-n", f"{label}-{node}", "address", "add", f"{_ADDRESS}{part}/24", "dev", _LINK]
            subprocess.run(add, check=True)
            (path / "blocks").mkdir()
            serve = ("rclone", "serve", "webdav", "--addr", f"{_ADDRESS}{part}:{_BLOCKS_PORT}", "--user", _USER)
            start(node, *serve, "--pass", _PASSWORD, str(path / "blocks"))
        (parts[0] / "redis").mkdir()
        redis = ("redis-server", "--bind", network.address(1), "--port", str(_REDIS_PORT), "--protected-mode", "no")
        start(
            1, *redis, "--dir", str(parts[0] / "redis"), "--save", "", "--appendonly", "yes", "--appendfsync", "always"
        )
        for part in range(_PARTS):
            _wait(partial(_listens, label, f"{_ADDRESS}{part}", _BLOCKS_PORT), "rclone")
        _wait(partial(_listens, label, network.address(1), _REDIS_PORT), "Redis")
        program, url = str(installed_program()), f"redis://{network.address(1)}:{_REDIS_PORT}/0"
        bucket = f"http://{_ADDRESS}%d:{_BLOCKS_PORT}/"
        storage = ("--storage", "webdav", "--bucket", bucket, "--access-key", _USER, "--secret-key", _PASSWORD)
        layout = ("--shards", str(_PARTS), "--trash-days", "0", "--block-size", "4M")
        _run(label, 3, program, "format", *storage, *layout, url, _NAME)
        for node in range(_PARTS + 1, _PARTS + _CLIENTS + 1):
            place = tree.place(node)
            place.mkdir()
            stack.callback(subprocess.run, ["umount", "--lazy", str(place)], check=False, capture_output=True)
            start(node, program, "mount", *_FLAGS, url, str(place))
            _wait(partial(os.path.ismount, place), f"the mount on node {node}")
            place.chmod(0o777)
        yield tree


@contextlib.contextmanager
def _running(label: str, node: int, log: Path, command: Sequence[str]) -> Iterator[None]:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "JFS_SUPERVISOR": "hand"}
    with log.open("wb") as words:
        process = subprocess.Popen(
            _inside(label, node, command), env=environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _run(label: str, node: int, *command: str) -> None:
    subprocess.run(_inside(label, node, command), check=True, capture_output=True, timeout=seconds(60))


def _inside(label: str, node: int, command: Sequence[str]) -> list[str]:
    """In a node's network, with this machine's mounts."""
    return ["nsenter", f"--net=/run/netns/{label}-{node}", "--", *command]


def _listens(label: str, address: str, port: int) -> bool:
    """Seen from node 3."""
    check = f"import socket; socket.create_connection(({address!r}, {port}), 1).close()"
    command = _inside(label, _PARTS + 1, ["python3", "-c", check])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + seconds(60)
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} does not come in time")
        time.sleep(_POLL_SECONDS)
