# SPDX-License-Identifier: Apache-2.0
"""Guests: machines with a kernel of their own, for what this machine's kernel cannot do (it may have no NFS client),
and nodes that can be killed as a whole. User-mode Linux, which needs no rights over processors; root, for its network.

A guest sees this machine's files, read-only. What it writes lies in its memory. It takes commands on its console.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.time_limits import seconds

__all__ = ["Guest", "GuestError", "GuestNetwork", "why_no_guests"]

_KERNEL = "linux.uml"
_NETWORKS_MAX = 200
_MODULES = (
    "net/sunrpc/sunrpc",
    "fs/nfs_common/grace",
    "fs/lockd/lockd",
    "fs/netfs/netfs",
    "fs/fscache/fscache",
    "fs/nfs/nfs",
    "net/dns_resolver/dns_resolver",
    "fs/nfs/nfsv4",
)
_INIT = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc && mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/pts
for folder in {tmpfs}; do mount -t tmpfs -o mode=755 tmpfs $folder; done
chmod 1777 /tmp /dev/shm
for module in {modules}; do insmod /usr/lib/uml/modules/$(uname -r)/kernel/$module.ko; done
hostname {name}
ip link set lo up && ip addr add {address}/24 dev vec0 && ip link set vec0 up
echo guest-is-up
while read -r line; do
    sh -c "$line" </dev/null 2>&1
    echo "guest-status $?"
done
"""


def why_no_guests() -> str:
    """Why there can be none; "" if there can. Boots nothing."""
    if os.geteuid() != 0:
        return "guests need root, for their network"
    for program, package in ((_KERNEL, "user-mode-linux"), ("insmod", "kmod"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            return f"{program} is not installed (package {package}); ./run test files installs it"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    return ""


class GuestError(RuntimeError):
    """This machine can have no guests."""


class GuestNetwork:
    """A bridge that guests are at; this machine is ``.1``. A context manager: each gets a number of its own."""

    def __init__(self) -> None:
        self._number = 0

    def _make_bridge(self) -> None:
        """With the first number that is free: others may test on this machine."""
        for self._number in range(1, _NETWORKS_MAX + 1):
            try:
                # An address of its own: else it is that of a guest's end.
                address = f"02:00:00:00:{self._number:02x}:01"
                _ip("link", "add", self.bridge, "address", address, "type", "bridge")
            except RuntimeError as error:
                if "exists" not in str(error):
                    raise
            else:
                return
        raise RuntimeError(f"there are {_NETWORKS_MAX} networks of guests already")

    def address(self, number: int) -> str:
        """Of a guest."""
        return f"10.214.{self._number}.{number}"

    @property
    def bridge(self) -> str:
        """Its name."""
        return f"fbg{self._number}"

    @property
    def host(self) -> str:
        """This machine's address."""
        return self.address(1)

    def __enter__(self) -> Self:
        self._make_bridge()
        try:
            _ip("addr", "add", f"{self.host}/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
        except BaseException:
            _ip("link", "del", self.bridge)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ip("link", "del", self.bridge)


class Guest:
    """A guest. A context manager: killed as a whole at the end, if it was not before.

    Parameters
    ----------
    folder : Path
        Its own, on this machine.
    tmpfs : sequence of str
        Further folders that are empty in the guest, and that it can write in.
    """

    def __init__(self, name: str, number: int, network: GuestNetwork, folder: Path, tmpfs: Sequence[str] = ()) -> None:
        self.name = name
        self.address = network.address(number)
        self._network = network
        self._folder = folder
        self._tmpfs = ["/run", "/tmp", "/var/log", "/var/lib/munge", "/dev/shm", *tmpfs]
        self._tap = f"{network.bridge}n{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self.said = b""  #: all that its console has shown

    def __enter__(self) -> Self:
        _ip("tuntap", "add", self._tap, "mode", "tap")
        try:
            # Outside of the bridge this machine takes nothing from it, whatever address the guest looks for.
            _ip("link", "set", self._tap, "master", self._network.bridge, "arp", "off", "up")
            self.boot()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        _ip("link", "del", self._tap)

    def boot(self) -> None:
        """Starts it; returns when it takes commands. GuestError, with what it said, if it does not."""
        self._folder.mkdir(exist_ok=True)
        init = self._folder / "init"
        init.write_text(
            _INIT.format(tmpfs=" ".join(self._tmpfs), modules=" ".join(_MODULES), name=self.name, address=self.address)
        )
        init.chmod(0o755)
        command = [_KERNEL, "mem=256M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}", "quiet"]
        # gro=1: without it large reads hang.
        command += [f"vec0:transport=tap,ifname={self._tap},depth=128,gro=1", "con=null", "con0=fd:0,fd:1"]
        command += [f"umid={self._tap}", f"uml_dir={self._folder}"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.said = b""
        try:
            self._read_until(rb"guest-is-up\r?\n", seconds(30))
        except AssertionError:
            self.kill()
            words = self.said[-1000:].decode(errors="replace")
            # One reason is a processor with AMX: user-mode Linux 6.1 panics at its first program there.
            raise GuestError(f"a guest of user-mode Linux does not boot here: {words}") from None

    @property
    def is_up(self) -> bool:
        """It was booted, and not killed since."""
        return self._process is not None

    def kill(self) -> None:
        """As by a power cut; idempotent. Its helpers outlive its first process, so its session's group is ended."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._process = None

    def cut(self) -> None:
        """Nothing comes from its network any more, and nothing goes there, until `heal`. Its console stays."""
        # At the bridge's end: the guest's must not notice.
        _ip("link", "set", self._tap, "nomaster")

    def heal(self) -> None:
        """As before `cut`; idempotent."""
        _ip("link", "set", self._tap, "master", self._network.bridge)

    def try_to_run(self, command: str, seconds_max: float = 60) -> tuple[int, str]:
        """Status and output of a shell's command line in the guest."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert "\n" not in command
        begin = len(self.said)
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()
        match = self._read_until(rb"guest-status ([0-9]+)\r?\n", seconds(seconds_max), begin)
        output = self.said[begin : match.start()].decode(errors="replace").replace("\r\n", "\n")
        self.said = self.said[: match.end()]
        return int(match[1]), output.removeprefix(f"{command}\n")

    def run(self, command: str, seconds_max: float = 60) -> str:
        """The output of a command line, which must succeed."""
        status, output = self.try_to_run(command, seconds_max)
        assert status == 0, f"{self.name}: {command}: {status}\n{output}"
        return output

    def _read_until(self, pattern: bytes, seconds_max: float, begin: int = 0) -> re.Match[bytes]:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds_max
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while (found := re.compile(pattern).search(self.said, begin)) is None:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                assert ready, f"{self.name} did not say {pattern!r} in time; it said {self.said[-2000:]!r}"
                read = os.read(self._process.stdout.fileno(), 65536)
                assert read, f"{self.name} has ended; it said {self.said[-2000:]!r}"
                self.said += read
        return found


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
