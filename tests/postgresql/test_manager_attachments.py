# SPDX-License-Identifier: Apache-2.0
"""Attachments, with the manager's database in PostgreSQL."""

from tests.unit.workflows.test_manager_attachments import *  # noqa: F403 - the same tests
