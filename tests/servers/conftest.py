# SPDX-License-Identifier: Apache-2.0
"""Nodes with networks of their own, as the suite of clients on other nodes makes them."""

from tests.remote.conftest import nodes_possible

__all__ = ["nodes_possible"]
