# SPDX-License-Identifier: Apache-2.0
"""Waiting for space, with the manager's database in PostgreSQL."""

from tests.integration.test_create_waits import *  # noqa: F403 - the same tests
