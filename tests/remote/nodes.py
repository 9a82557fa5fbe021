# SPDX-License-Identifier: Apache-2.0
"""Three nodes on one machine: network namespaces of a server, a producer and a consumer, and programs on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["PORT", "Nodes", "RemoteProgram", "why_not"]

PORT = 7460
_COMMAND_SECONDS_MAX = 30


def why_not() -> str:
    """Why there can be no nodes here; empty if there can."""
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


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=_COMMAND_SECONDS_MAX)


class Nodes:
    """A context manager. The server's node has a link to each of the two others, which have none to one another."""

    def __init__(self, label: str) -> None:
        self._names = {kind: f"fby{label}-{kind}" for kind in ("server", "producer", "consumer")}
        self.server_at = {kind: f"10.93.{number}.1" for number, kind in enumerate(("producer", "consumer"), 1)}

    def __enter__(self) -> Self:
        try:
            for name in self._names.values():
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            server = self._names["server"]
            for kind, address in self.server_at.items():
                node = self._names[kind]
                link = f"to-{kind}"
                _ip("-n", server, "link", "add", link, "type", "veth", "peer", "name", "to-server", "netns", node)
                _ip("-n", server, "address", "add", f"{address}/24", "dev", link)
                _ip("-n", node, "address", "add", f"{address.rsplit('.', 1)[0]}.2/24", "dev", "to-server")
                _ip("-n", server, "link", "set", link, "up")
                _ip("-n", node, "link", "set", "to-server", "up")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """The nodes are gone; what still runs there has lost its network."""
        for name in self._names.values():
            if Path("/run/netns", name).exists():
                _ip("netns", "delete", name)

    def prefix(self, kind: str) -> tuple[str, ...]:
        """What runs a command on this node."""
        return ("ip", "netns", "exec", self._names[kind])

    def cut(self, kind: str) -> None:
        """The link between the server and this node carries nothing any more."""
        _ip("-n", self._names[kind], "link", "set", "to-server", "down")

    def heal(self, kind: str) -> None:
        """The link is back."""
        _ip("-n", self._names[kind], "link", "set", "to-server", "up")

    def server(self, kind: str) -> str:
        """The server's address as this node sees it."""
        return f"{self.server_at[kind]}:{PORT}"


class RemoteProgram:
    """A Python program on a node, which finds nothing local: neither root nor socket. A context manager."""

    def __init__(
        self, nodes: Nodes, kind: str, program: Path, *arguments: str, token: Path | None, **environment: str
    ) -> None:
        self.kind = kind
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        kept = {name: os.environ[name] for name in ("FOREBAY_BUILD_DIR",) if name in os.environ}
        named = {"FOREBAY_ROOT": "/nonexistent", **environment}
        if token is not None:
            named["FOREBAY_TOKEN_FILE"] = str(token)
        self._process = subprocess.Popen(
            [*nodes.prefix(kind), sys.executable, "-X", "faulthandler", "-u", str(program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**inherited, **kept, **named},
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def line(self) -> str:
        """The next line that it prints; fails with its error output if it ends instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise AssertionError(f"the {self.kind} ended with status {self._process.returncode}:\n{errors}")
        return line.rstrip("\n")

    def tell(self, line: str = "") -> None:
        """Sends it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """It dies without a word."""
        self._process.kill()
        self._process.wait(_COMMAND_SECONDS_MAX)

    def send(self, sent: int) -> None:
        """Sends it a signal."""
        self._process.send_signal(sent)

    def finish(self, timeout: float = 120) -> tuple[int, str, str]:
        """Waits for its end: exit status (negative: the signal), the rest of its output, its error output."""
        output, errors = self._process.communicate(timeout=timeout)
        return self._process.returncode, output, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
