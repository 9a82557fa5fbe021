# SPDX-License-Identifier: Apache-2.0
"""Attaching, with the manager's database in PostgreSQL."""

from tests.integration.test_attachments import *  # noqa: F403 - the same tests
