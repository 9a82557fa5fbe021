# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Ray tests: a server, a reservation, a stream of known content."""

from __future__ import annotations

from tests.connectors.conftest import flow
from tests.integration.conftest import reservation, server

__all__ = ["flow", "reservation", "server"]
