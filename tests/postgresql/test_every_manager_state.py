# SPDX-License-Identifier: Apache-2.0
"""Managers that die in any state, with the manager's database in PostgreSQL."""

from tests.fault.test_every_manager_state import *  # noqa: F403 - the same tests
