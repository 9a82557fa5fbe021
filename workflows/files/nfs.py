# SPDX-License-Identifier: Apache-2.0
"""The driver `nfs` at the home: a Ganesha over the image of one reservation's files/, with an export for each node.

Every setting here has its reason in docs/design/files-on-nodes.md. Export N of a node is what the state says; the
daemon follows it, never the other way round.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forebay.errors import (
    CorruptError,
    InvalidArgumentError,
    NoSpaceError,
    NotFoundError,
    RefusedError,
    StorageError,
)
from forebay.fail_point import fail_point
from forebay.workflows.files.daemon_cgroup import NO_CGROUP, DaemonCgroup
from forebay.workflows.files.daemons import end_daemons, last_words, program_path, start_daemon
from forebay.workflows.files.driver_checks import check_addresses, check_reservation, room_of
from forebay.workflows.files.driver_state import (
    NFS_STATE,
    DriverState,
    Export,
    exports_made_before,
    keep_exports_made,
    locked_folder,
)
from forebay.workflows.files.ganesha_bus import GaneshaBus
from forebay.workflows.files.home_server import file_system_of, free_port, is_alive
from forebay.workflows.files.reserved_ports import serve_reserved_alone_by
from forebay.workflows.staging.publication import write_whole

__all__ = ["PROGRAMS", "NfsDriver"]

#: What it runs, with the packages of Debian.
PROGRAMS = (
    ("ganesha.nfsd", "nfs-ganesha-vfs"),
    ("dbus-daemon", "dbus-daemon"),
    ("dbus-send", "dbus-bin"),
    ("blkid", "util-linux"),
)

_POLL_SECONDS = 0.02
_EXPORTS_MAX = 65535  # Export_Id has 16 bits, and 0 is the root's
#: Of NFS 4; tests with libnfs, which knows 4.0 alone, add it.
_MINOR_VERSIONS = "1, 2"

_BUS = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <deny user="*"/>
    <allow user="root"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
"""

_SERVER = """\
NFS_CORE_PARAM {{
  NFS_Port = {port}; Bind_addr = {address}; Protocols = 4; Enable_UDP = false; Enable_NLM = false;
  Enable_RQUOTA = false;
}}
NFSV4 {{
  Minor_Versions = {minor_versions}; Lease_Lifetime = {lease}; Grace_Period = {grace}; Delegations = false;
  RecoveryBackend = fs; RecoveryRoot = "{folder}/recovery"; Only_Numeric_Owners = true;
  Server_Scope = "forebay-{id}"; Server_Owner = "forebay-{id}";
}}
NFS_KRB5 {{ Active_krb5 = false; }}
MDCACHE {{ Entries_HWMark = 20000; FD_LWMark_Percent = 0; LRU_Run_Interval = 5; }}
LOG {{ Default_Log_Level = WARN; }}
"""

# `Access_Type` of the export is for nodes that are not listed.
_EXPORT = """\
EXPORT {{
  Export_Id = {number}; Path = "{tree}"; Pseudo = "/{node}.{number}"; Access_Type = None; Squash = Root_Squash;
  SecType = sys; Protocols = 4; Transports = TCP; PrivilegedPort = true; Attr_Expiration_Time = 0;
  Anonymous_Uid = 65534; Anonymous_Gid = 65534;
  CLIENT {{
    Clients = {address}; Access_Type = RW; Squash = Root_Squash; SecType = sys; Protocols = 4; Transports = TCP;
    PrivilegedPort = true; Anonymous_Uid = 65534; Anonymous_Gid = 65534;
  }}
  FSAL {{ Name = VFS; }}
}}
"""


