# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the views' tests: a server, a reservation, and users of the machine."""

from __future__ import annotations

from tests.integration.conftest import reservation, server
from tests.users.conftest import place, python, users

__all__ = ["place", "python", "reservation", "server", "users"]
