# SPDX-License-Identifier: Apache-2.0
"""Instances, with the manager's database in PostgreSQL."""

from tests.integration.test_manager_instance import *  # noqa: F403 - the same tests
