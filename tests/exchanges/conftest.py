# SPDX-License-Identifier: Apache-2.0
"""Real users, as the suite users has them."""

from tests.users.conftest import place, users

__all__ = ["place", "users"]
