# SPDX-License-Identifier: Apache-2.0
"""What drivers ask of the server that a tree lies on: its file system, and a port that is free."""

from __future__ import annotations

import errno
import socket
import subprocess
from pathlib import Path

from forebay.errors import BusyError, InvalidArgumentError, RefusedError, StorageError
from forebay.manager.process_identity import process_identity
from forebay.workflows.files.daemons import program_path
from forebay.workflows.files.driver_state import ports_taken
from forebay.workflows.files.mounts import mount_at

__all__ = ["file_system_of", "free_port", "is_alive"]


def is_alive(identity: str) -> bool:
    """The daemon of this identity, as `start_daemon` gave it; "" is none."""
    return bool(identity) and process_identity(int(identity.split("/")[1])) == identity


def file_system_of(tree: Path) -> str:
    """UUID of the file system that is mounted on the tree.

    Raises
    ------
    RefusedError
        None is: it is a folder of another one, which a made-up handle would open as a whole.
    """
    mount = mount_at(tree)
    if mount is None or mount.root != "/" or not mount.source.startswith("/dev/"):
        raise RefusedError(
            "these files are no file system of their own, and other nodes would see more than them; "
            'set files_image = "xfs"',
            str(tree),
        )
    # Its low-level probe: the cache may know another file system by this device's name.
    command = [program_path("blkid", "util-linux"), "-p", "-o", "value", "-s", "UUID", mount.source]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise StorageError(f"the file system's UUID cannot be read from {mount.source}", str(tree))
    return done.stdout.strip()


def free_port(drivers: Path, address: str, ports: range) -> int:
    """One that no reservation has and nobody listens at."""
    taken = ports_taken(drivers)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in ports:
        if port in taken:
            continue
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise InvalidArgumentError(
                    f"[files] address, or `forebay agent --address`: {address} cannot be used here: {error.strerror}"
                ) from None
            return port
    raise BusyError(f"no port of {ports.start} to {ports.stop - 1} is free; see [files] ports")
