# SPDX-License-Identifier: Apache-2.0
"""Nodes 1 to 3 are one pool of servers, node 4 computes."""

from tests.support.pool_nodes import munged, nodes_possible, pool

__all__ = ["munged", "nodes_possible", "pool"]
