# SPDX-License-Identifier: Apache-2.0
"""Nodes as network namespaces: each has one link to a common bridge, which can be limited, cut and healed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from forebay.errors import InvalidArgumentError, StorageError

__all__ = ["Network", "kill_processes", "why_not"]

_COMMAND_SECONDS_MAX = 30
_LINK = "eth0"
_SUBNET = "10.94.0"
_NAMESPACES = Path("/run/netns")
_RATE = re.compile(r"[1-9][0-9]{0,5}[kmg]bit")
# In the node's own mount namespace: `sh -c SCRIPT sh HOSTS FOLDER... -- COMMAND...`.
_ENTER = """
if [ -n "$1" ]; then mount --bind "$1" /etc/hosts || exit 125; fi
shift
while [ "$1" != -- ]; do mount -t tmpfs -o size=4k,mode=0 hidden "$1" || exit 125; shift; done
shift
exec "$@"
"""


def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no program `ip` (Debian: iproute2)"
    name = f"fby{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"no network namespace can be made here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise StorageError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


class Network:
    """The namespaces LABEL-1 to LABEL-N and LABEL-switch, which has the bridge. A context manager: they go with it.

    Parameters
    ----------
    label : str
        Begins the namespaces' names; no other network on this machine may have it.
    nodes : int
        How many.
    rate : str, optional
        The most that each link carries in each direction, as `tc` writes it: ``1gbit``, ``100mbit``.
    limited : collection of int, optional
        The nodes whose links have that rate. Default: all.
    """

    def __init__(
        self, label: str, nodes: int, rate: str | None = None, *, limited: Collection[int] | None = None
    ) -> None:
        if rate is not None and _RATE.fullmatch(rate) is None:
            raise InvalidArgumentError(f"not a rate: {rate!r}; write for example 1gbit or 100mbit")
        self._label = label
        self._rate = rate
        self.nodes = range(1, nodes + 1)
        self._limited = self.nodes if limited is None else limited

    def add(self) -> None:
        """Makes all of it, or nothing."""
        try:
            switch = self._name("switch")
            _run("ip", "netns", "add", switch)
            _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "bridge", "up")
            for node in self.nodes:
                self._add_node(node, switch)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """The namespaces have no names any more; a process that still runs there has lost its network."""
        for name in (self._name("switch"), *map(self._name, self.nodes)):
            if Path(_NAMESPACES, name).exists():
                _run("ip", "netns", "delete", name)

    def exists(self) -> bool:
        """False also after a boot."""
        return all(Path(_NAMESPACES, self._name(node)).exists() for node in self.nodes)

    def address(self, node: int) -> str:
        """Its IP address, from every node."""
        return f"{_SUBNET}.{node}"

    def prefix(self, node: int, *, hidden: Sequence[Path] = (), hosts: Path | None = None) -> tuple[str, ...]:
        """What runs a command on this node, in a mount namespace of its own.

        ``hidden`` folders are empty and closed there; ``hosts`` replaces ``/etc/hosts``.
        """
        enter = ("ip", "netns", "exec", self._name(node))
        if not hidden and hosts is None:
            return enter
        return (*enter, "sh", "-c", _ENTER, "sh", "" if hosts is None else str(hosts), *map(str, hidden), "--")

    def cut(self, node: int) -> None:
        """Its link carries nothing any more; nobody is told."""
        _run("ip", "-n", self._name(node), "link", "set", _LINK, "down")

    def heal(self, node: int) -> None:
        """The link is back."""
        _run("ip", "-n", self._name(node), "link", "set", _LINK, "up")
        self._prefer_cubic(node)  # The route went with the link.

    def is_cut(self, node: int) -> bool:
        shown = json.loads(_run("ip", "-j", "-n", self._name(node), "link", "show", _LINK))
        return "UP" not in shown[0]["flags"]

    def congestion_control(self, node: int) -> str:
        """What TCP connections of this node use, ``cubic`` for example."""
        routes = _run("ip", "-n", self._name(node), "route", "show", "dev", _LINK)
        by_route = re.search(r"\bcongctl (\w+)", routes)
        if by_route is not None:
            return by_route[1]
        inside = _run(*self.prefix(node), "cat", "/proc/sys/net/ipv4/tcp_congestion_control")
        return inside.strip()

    def processes(self, node: int) -> list[int]:
        """Who runs there."""
        try:
            wanted = Path(_NAMESPACES, self._name(node)).stat()
        except FileNotFoundError:
            return []
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal():
                continue
            try:
                namespace = (process / "ns" / "net").stat()
                ended = not (process / "cmdline").read_bytes()
            except OSError:
                continue  # It has ended, or is another user's.
            if not ended and (namespace.st_dev, namespace.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.append(int(process.name))
        return sorted(found)

    def _name(self, node: int | str) -> str:
        return f"{self._label}-{node}"

    def _add_node(self, node: int, switch: str) -> None:
        name, port = self._name(node), f"port{node}"
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", _LINK, "netns", name)
        _run("ip", "-n", switch, "link", "set", port, "master", "bridge")
        _run("ip", "-n", name, "address", "add", f"{self.address(node)}/24", "dev", _LINK)
        for namespace, link in ((switch, port), (name, _LINK)):
            if self._rate is not None and node in self._limited:
                limit = ("root", "tbf", "rate", self._rate, "burst", "256kb", "latency", "50ms")
                _run("tc", "-n", namespace, "qdisc", "add", "dev", link, *limit)
            _run("ip", "-n", namespace, "link", "set", link, "up")
        self._prefer_cubic(node)

    def _prefer_cubic(self, node: int) -> None:
        """By the route: the setting is not for namespaces to change. Where the kernel lacks it, its default stays."""
        subprocess.run(
            [
                "ip", "-n", self._name(node), "route", "change", f"{_SUBNET}.0/24", "dev", _LINK,
                "proto", "kernel", "scope", "link", "src", self.address(node), "congctl", "cubic",
            ],
            capture_output=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self.add()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def kill_processes(pids: Sequence[int]) -> None:
    """They die without a word; one that has ended already is no error."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
