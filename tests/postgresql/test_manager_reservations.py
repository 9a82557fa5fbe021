# SPDX-License-Identifier: Apache-2.0
"""The manager's reservations, with the manager's database in PostgreSQL."""

from tests.unit.workflows.test_manager_reservations import *  # noqa: F403 - the same tests
