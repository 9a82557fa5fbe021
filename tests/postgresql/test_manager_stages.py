# SPDX-License-Identifier: Apache-2.0
"""Stages, with the manager's database in PostgreSQL."""

from tests.integration.test_manager_stages import *  # noqa: F403 - the same tests
