# SPDX-License-Identifier: Apache-2.0
"""Who asks on nodes without a server is known by MUNGE."""

from tests.support.pool_nodes import munged, nodes_possible

__all__ = ["munged", "nodes_possible"]