@dataclass(frozen=True, slots=True)
class NfsDriver:
    """One operation's view of it: the process that carries it out makes one."""

    folder: Path  #: of the reservation's driver
    reservation: str  #: its uuid
    incarnation: int
    deadline: float  #: on the monotonic clock
    cgroup: DaemonCgroup = NO_CGROUP

    def prepare(self, tree: Path, address: str, ports: range, lease_seconds: float = 40.0) -> dict[str, Any]:
        """Remembers what is to be shown, where, and how long a node that is cut off keeps its locks; idempotent.

        Raises
        ------
        RefusedError
            The tree is not a file system of its own, or another one than before.
        NoSpaceError
            No port is free.
        """
        check_reservation(self.reservation)
        if any(letter in f"{tree}{self.folder}" for letter in '"\\\n{}'):
            raise InvalidArgumentError("the NFS server's configuration takes no such path", str(self.folder))
        file_system = file_system_of(tree)
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                with locked_folder(self.folder.parent, self.deadline):
                    port = free_port(self.folder.parent, address, ports)
                    lease = round(lease_seconds)
                    made = exports_made_before(self.folder)
                    state = DriverState(
                        self.reservation, self.incarnation, str(tree), file_system, address, port, lease, made
                    )
                    fail_point("files.prepare.state")
                    NFS_STATE.write(self.folder, state)
            if (state.tree, state.file_system) != (str(tree), file_system):
                raise RefusedError("another file system lies there than was shown before", str(tree))
            return {"port": state.port}

    def start(self) -> dict[str, Any]:
        """Starts what does not run, with the exports that are open; idempotent."""
        with self._locked():
            state = self._state()
            if self._runs(state):
                return {"started": False}
            self._end()
            if file_system_of(Path(state.tree)) != state.file_system:
                raise RefusedError("another file system lies there than was shown before", state.tree)
            self._launch(state, needed=True)
            return {"started": True}

    def ready(self) -> dict[str, Any]:
        """Returns when it serves; StorageError if it has ended, or does not in time."""
        with self._locked():
            self._wait_until_ready(self._state())
            return {}

    def admit(self, nodes: Mapping[str, str]) -> dict[str, Any]:
        """Opens an export for each node, by its address; idempotent. What each of them mounts.

        Raises
        ------
        InvalidArgumentError
            A node's name or address is none.
        """
        check_addresses(nodes)
        with self._locked():
            state = self._state()
            bus = GaneshaBus(self._socket, self.deadline)
            for node, address in nodes.items():
                known = state.exports.get(node)
                if known is not None and (known.fenced or known.address != address):
                    self._take_away(state, node, bus)
                    known = None
                if known is None:
                    state.exports[node] = Export(_next_number(state), address)
            NFS_STATE.write(self.folder, state)
            fail_point("files.admit.state")
            for node in nodes:
                export = state.exports[node]
                configuration = self.folder / f"export.{export.number}"
                write_whole(configuration, _export_text(state, node), mode=0o600, durable=False)
                bus.add(configuration, export.number)
                fail_point("files.admit.export")
            return {"mounts": {node: self._mount_of(state, node) for node in nodes}}

    def release(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Closes the exports of nodes that have unmounted; idempotent. Others notice nothing.

        It is no fence: a request that makes a file, and is inside, lands after Ganesha has closed its export.
        """
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                return {"released": []}
            there = self._mark(state, nodes)
            fail_point("files.release.state")
            bus = GaneshaBus(self._socket, self.deadline)
            for node in there:
                self._take_away(state, node, bus)
            return {"released": there}

    def fence(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Takes the ways in of these nodes; idempotent. Then nothing that they have sent can land.

        The server is killed, and started again if other nodes need it: when a process is gone, none of its threads is
        in the kernel, and nobody carries out what it had not begun. Other nodes wait, and reclaim their locks.

        Raises
        ------
        StorageError
            It is not sure, because the disk does not answer; asked again, it goes on.
        """
        with self._locked():
            try:
                state = self._state()
            except NotFoundError:
                return {"fenced": []}
            there = self._mark(state, nodes)
            fail_point("files.fence.state")
            if there:
                self._end()
                fail_point("files.fence.ended")
                self._launch(state, needed=False)
                self._wait_until_ready(state)
            return {"fenced": there}

    def usage(self) -> dict[str, Any]:
        """Bytes of the tree's file system."""
        with self._locked():
            return room_of(self._state().tree)

    def stop(self) -> dict[str, Any]:
        """Ends the daemons, and with them every node's way in; idempotent."""
        with self._locked():
            with contextlib.suppress(NotFoundError, CorruptError):
                state = self._state()
                state.exports = {node: replace(export, fenced=True) for node, export in state.exports.items()}
                NFS_STATE.write(self.folder, state)
                fail_point("files.stop.state")
            self._end()
            return {}

    def destroy(self) -> dict[str, Any]:
        """As `stop`, and nothing is left of the driver; idempotent."""
        with self._locked():
            with contextlib.suppress(NotFoundError, CorruptError):
                keep_exports_made(self.folder, self._state().exports_made)
            self._end()
            fail_point("files.destroy.ended")
            shutil.rmtree(self.folder)
            return {}

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked_folder(self.folder, self.deadline)

    def _state(self) -> DriverState:
        return NFS_STATE.read(self.folder, self.incarnation)

    def _mark(self, state: DriverState, nodes: Sequence[str]) -> list[str]:
        """Those of the nodes that have an export, which is not opened again whatever happens."""
        there = [node for node in nodes if node in state.exports]
        for node in there:
            state.exports[node] = replace(state.exports[node], fenced=True)
        NFS_STATE.write(self.folder, state)
        return there

    def _launch(self, state: DriverState, *, needed: bool) -> None:
        """Starts the daemons, of which none runs, with what is open. `needed`: also if nothing is."""
        for node, export in list(state.exports.items()):
            if export.fenced:
                self._drop(state, node)
        state.daemons = {}
        NFS_STATE.write(self.folder, state)
        if not state.exports and not needed:
            return
        self._write_configuration(state)
        fail_point("files.start.configured")
        bus = [program_path("dbus-daemon", "dbus"), "--nofork", "--nopidfile", f"--config-file={self._bus_file}"]
        state.daemons["dbus-daemon"] = start_daemon(bus, self.folder / "dbus.log", {}, self.cgroup)
        fail_point("files.start.bus")
        # Ganesha tries once to connect. Without its bus it serves, and never answers here.
        self._wait(GaneshaBus(self._socket, self.deadline).is_open, "the private bus")
        ganesha = [program_path("ganesha.nfsd", "nfs-ganesha-vfs"), "-F", "-f", str(self._server_file)]
        ganesha += ["-L", str(self.folder / "ganesha.log"), "-p", str(self.folder / "ganesha.pid")]
        state.daemons["ganesha.nfsd"] = start_daemon(
            ganesha,
            self.folder / "ganesha.out",
            {
                "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self._socket}",
                "BLKID_FILE": str(self.folder / "blkid.tab"),
            },
            self.cgroup,
            goes_first=True,
        )
        fail_point("files.start.daemon")
        NFS_STATE.write(self.folder, state)

    def _wait_until_ready(self, state: DriverState) -> None:
        bus = GaneshaBus(self._socket, self.deadline)

        def serves() -> bool:
            if not self._runs(state):
                raise StorageError(f"the NFS server has ended: {self._last_words()}", str(self.folder))
            return bus.answers()

        if state.daemons:
            self._wait(serves, "the NFS server")
            # It has a limit of connections, also for those that say nothing.
            serve_reserved_alone_by(int(state.daemons["ganesha.nfsd"].split("/")[1]), self.deadline)

    @property
    def _server_file(self) -> Path:
        return self.folder / "ganesha.conf"

    @property
    def _bus_file(self) -> Path:
        return self.folder / "bus.conf"

    @property
    def _socket(self) -> Path:
        """A short path: a root's may be longer than a socket's name can be."""
        return Path("/run/forebay-files") / self.reservation / "bus"

    def _runs(self, state: DriverState) -> bool:
        names = ("dbus-daemon", "ganesha.nfsd")
        return all(is_alive(state.daemons.get(name, "")) for name in names)

    def _end(self) -> None:
        for mark in (self._server_file, self._bus_file):
            end_daemons(mark, self.deadline)
        self.cgroup.remove()
        shutil.rmtree(self._socket.parent, ignore_errors=True)

    def _write_configuration(self, state: DriverState) -> None:
        self._socket.parent.parent.mkdir(mode=0o700, exist_ok=True)
        self._socket.parent.mkdir(mode=0o700)
        (self.folder / "recovery").mkdir(mode=0o700, exist_ok=True)
        write_whole(self._bus_file, _BUS.format(socket=self._socket), mode=0o600, durable=False)
        head = _SERVER.format(
            port=state.port,
            address=state.address,
            minor_versions=_MINOR_VERSIONS,
            lease=state.lease_seconds,
            grace=state.lease_seconds,
            folder=self.folder,
            id=self.reservation,
        )
        exports = [_export_text(state, node) for node in state.exports]
        write_whole(self._server_file, "".join([head, *exports]), mode=0o600, durable=False)

    def _take_away(self, state: DriverState, node: str, bus: GaneshaBus) -> None:
        """The node's export; the state says that it is fenced, or goes on to say another."""
        export = state.exports[node]
        if self._runs(state):
            bus.remove(export.number)
        else:
            self._end()  # half of them may run
        fail_point("files.release.removed")
        self._drop(state, node)
        NFS_STATE.write(self.folder, state)

    def _drop(self, state: DriverState, node: str) -> None:
        """What is known of a node whose export is closed."""
        export = state.exports[node]
        self._forget_client(state, node, export.address)
        del state.exports[node]
        (self.folder / f"export.{export.number}").unlink(missing_ok=True)

    def _forget_client(self, state: DriverState, node: str, address: str) -> None:
        """A record of a client that will not come back would hold up all others after a restart: no grace would end
        before its time. A node at the same address keeps it.
        """
        if any(name != node and other.address == address for name, other in state.exports.items()):
            return
        for record in (self.folder / "recovery").glob("*/node*/*"):
            if re.match(rf"(?:::ffff:)?{re.escape(address)}-", record.name):
                shutil.rmtree(record, ignore_errors=True)

    def _mount_of(self, state: DriverState, node: str) -> dict[str, Any]:
        source = f"[{state.address}]" if ":" in state.address else state.address
        return {"source": f"{source}:/{node}.{state.exports[node].number}", "port": state.port}

    def _wait(self, condition: Any, what: str) -> None:
        while not condition():
            if time.monotonic() > self.deadline:
                raise StorageError(f"{what} is not there in time: {self._last_words()}", str(self.folder))
            time.sleep(_POLL_SECONDS)

    def _last_words(self) -> str:
        return last_words(*(self.folder / name for name in ("ganesha.log", "ganesha.out", "dbus.log")))


def _export_text(state: DriverState, node: str) -> str:
    export = state.exports[node]
    return _EXPORT.format(number=export.number, tree=state.tree, node=node, address=export.address)


def _next_number(state: DriverState) -> int:
    """Of a new export; those of before are used again only when all others have been."""
    used = {export.number for export in state.exports.values()}
    if len(used) >= _EXPORTS_MAX:
        raise NoSpaceError("this reservation is shown to too many nodes; let its jobs end")
    while True:
        state.exports_made += 1
        number = (state.exports_made - 1) % _EXPORTS_MAX + 1
        if number not in used:
            return number
