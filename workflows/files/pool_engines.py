# SPDX-License-Identifier: Apache-2.0
"""Files of all servers of a pool: the manager shows those of its own server itself, and asks agents of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError, ProtocolError, UnsupportedError
from forebay.workflows.files.agent_calls import AgentCalls
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.daemons import program_path
from forebay.workflows.files.engines import FilesEngines, NodeMount
from forebay.workflows.files.namespaces import make_namespaces, make_private_folders

__all__ = ["PoolEngines"]

#: A call that ends with all nodes is waited for as if it were so many.
_NODES_GUESSED = 64


class PoolEngines:
    """As `FilesEngines`, for homes everywhere. Usable from several threads.

    Parameters
    ----------
    server_of : callable
        The home of the reservation with this uuid, "" for the manager's own server; None: there is no such reservation.
    """

    def __init__(self, own: FilesEngines, agents: AgentCalls, server_of: Callable[[str], str | None]) -> None:
        self._own = own
        self.agents = agents
        self._server_of = server_of

    @property
    def incarnation(self) -> int:
        """That of this manager."""
        return self._own.incarnation

    @property
    def places(self) -> int:
        """How many reservations each server can show by NFS: one configuration is for all."""
        return self._own.places

    @property
    def own_address(self) -> str:
        """Of the manager's node, as `FilesEngines.address`."""
        return self._own.address

    @property
    def site_commands(self) -> SiteCommands | None:
        """Those of a site's own engine; None: it has none."""
        return self._own.site_commands

    @property
    def can_mount(self) -> bool:
        """The manager's node has what mounts files of other servers, for stages."""
        try:
            program_path("mount.nfs4", "nfs-common")
        except UnsupportedError:
            return False
        return True

    def open(self, reservation: str, tree: Path, nodes: Mapping[str, str]) -> dict[str, NodeMount]:
        """Shows the tree to these nodes; raises as `FilesEngines.open` and `AgentCalls.ask`."""
        if not (server := self._server(reservation)):
            return self._own.open(reservation, tree, nodes)
        mounts = self._ask(server, "open", reservation, nodes=dict(nodes))
        try:
            return {node: NodeMount(str(mounts[node]["source"]), int(mounts[node]["port"])) for node in nodes}
        except (KeyError, TypeError, ValueError):
            raise ProtocolError(f"the agent of server {server} does not say what nodes mount", reservation) from None

    def make_tree(self, reservation: str, tree: Path, capacity_bytes: int) -> None:
        """Has a site's engine make the tree; idempotent. Raises as `FilesEngines.make_tree` and `AgentCalls.ask`."""
        if server := self._server(reservation):
            self._ask(server, "make_tree", reservation)
        else:
            self._own.make_tree(reservation, tree, capacity_bytes)

    def make_namespaces(self, reservation: str, tree: Path, job: str, uid: int, gid: int, *, private: bool) -> None:
        """Makes the folders of a job's scratch at its home, before its nodes are known; idempotent. Raises as
        `make_namespaces` and `AgentCalls.ask`.
        """
        if server := self._server(reservation):
            self._ask(server, "make_namespaces", reservation, job=job, private=private)
        else:
            make_namespaces(tree, job, uid, gid, private=private, prolog=False, shown=True)

    def make_private_folders(self, reservation: str, tree: Path, nodes: Collection[str], uid: int, gid: int) -> None:
        """Makes each node's private scratch at the home; idempotent. Raises as `make_namespaces`."""
        if server := self._server(reservation):
            self._ask(server, "make_private_folders", reservation, nodes=sorted(nodes))
        else:
            make_private_folders(tree, nodes, uid, gid)

    def check_tree(self, reservation: str) -> None:
        """StorageError if a site's tree is not mounted at its home."""
        if not (server := self._server(reservation)):
            self._own.check_tree(reservation)
        elif self.site_commands is not None:
            self._ask(server, "check_tree", reservation)

    def site_state(self, reservation: str) -> str:
        """What a site's commands on nodes are told."""
        if server := self._server(reservation):
            return str(self._ask(server, "site_state", reservation))
        return self._own.site_state(reservation)

    def site_problems(self) -> dict[str, ForebayError]:
        """What is wrong with a site's commands, by operation."""
        return self._own.site_problems()

    def fence(self, reservation: str, nodes: Sequence[str]) -> None:
        """Takes these nodes' ways in, as `FilesEngines.fence`."""
        if not (server := self._server(reservation)):
            self._own.fence(reservation, nodes)
        elif nodes:
            self._ask(server, "fence", reservation, nodes=list(nodes))

    def release(self, reservation: str, nodes: Sequence[str]) -> None:
        """Closes the ways in of nodes that have unmounted."""
        if not (server := self._server(reservation)):
            self._own.release(reservation, nodes)
        elif nodes:
            self._ask(server, "release", reservation, nodes=list(nodes))

    def stop(self, reservation: str, clean: Sequence[str] = ()) -> None:
        """Takes all nodes' ways in; of these that have unmounted, a site's engine only releases them."""
        self._take_away("stop", reservation, clean)

    def close(self, reservation: str, clean: Sequence[str] = ()) -> None:
        """Ends the engine, for all nodes; `clean` as for `stop`."""
        self._take_away("close", reservation, clean)

    def forget(self, reservation: str) -> None:
        """As `close`, of a reservation that goes for good."""
        self._take_away("forget", reservation)

    def forget_all_but(self, reservations: Collection[str]) -> None:
        """Of others that are closed nothing is kept. Agents see by themselves which their servers have."""
        self._own.forget_all_but(reservations)

    def reservations(self) -> list[str]:
        """All of which a driver has something, as far as agents have said."""
        return sorted({*self._own.reservations(), *self.agents.shown()})

    def start_ended(self) -> None:
        """Starts engines of the own server again whose daemons have ended; agents do that by themselves."""
        self._own.start_ended()

    def ended(self) -> list[str]:
        """Reservations that nodes need, and whose daemons do not run."""
        return sorted({*self._own.ended(), *self.agents.ended()})

    def cgroup_problems(self) -> dict[str, str]:
        """Why what daemons take counts to the manager or the agent, by server; "" is the manager's own."""
        own = self._own.cgroup_problem()
        return {**({"": own} if own else {}), **self.agents.cgroup_problems()}

    def lacks_agent(self, server: str) -> bool:
        """No agent shows files of that server."""
        return bool(server) and self.agents.is_away(server)

    def _server(self, reservation: str) -> str:
        """Also of one that is gone, where an agent has something of it."""
        server = self._server_of(reservation)
        if server is None and not self._own.has(reservation):
            server = self.agents.server_showing(reservation)
        return server or ""

    def _take_away(self, call: str, reservation: str, *clean: Sequence[str]) -> None:
        if server := self._server(reservation):
            self._ask(server, call, reservation, **({"clean": list(clean[0])} if clean else {}))
        else:
            getattr(self._own, call)(reservation, *clean)

    def _ask(self, server: str, call: str, reservation: str, **values: Any) -> Any:
        count = len(values["nodes"]) if "nodes" in values else _NODES_GUESSED
        seconds = self._own.call_seconds_max(call, count)
        return self.agents.ask(server, call, reservation, values, seconds)
