# SPDX-License-Identifier: Apache-2.0
"""Pools and the queue for space, with the manager's database in PostgreSQL."""

from tests.unit.workflows.test_pools import *  # noqa: F403 - the same tests
