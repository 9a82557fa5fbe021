# SPDX-License-Identifier: Apache-2.0
"""``pool``: nodes 1 to 3 are one pool of servers, node 4 computes. ``spread``: servers alone, without a manager."""

from tests.servers.spread import as_far, far, spread
from tests.support.pool_nodes import munged, nodes_possible, pool

__all__ = ["as_far", "far", "munged", "nodes_possible", "pool", "spread"]
