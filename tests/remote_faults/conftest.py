# SPDX-License-Identifier: Apache-2.0
"""The nodes, server and programs of the remote tests."""

from tests.remote.conftest import nodes, nodes_possible, programs, server, token, transport

__all__ = ["nodes", "nodes_possible", "programs", "server", "token", "transport"]
