# SPDX-License-Identifier: Apache-2.0
"""Slurm's calls, with the manager's database in PostgreSQL."""

from tests.integration.test_slurm_programs import *  # noqa: F403 - the same tests
