# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the views' tests: a server, and a reservation."""

from __future__ import annotations

from tests.integration.conftest import reservation, server

__all__ = ["reservation", "server"]
