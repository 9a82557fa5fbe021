# SPDX-License-Identifier: Apache-2.0
"""Several real staging servers with one pool's key, without a manager: the test says where reservations lie."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from forebay import Admin, _core
from tests.support.ports import free_ports
from tests.support.staging_server import StagingServer

__all__ = ["ServerPool"]


class ServerPool:
    """Servers in ``folder``, which is the pool's. A context manager: they end with it.

    All are processes of this node, unless each has an address and, in ``prefixes``, a command that starts it elsewhere.
    """

    def __init__(
        self,
        folder: Path,
        servers: int,
        *,
        capacity: str = "256MiB",
        options: tuple[str, ...] = (),
        addresses: Sequence[str] | None = None,
        prefixes: Sequence[tuple[str, ...]] | None = None,
        program: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        key = folder / "pool.key"
        key.touch(mode=0o600)
        key.write_text(_core.new_pool_key())
        self.addresses = list(addresses or [f"127.0.0.1:{port}" for port in free_ports(servers)])
        self.servers = [
            StagingServer(
                folder / f"server{number}",
                capacity=capacity,
                options=("--listen", address, "--pool-key", str(key), *options),
                prefix=prefixes[number] if prefixes else (),
                program=program,
            )
            for number, address in enumerate(self.addresses)
        ]
        self._homes: dict[str, tuple[str, int]] = {}

    def admin(self, server: int) -> Admin:
        """Of one server, by its socket."""
        return Admin(self.servers[server].root, server="")

    def uuid(self, server: int) -> str:
        """Of its root."""
        with self.admin(server) as admin:
            return admin.server().uuid

    def create(self, name: str, members: Sequence[tuple[int, int]], **options: object) -> str:
        """Makes a reservation whose members, the home first, are these servers with so many bytes each; its id."""
        number = str(uuid.uuid4())
        shares = [(self.uuid(server), size) for server, size in members]
        for server, _ in reversed(members):
            with self.admin(server) as admin:
                admin.create(name, sum(size for _, size in members), id=number, members=shares, **options)  # type: ignore[arg-type]
        self._homes[name] = (number, members[0][0])
        self.tell()
        return number

    def destroy(self, name: str, members: Sequence[int]) -> None:
        """Ends it, the home first."""
        for server in members:
            with self.admin(server) as admin:
                admin.destroy(name, force=True)
        del self._homes[name]
        self.tell()

    def tell(self) -> None:
        """Tells all that run where everything lies."""
        running = [number for number, server in enumerate(self.servers) if server.running()]
        servers = [
            (self._uuids[number], f"server{number}", self.addresses[number]) for number in range(len(self.servers))
        ]
        homes = [(name, number, self.addresses[home]) for name, (number, home) in self._homes.items()]
        for server in running:
            with self.admin(server) as admin:
                admin.tell_pool_directory(self.addresses[0], homes, servers)

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start()
            self._uuids = [self.uuid(number) for number in range(len(self.servers))]
            self.tell()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for server in self.servers:
            server.stop()
